"""What `ray up` would make on AWS, against a simulated AWS in this process: machines, firewall, image."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import moto
import pytest
import yaml
from botocore.exceptions import ClientError

from tests.conftest import ROOT

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
    document = iam.get_role_policy(RoleName=aws.NAME, PolicyName=aws.NAME)["PolicyDocument"]
    assert "s3:" not in str(document), "the bucket is no longer named"
    aws.main(["remove"])
    assert rules() == []
    assert iam.list_roles()["Roles"] == []
    assert boto3.client("ec2", region_name="us-east-1").describe_launch_templates()["LaunchTemplates"] == []


@pytest.mark.parametrize("network", ["0.0.0.0/0", "10.0.0.0/8", "somewhere"])
def test_a_firewall_for_everyone_is_refused(aws: Any, network: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        aws.main(["setup", "--ssh-from", network])
    assert stopped.value.code == 2
    assert rules() == []
