"""Makes, once per account and region, what gpu.yaml and cpu.yaml name: a firewall that lets in nothing but ssh from one
network, a launch template with that firewall and the newest Deep Learning Base AMI, and a role with which a head node may
start and end workers. None of it costs anything.

    python cluster/aws.py setup
    python cluster/aws.py remove

`setup` may be called again at any time: it then takes the newest image, and the network you are in now.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

import boto3
from botocore.exceptions import ClientError

NAME = "sweep-orchestrator"
IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
"""Where AWS publishes the newest machine image with a GPU driver and Docker (a public parameter of the Systems Manager)."""

TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


def policy(bucket: str | None) -> dict[str, Any]:
    """What a head node may do: start machines, end those of its own clusters and, with a bucket, keep results there."""
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
    if bucket is not None:
        arn = f"arn:aws:s3:::{bucket}"
        statements.append({"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": arn})
        on_objects = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
        statements.append({"Effect": "Allow", "Action": on_objects, "Resource": f"{arn}/*"})
    return {"Version": "2012-10-17", "Statement": statements}


def setup(region: str, ssh_from: str, bucket: str | None) -> None:
    """Make or renew the firewall, the launch template and the role."""
    ec2, iam = boto3.client("ec2", region_name=region), boto3.client("iam")
    group = _security_group(ec2) or _create_security_group(ec2)
    _allow_only_ssh(ec2, group, ssh_from)
    image = boto3.client("ssm", region_name=region).get_parameter(Name=IMAGE)["Parameter"]["Value"]
    data = {"ImageId": image, "SecurityGroupIds": [group]}
    if not _created(lambda: ec2.create_launch_template(LaunchTemplateName=NAME, LaunchTemplateData=data)):
        ec2.create_launch_template_version(LaunchTemplateName=NAME, LaunchTemplateData=data)
    _created(lambda: iam.create_role(RoleName=NAME, AssumeRolePolicyDocument=json.dumps(TRUST)))
    iam.put_role_policy(RoleName=NAME, PolicyName=NAME, PolicyDocument=json.dumps(policy(bucket)))
    if _created(lambda: iam.create_instance_profile(InstanceProfileName=NAME)):
        iam.add_role_to_instance_profile(InstanceProfileName=NAME, RoleName=NAME)
    print(f"{NAME} in {region}: image {image}, ssh from {ssh_from} only")


def remove(region: str) -> None:
    """Delete what `setup` made; clusters must be down."""
    ec2, iam = boto3.client("ec2", region_name=region), boto3.client("iam")
    ec2.delete_launch_template(LaunchTemplateName=NAME)
    ec2.delete_security_group(GroupId=_security_group(ec2))
    iam.remove_role_from_instance_profile(InstanceProfileName=NAME, RoleName=NAME)
    iam.delete_instance_profile(InstanceProfileName=NAME)
    iam.delete_role_policy(RoleName=NAME, PolicyName=NAME)
    iam.delete_role(RoleName=NAME)
    print(f"{NAME} removed from {region}")


def _security_group(ec2: Any) -> str | None:
    groups = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": [NAME]}])["SecurityGroups"]
    return groups[0]["GroupId"] if groups else None


def _create_security_group(ec2: Any) -> str:
    """In the account's default network."""
    vpcs = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    if not vpcs:
        raise SystemExit("error: this region has no default VPC: make one with `aws ec2 create-default-vpc`")
    description = "Nodes of a sweep: ssh from one network, everything among themselves"
    return str(ec2.create_security_group(GroupName=NAME, Description=description, VpcId=vpcs[0]["VpcId"])["GroupId"])


def _allow_only_ssh(ec2: Any, group: str, ssh_from: str) -> None:
    found = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"]
    if found:
        ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=found)
    among_themselves = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": ssh_from}]}
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[among_themselves, ssh])


def _created(create: Callable[[], object]) -> bool:
    """Call it; whether it made something new."""
    try:
        create()
    except ClientError as error:
        if "AlreadyExists" not in error.response["Error"]["Code"]:
            raise
        return False
    return True


def _network(text: str) -> str:
    network = ipaddress.IPv4Network(text)
    if network.prefixlen < 16:
        raise argparse.ArgumentTypeError(f"{text} is {network.num_addresses} addresses: give yours, such as 198.51.100.7/32")
    return str(network)


def _own_address() -> str:
    with urllib.request.urlopen("https://checkip.amazonaws.com", timeout=10) as answer:
        return answer.read().decode().strip() + "/32"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("setup", "remove"))
    parser.add_argument("--region", default="us-east-1", help="the region in the yaml file (default: %(default)s)")
    parser.add_argument("--ssh-from", type=_network, help="the network to let in (default: this machine's public address)")
    parser.add_argument("--bucket", help="an S3 bucket that head nodes may keep results in (default: none)")
    given = parser.parse_args(arguments)
    try:
        if given.what == "setup":
            setup(given.region, given.ssh_from or _own_address(), given.bucket)
        else:
            remove(given.region)
    except ClientError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
