"""What `ray up` would make on AWS, against a simulated AWS in this process: machines, firewall, image."""

from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import yaml

from tests.conftest import ROOT

boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto")
ClientError = pytest.importorskip("botocore.exceptions").ClientError

FILES = ("gpu", "cpu")
HOME = "198.51.100.7/32"


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, in an account of its own, with an image that the simulation publishes."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("HOME", str(tmp_path))
    with moto.mock_aws():
        from cluster import aws

        monkeypatch.setattr(aws, "IMAGE", "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-6.1-x86_64")
        yield aws


def rules(region: str = "us-east-1") -> list[dict[str, Any]]:
    groups = boto3.client("ec2", region_name=region).describe_security_groups()["SecurityGroups"]
    return [rule for group in groups if group["GroupName"] != "default" for rule in group["IpPermissions"]]


def bootstrap(name: str) -> dict[str, Any]:
    """The configuration as `ray up` fills it in."""
    from ray.autoscaler._private.aws import config as ray_aws
    from ray.autoscaler._private.aws.utils import client_cache, resource_cache
    from ray.autoscaler._private.util import prepare_config

    resource_cache.cache_clear()
    client_cache.cache_clear()
    ray_aws._get_subnets_or_die.cache_clear()
    return ray_aws.bootstrap_aws(prepare_config(yaml.safe_load((ROOT / "cluster" / f"{name}.yaml").read_text())))


@pytest.mark.parametrize("name", FILES)
def test_a_cluster_gets_the_image_and_the_firewall_of_the_template(aws: Any, name: str) -> None:
    aws.main(["setup", "--ssh-from", HOME])
    config = bootstrap(name)
    nodes = [kind["node_config"] for kind in config["available_node_types"].values()]
    assert len(nodes) == 3
    assert {node["ImageId"][:4] for node in nodes} == {"ami-"}
    assert len({tuple(node["SecurityGroupIds"]) for node in nodes}) == 1
    assert all(len(set(node["SubnetIds"])) == 4 for node in nodes), "one in each zone"
    open_to = [(rule.get("FromPort"), r["CidrIp"]) for rule in rules() for r in rule["IpRanges"]]
    assert open_to == [(22, HOME)]


@pytest.mark.parametrize("name", FILES)
def test_the_machines_can_be_had(aws: Any, name: str) -> None:
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    aws.main(["setup", "--ssh-from", HOME])
    config = bootstrap(name)
    provider = AWSNodeProvider(config["provider"], config["cluster_name"])
    for kind, of_kind in config["available_node_types"].items():
        tags = {"ray-node-type": "worker", "ray-user-node-type": kind, "ray-launch-config": "x", "ray-node-name": kind}
        (node,) = provider.create_node(of_kind["node_config"], tags, 1).values()
        assert node.instance_type == of_kind["node_config"]["InstanceType"]
        assert (node.instance_lifecycle == "spot") == kind.endswith("spot")
    filled = AWSNodeProvider.fillout_available_node_types_resources(config)["available_node_types"]
    assert filled["head"]["resources"]["CPU"] == 0
    if name == "gpu":
        assert {filled[f"gpu-{how}"]["resources"]["accelerator_type:A10G"] for how in ("spot", "on-demand")} == {1}


def test_without_the_template_nothing_is_started_and_nothing_opened(aws: Any) -> None:
    with pytest.raises(ClientError, match="LaunchTemplate"):
        bootstrap("gpu")
    assert rules() == []


def test_setup_again_moves_the_firewall_and_remove_leaves_nothing(aws: Any) -> None:
    aws.main(["setup", "--ssh-from", HOME, "--bucket", "mine"])
    iam = boto3.client("iam")
    statements = iam.get_role_policy(RoleName=aws.NAME, PolicyName=aws.NAME)["PolicyDocument"]["Statement"]
    of_bucket = {what: s["Resource"] for s in statements for what in s["Action"] if what.startswith("s3:")}
    assert of_bucket == {
        **dict.fromkeys(("s3:GetObject", "s3:PutObject", "s3:DeleteObject"), "arn:aws:s3:::mine/*"),
        "s3:ListBucket": "arn:aws:s3:::mine",
    }
    aws.main(["setup", "--ssh-from", "203.0.113.0/24"])
    assert [r["CidrIp"] for rule in rules() for r in rule["IpRanges"]] == ["203.0.113.0/24"]
    now = iam.get_role_policy(RoleName=aws.NAME, PolicyName=aws.NAME)["PolicyDocument"]["Statement"]
    assert now == statements, "a running cluster goes on using its bucket"
    aws.main(["setup", "--ssh-from", HOME, "--bucket", "other"])
    document = str(iam.get_role_policy(RoleName=aws.NAME, PolicyName=aws.NAME)["PolicyDocument"])
    assert "other" in document
    assert "mine" not in document
    aws.main(["setup", "--ssh-from", HOME, "--no-bucket"])
    document = str(iam.get_role_policy(RoleName=aws.NAME, PolicyName=aws.NAME)["PolicyDocument"])
    assert "s3:" not in document, "the bucket is no longer named"
    aws.main(["remove"])
    assert rules() == []
    assert iam.list_roles()["Roles"] == []
    assert boto3.client("ec2", region_name="us-east-1").describe_launch_templates()["LaunchTemplates"] == []


def with_ec2(aws: Any, monkeypatch: pytest.MonkeyPatch, **methods: Any) -> None:
    """Give the module clients of EC2 with some methods wrapped: each is given the real one, and what it was asked."""
    real = aws.boto3.client

    def client(*given: Any, **more: Any) -> Any:
        made = real(*given, **more)
        for name, method in methods.items() if given == ("ec2",) else ():
            setattr(made, name, partial(method, getattr(made, name)))
        return made

    monkeypatch.setattr(aws.boto3, "client", client)


def test_a_firewall_that_cannot_be_renewed_stays_as_it_was(
    aws: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.main(["setup", "--ssh-from", HOME])
    before = rules()

    def refused(real: Any, **_: object) -> None:
        raise ClientError({"Error": {"Code": "RulesPerSecurityGroupLimitExceeded", "Message": "too many"}}, "Authorize")

    with_ec2(aws, monkeypatch, authorize_security_group_ingress=refused)
    assert "too many" in refusal(aws, capsys, "setup", "--ssh-from", "203.0.113.0/24")
    assert rules() == before
    assert len(before) == 2


def test_what_was_added_by_hand_is_closed_and_what_is_right_stays_open(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.main(["setup", "--ssh-from", HOME])
    before, ec2 = rules(), boto3.client("ec2", region_name="us-east-1")
    others: dict[str, Any] = {"IpRanges": [{"CidrIp": "0.0.0.0/0", "Description": "by hand"}, {"CidrIp": "203.0.113.7/32"}]}
    by_hand = [
        {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, **others},
        {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, **others, "Ipv6Ranges": [{"CidrIpv6": "::/0"}]},
    ]
    ec2.authorize_security_group_ingress(GroupId=aws._security_group(ec2), IpPermissions=by_hand)
    assert len(rules()) == 3
    revoked: list[Any] = []

    def revoke(real: Any, **asked: Any) -> None:
        revoked.extend(asked["IpPermissions"])
        real(**asked)

    with_ec2(aws, monkeypatch, revoke_security_group_ingress=revoke)
    aws.main(["setup", "--ssh-from", HOME])
    assert rules() == before
    assert len(revoked) == 5
    assert HOME not in str(revoked)
    aws.main(["setup", "--ssh-from", HOME])
    assert (rules(), len(revoked)) == (before, 5)


@pytest.mark.parametrize("page", [b"<html>login</html>", b"\xff", b"198.51.100.7 ", b"0.0.0.0/0"])
def test_an_address_that_is_none_is_asked_for(
    page: bytes, aws: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aws.urllib.request, "urlopen", lambda *_, **__: BytesIO(page))
    if b"198" in page:
        aws.main(["setup"])
        assert [r["CidrIp"] for rule in rules() for r in rule["IpRanges"]] == [HOME]
    else:
        assert refusal(aws, capsys, "setup").endswith("): give it, as --ssh-from 198.51.100.7/32")
        assert rules() == []


def remaining() -> list[Any]:
    ec2, iam = boto3.client("ec2", region_name="us-east-1"), boto3.client("iam")
    templates = ec2.describe_launch_templates()["LaunchTemplates"]
    return [*rules(), *templates, *iam.list_roles()["Roles"], *iam.list_instance_profiles()["InstanceProfiles"]]


@pytest.mark.parametrize("first", ["group", "template", "role of the profile", "profile", "policy", "everything"])
def test_what_is_half_there_is_made_whole_and_removed(aws: Any, first: str) -> None:
    ec2, iam, name = boto3.client("ec2", region_name="us-east-1"), boto3.client("iam"), aws.NAME
    steps = {
        "group": lambda: ec2.delete_security_group(GroupId=aws._security_group(ec2)),
        "template": lambda: ec2.delete_launch_template(LaunchTemplateName=name),
        "role of the profile": lambda: iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name),
        "profile": lambda: iam.delete_instance_profile(InstanceProfileName=name),
        "policy": lambda: iam.delete_role_policy(RoleName=name, PolicyName=name),
        "everything": lambda: iam.delete_role(RoleName=name),
    }
    names = list(steps)
    for again in ("setup", "remove"):
        aws.main(["setup", "--ssh-from", HOME])
        for step in names[: names.index(first) + 1]:
            steps[step]()
        aws.main([again, *(["--ssh-from", HOME] if again == "setup" else [])])
        if again == "setup":
            (profile,) = iam.list_instance_profiles()["InstanceProfiles"]
            assert [role["RoleName"] for role in profile["Roles"]] == [name]
            assert iam.list_role_policies(RoleName=name)["PolicyNames"] == [name]
    assert remaining() == []


def test_as_long_as_a_machine_is_up_nothing_is_removed(
    aws: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.main(["setup", "--ssh-from", HOME])
    before, client = len(remaining()), boto3.client

    def busy(**_: object) -> None:
        raise ClientError({"Error": {"Code": "DependencyViolation", "Message": "in use"}}, "DeleteSecurityGroup")

    def with_machine(service: str, **options: Any) -> Any:
        made = client(service, **options)
        if service == "ec2":
            made.delete_security_group = busy
        return made

    with monkeypatch.context() as patched:
        patched.setattr(aws.boto3, "client", with_machine)
        assert refusal(aws, capsys, "remove") == (
            "error: a machine still uses the firewall: call `make down`, and this again a minute later"
        )
        assert len(remaining()) == before
    aws.main(["remove"])
    assert remaining() == []


def refusal(aws: Any, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The last line of what is said."""
    with pytest.raises(SystemExit) as stopped:
        aws.main([*words])
    assert stopped.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_without_credentials_a_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from cluster import aws

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    said = "error: no AWS credentials were found: call `aws configure`, or set AWS_PROFILE"
    assert refusal(aws, capsys, "setup", "--ssh-from", HOME) == said
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    assert "nobody" in refusal(aws, capsys, "remove")


def test_an_address_that_cannot_be_found_is_asked_for(
    aws: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(*_: object, **__: object) -> None:
        raise URLError("no route")

    monkeypatch.setattr(aws.urllib.request, "urlopen", away)
    assert refusal(aws, capsys, "setup").endswith("no route>): give it, as --ssh-from 198.51.100.7/32")


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("0.0.0.0/0", "4294967296 addresses"),
        ("10.0.0.0/8", "16777216 addresses"),
        ("somewhere", "somewhere is no IPv4 network: give yours, such as 198.51.100.7/32"),
        ("198.51.100.7/24", "an address in one: give 198.51.100.7/32, or 198.51.100.0/24"),
    ],
)
def test_a_firewall_for_everyone_is_refused(aws: Any, network: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refusal(aws, capsys, "setup", "--ssh-from", network)
    assert rules() == []
