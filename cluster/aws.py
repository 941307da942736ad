"""Makes, once per account and region, what gpu.yaml and cpu.yaml name: a firewall that lets in nothing but ssh from one
network, a launch template with that firewall and the newest Deep Learning Base AMI, and a role with which a head node may
start and end workers. None of it costs anything.

    python cluster/aws.py setup
    python cluster/aws.py remove

`setup` may be called again at any time: it then takes the newest image, and lets in the network you are in now, and no other.
As long as a machine with this firewall is there, running or stopped, the image stays as it is, because Ray replaces machines
that have another one; and the networks that were let in stay too, because they may be those of other people. `setup` makes
what is missing, and keeps the right to a bucket until another one is named, or `--no-bucket`. It refuses to prepare a
`ray up` that would end the head of another person. `remove` passes over what is not there. The role is that of all regions,
and goes with the last one.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

NAME = "sweep-orchestrator"
IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
"""Where AWS publishes the newest machine image with a GPU driver and Docker (a public parameter of the Systems Manager)."""

UP = ("pending", "running")
KEPT = (*UP, "stopping", "stopped")
"""States of machines that Ray finds, and of those that still have a disk."""

KEYS = 600
"""So many names of key pairs Ray tries."""

SOURCES = {"IpRanges": "CidrIp", "Ipv6Ranges": "CidrIpv6", "PrefixListIds": "PrefixListId", "UserIdGroupPairs": "GroupId"}
"""What a rule of a firewall lets in, and what names it."""

TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


class MistakeError(Exception):
    """One line that says what was given, or is missing, and what to do."""


def policy(on_bucket: list[dict[str, Any]]) -> dict[str, Any]:
    """What a head node may do: start machines, end those of its own clusters and what is said of a bucket."""
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": ["ec2:Describe*", "ec2:RunInstances", "ec2:CreateTags"], "Resource": "*"},
        {
            "Effect": "Allow",
            "Action": "ec2:TerminateInstances",
            "Resource": "*",
            "Condition": {"StringLike": {"ec2:ResourceTag/ray-cluster-name": "sweep-*"}},
        },
        {
            "Effect": "Allow",
            "Action": "iam:CreateServiceLinkedRole",
            "Resource": "*",
            "Condition": {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
        },
    ]
    return {"Version": "2012-10-17", "Statement": statements + on_bucket}


def to_keep_results(bucket: str) -> list[dict[str, Any]]:
    """The statements that let a head node keep results in a bucket."""
    arn, on_objects = f"arn:aws:s3:::{bucket}", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
    return [
        {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": arn},
        {"Effect": "Allow", "Action": on_objects, "Resource": f"{arn}/*"},
    ]


def setup(region: str, cluster: str, ssh_from: str, bucket: str | None) -> None:
    """Make or renew the firewall, the launch template and the role.

    Args:
        cluster: the name of the one that `ray up` is to start or to update.
        bucket: that head nodes may keep results in; "" for none, None for the one that they may use already, if any.

    Raises:
        MistakeError: `ray up` would end a head. Nothing was changed.
    """
    ec2, iam = boto3.client("ec2", region_name=region), boto3.client("iam")
    _check_that_the_head_stays(ec2, region, cluster)
    group = _security_group(ec2) or _create_security_group(ec2)
    in_use = any(_machines(ec2, KEPT, {"instance.group-id": group}))
    networks = _allow_only_ssh(ec2, group, ssh_from, and_as_before=in_use)
    image = (_image(ec2) if in_use else None) or _newest_image(region)
    data = {"ImageId": image, "SecurityGroupIds": [group]}
    if not _created(lambda: ec2.create_launch_template(LaunchTemplateName=NAME, LaunchTemplateData=data)):
        ec2.create_launch_template_version(LaunchTemplateName=NAME, LaunchTemplateData=data)
    _created(lambda: iam.create_role(RoleName=NAME, AssumeRolePolicyDocument=json.dumps(TRUST)))
    on_bucket = _present_on_bucket(iam) if bucket is None else to_keep_results(bucket) if bucket else []
    iam.put_role_policy(RoleName=NAME, PolicyName=NAME, PolicyDocument=json.dumps(policy(on_bucket)))
    _created(lambda: iam.create_instance_profile(InstanceProfileName=NAME))
    if not iam.get_instance_profile(InstanceProfileName=NAME)["InstanceProfile"]["Roles"]:
        iam.add_role_to_instance_profile(InstanceProfileName=NAME, RoleName=NAME)
    print(f"{NAME} in {region}: image {image}, ssh from {' and '.join(networks)} only")
    if in_use:
        print("a machine with this firewall is there: the image stays, and so do the networks that were let in")


def remove(region: str) -> None:
    """Delete what `setup` made; clusters must be down. The firewall goes first: as long as a machine uses it, all stays.

    Raises:
        MistakeError: a machine uses the firewall, or there is nothing in this region, but in another one.
    """
    ec2, iam = boto3.client("ec2", region_name=region), boto3.client("iam")
    group, templates = _security_group(ec2), _launch_templates(ec2)
    elsewhere = list(_others_with_the_firewall(ec2, region))
    if elsewhere and group is None and not templates:
        there = ", ".join(elsewhere)
        raise MistakeError(f"nothing of {NAME} is in {region}, but in {there}: add --region {elsewhere[0]}")
    if group is not None:
        _deleted(lambda: ec2.delete_security_group(GroupId=group))
    for template in templates:
        ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    if elsewhere:
        print(f"{NAME} removed from {region}; its role stays for {', '.join(elsewhere)}")
        return
    _deleted(lambda: _delete_instance_profile(iam))
    _deleted(lambda: iam.delete_role_policy(RoleName=NAME, PolicyName=NAME))
    _deleted(lambda: iam.delete_role(RoleName=NAME))
    print(f"{NAME} removed from {region}")


def _check_that_the_head_stays(ec2: Any, region: str, cluster: str) -> None:
    """Ray ends a head that was started with another key than it takes here, and `ray up --yes` does not ask before.

    Raises:
        MistakeError: there is such a head.
    """
    for head in _machines(ec2, UP, {"tag:ray-cluster-name": cluster, "tag:ray-node-type": "head"}):
        if not _is_taken_here(ec2, region, key := str(head.get("KeyName"))):
            raise MistakeError(
                f"the head of {cluster} in {region} ({head['InstanceId']}) was started with the key ~/.ssh/{key}.pem, and "
                "`ray up` would take another one here: it would end that machine, and delete what is on it. If it is another "
                "person's, give `cluster_name` in your file a name of your own that begins with sweep-. If it is yours, copy "
                "that key and ~/.ray/auth_token from where you started it"
            )


def _is_taken_here(ec2: Any, region: str, key: str) -> bool:
    """Whether Ray takes this key pair on this machine, and has the key that belongs to it.

    Of its own names Ray takes the first for which there are a key pair and a file. Before them may come names with one
    without the other, but none with neither: there Ray makes a new key. A key of the user's own is to lie in ~/.ssh too.
    """
    pairs = {pair["KeyName"]: pair.get("PublicKey", "") for pair in ec2.describe_key_pairs(IncludePublicKey=True)["KeyPairs"]}
    names = [f"ray-autoscaler_{number}{region}" for number in ("", *(f"{i}_" for i in range(1, KEYS)))]
    taken = next((name for name in names if (name in pairs) == _file_of(name).exists()), None)
    if key not in pairs or not _file_of(key).exists() or (key in names and key != taken):
        return False
    # By way of stdin: of a file that others may read ssh-keygen says nothing.
    asked = subprocess.run(
        ["ssh-keygen", "-y", "-P", "", "-f", "/dev/stdin"], input=_file_of(key).read_bytes(), capture_output=True, check=False
    )
    return asked.returncode == 0 and asked.stdout.decode().split()[:2] == pairs[key].split()[:2]


def _file_of(key: str) -> Path:
    return Path.home() / ".ssh" / f"{key}.pem"


def _machines(ec2: Any, states: Iterable[str], filters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    named = {"instance-state-name": [*states]} | {name: [value] for name, value in filters.items()}
    asked = [{"Name": name, "Values": values} for name, values in named.items()]
    for page in ec2.get_paginator("describe_instances").paginate(Filters=asked):
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def _launch_templates(ec2: Any) -> list[dict[str, Any]]:
    named = [{"Name": "launch-template-name", "Values": [NAME]}]
    return list(ec2.describe_launch_templates(Filters=named)["LaunchTemplates"])


def _image(ec2: Any) -> str | None:
    """That of the launch template, if there is one."""
    if not _launch_templates(ec2):
        return None
    asked = ec2.describe_launch_template_versions(LaunchTemplateName=NAME, Versions=["$Latest"])
    return str(asked["LaunchTemplateVersions"][0]["LaunchTemplateData"]["ImageId"])


def _newest_image(region: str) -> str:
    return str(boto3.client("ssm", region_name=region).get_parameter(Name=IMAGE)["Parameter"]["Value"])


def _others_with_the_firewall(ec2: Any, region: str) -> Iterator[str]:
    """Other regions in which `setup` was called. One that may not be used has nothing of it."""
    for name in _regions(ec2):
        try:
            if name != region and _security_group(boto3.client("ec2", region_name=name)) is not None:
                yield name
        except ClientError as error:
            if error.response["Error"]["Code"] != "UnauthorizedOperation":
                raise


def _regions(ec2: Any) -> list[str]:
    return sorted(region["RegionName"] for region in ec2.describe_regions()["Regions"])


def _present_on_bucket(iam: Any) -> list[dict[str, Any]]:
    """What the policy of the role, if there is one, says of a bucket."""
    try:
        document = iam.get_role_policy(RoleName=NAME, PolicyName=NAME)["PolicyDocument"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchEntity":
            raise
        return []
    return [statement for statement in document["Statement"] if "s3:" in str(statement.get("Action"))]


def _delete_instance_profile(iam: Any) -> None:
    for role in iam.get_instance_profile(InstanceProfileName=NAME)["InstanceProfile"]["Roles"]:
        iam.remove_role_from_instance_profile(InstanceProfileName=NAME, RoleName=role["RoleName"])
    iam.delete_instance_profile(InstanceProfileName=NAME)


def _security_group(ec2: Any) -> str | None:
    groups = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": [NAME]}])["SecurityGroups"]
    return groups[0]["GroupId"] if groups else None


def _create_security_group(ec2: Any) -> str:
    """In the account's default network."""
    vpcs = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    if not vpcs:
        raise MistakeError("this region has no default VPC: make one with `aws ec2 create-default-vpc`")
    description = "Nodes of a sweep: ssh from one network, everything among themselves"
    return str(ec2.create_security_group(GroupName=NAME, Description=description, VpcId=vpcs[0]["VpcId"])["GroupId"])


def _allow_only_ssh(ec2: Any, group: str, ssh_from: str, and_as_before: bool) -> list[str]:
    """What is missing is let in first: if that is refused, a cluster at work can still be reached.

    Args:
        and_as_before: networks from which ssh is let in already stay.

    Returns:
        The networks from which it is let in now.
    """
    found = _by_source(ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"])
    among_themselves = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": ssh_from}]}
    wanted = _by_source([among_themselves, ssh])
    if missing := [rule for name, rule in wanted.items() if name not in found]:
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=missing)
    stay = {name for name in found if and_as_before and _may_be_of_setup(name)}
    if others := [rule for name, rule in found.items() if name not in wanted and name not in stay]:
        ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=others)
    return sorted({ssh_from, *(name[-1] for name in stay)})


def _may_be_of_setup(name: tuple[Any, ...]) -> bool:
    """Whether a rule lets in ssh from a network for which `setup` may have been asked."""
    with suppress(argparse.ArgumentTypeError):
        return name[:-1] == ("tcp", 22, 22) and bool(_network(name[-1]))
    return False


def _by_source(rules: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rules with one source each, by what they let in: protocol, ports and source."""
    found = {}
    for rule in rules:
        ports = {name: rule[name] for name in ("IpProtocol", "FromPort", "ToPort") if name in rule}
        for kind, name in SOURCES.items():
            found |= {(*ports.values(), source[name]): {**ports, kind: [source]} for source in rule.get(kind, ())}
    return found


def _created(create: Callable[[], object]) -> bool:
    """Call it; whether it made something new."""
    try:
        create()
    except ClientError as error:
        if "AlreadyExists" not in error.response["Error"]["Code"]:
            raise
        return False
    return True


def _deleted(delete: Callable[[], object]) -> None:
    """Call it; nothing happens if there is nothing to delete."""
    try:
        delete()
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == "DependencyViolation":
            raise MistakeError("a machine still uses the firewall: call `make down`, and this again a minute later") from error
        if code != "NoSuchEntity" and "NotFound" not in code:
            raise


def _network(text: str) -> str:
    try:
        network = ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no IPv4 network: give yours, such as 198.51.100.7/32") from None
    if (address := text.partition("/")[0]) != str(network.network_address):
        raise argparse.ArgumentTypeError(f"{text} is no network but an address in one: give {address}/32, or {network}")
    if network.prefixlen < 16:
        raise argparse.ArgumentTypeError(f"{text} is {network.num_addresses} addresses: give yours, such as 198.51.100.7/32")
    return str(network)


def _own_address() -> str:
    try:
        with urllib.request.urlopen("https://checkip.amazonaws.com", timeout=10) as answer:
            return f"{ipaddress.IPv4Address(answer.read(100).decode().strip())}/32"  # and not the page of a captive portal
    except (OSError, ValueError) as error:
        said = f"the public address of this machine is unknown ({error})"
        raise MistakeError(f"{said}: give it, as --ssh-from 198.51.100.7/32") from error


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("setup", "remove"))
    parser.add_argument("--region", default="us-east-1", help="the region in the yaml file (default: %(default)s)")
    parser.add_argument("--cluster-name", default="sweep-gpu", help="that in the yaml file (default: %(default)s)")
    parser.add_argument("--ssh-from", type=_network, help="the network to let in (default: this machine's public address)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--bucket", help="an S3 bucket that head nodes may keep results in (default: as before; at first none)")
    which.add_argument("--no-bucket", action="store_const", const="", dest="bucket", help="let them use no bucket any more")
    given = parser.parse_args(arguments)
    try:
        if given.what == "setup":
            setup(given.region, given.cluster_name, given.ssh_from or _own_address(), given.bucket)
        else:
            remove(given.region)
    except NoCredentialsError:
        parser.exit(2, "error: no AWS credentials were found: call `aws configure`, or set AWS_PROFILE\n")
    except (MistakeError, BotoCoreError, ClientError) as error:
        parser.exit(2, f"error: {' '.join(str(error).split())}\n")


if __name__ == "__main__":
    main()
