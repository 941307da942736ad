"""What `ray up` would make on AWS, against a simulated AWS in this process: machines, firewall, image."""

from collections.abc import Iterator
from functools import cache, partial
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
HOME, ELSEWHERE = "198.51.100.7/32", "203.0.113.9/32"
IMAGE = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-6.1-x86_64"
NEWER_IMAGE = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-6.1-arm64"


@pytest.fixture(scope="module", autouse=True)
def described_once() -> Iterator[None]:
    """Each test has a session of its own, for which botocore would read anew what a service can do, and for each client make a
    method of each of that. Each region of the simulation would have a thousand images that no test asks for, and Ray would list
    its kinds of machines for each test."""
    from botocore.client import ClientCreator
    from botocore.loaders import JSONFileLoader
    from moto.ec2.models import amis
    from ray.autoscaler._private.aws import node_provider

    load, make, load_images = JSONFileLoader.load_file, ClientCreator._create_methods, amis.load_resource
    loaded, made = dict[str, Any](), dict[str, dict[str, Any]]()

    def load_once(loader: JSONFileLoader, path: str) -> Any:
        if path not in loaded:
            loaded[path] = load(loader, path)
        return loaded[path]

    def make_once(creator: ClientCreator, model: Any) -> dict[str, Any]:
        if model.service_name not in made:
            made[model.service_name] = make(creator, model)
        return dict(made[model.service_name])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", load_once)
        patch.setattr(ClientCreator, "_create_methods", make_once)
        patch.setattr(amis, "load_resource", lambda path: [] if "/ecs/" in path else load_images(path))
        patch.setattr(node_provider, "list_ec2_instances", cache(node_provider.list_ec2_instances))
        yield


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, in an account of its own, with an image that the simulation publishes."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("HOME", str(tmp_path))
    with moto.mock_aws():
        from cluster import aws

        monkeypatch.setattr(aws, "IMAGE", IMAGE)
        monkeypatch.setattr(aws, "_regions", lambda ec2: ["eu-west-1", "us-east-1"])  # each takes the simulation a second
        yield aws


def rules(region: str = "us-east-1") -> list[dict[str, Any]]:
    groups = boto3.client("ec2", region_name=region).describe_security_groups()["SecurityGroups"]
    return [rule for group in groups if group["GroupName"] != "default" for rule in group["IpPermissions"]]


def bootstrap(name: str, region: str = "us-east-1") -> dict[str, Any]:
    """The configuration as `ray up` fills it in."""
    from ray.autoscaler._private.aws import config as ray_aws
    from ray.autoscaler._private.aws.utils import client_cache, resource_cache
    from ray.autoscaler._private.util import prepare_config

    resource_cache.cache_clear()
    client_cache.cache_clear()
    ray_aws._get_subnets_or_die.cache_clear()
    text = (ROOT / "cluster" / f"{name}.yaml").read_text().replace("us-east-1", region)
    return ray_aws.bootstrap_aws(prepare_config(yaml.safe_load(text)))


def launch_hash(config: dict[str, Any]) -> str:
    """Ray ends a head whose machine has another one than the configuration."""
    from ray.autoscaler._private.util import hash_launch_conf

    return hash_launch_conf(config["available_node_types"]["head"]["node_config"], config["auth"])


def start_head(region: str = "us-east-1") -> tuple[str, str]:
    """A machine as `ray up cluster/gpu.yaml` would start it, without the rest. Its id and hash."""
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    config = bootstrap("gpu", region)
    tags = {"ray-node-type": "head", "ray-user-node-type": "head", "ray-launch-config": launch_hash(config)}
    provider = AWSNodeProvider(config["provider"], config["cluster_name"])
    (machine,) = provider.create_node(config["available_node_types"]["head"]["node_config"], tags, 1)
    return machine, tags["ray-launch-config"]


def let_in(region: str = "us-east-1") -> set[tuple[int, str]]:
    return {(rule["FromPort"], source["CidrIp"]) for rule in rules(region) for source in rule["IpRanges"]}


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


def test_a_machine_that_is_there_keeps_its_image_and_all_networks(
    aws: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.main(["setup", "--ssh-from", HOME])
    first, (machine, before) = bootstrap("gpu"), start_head()
    ec2 = boto3.client("ec2", region_name="us-east-1")
    wide = [{"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]} for port in (22, 80)]
    ec2.authorize_security_group_ingress(GroupId=aws._security_group(ec2), IpPermissions=wide)
    monkeypatch.setattr(aws, "IMAGE", NEWER_IMAGE)
    image = first["available_node_types"]["head"]["node_config"]["ImageId"]
    for change in (lambda **_: None, ec2.stop_instances):
        change(InstanceIds=[machine])
        capsys.readouterr()
        aws.main(["setup", "--ssh-from", ELSEWHERE])
        assert capsys.readouterr().out == (
            f"sweep-orchestrator in us-east-1: image {image}, ssh from {HOME} and {ELSEWHERE} only\n"
            "a machine with this firewall is there: the image stays, and so do the networks that were let in\n"
        )
        assert let_in() == {(22, HOME), (22, ELSEWHERE)}
    assert launch_hash(bootstrap("gpu")) == before
    ec2.terminate_instances(InstanceIds=[machine])
    aws.main(["setup", "--ssh-from", ELSEWHERE])
    assert let_in() == {(22, ELSEWHERE)}
    assert bootstrap("gpu")["available_node_types"]["head"]["node_config"]["ImageId"] != image


def test_a_head_of_another_person_is_not_replaced(
    aws: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.main(["setup", "--ssh-from", HOME])
    head, before = start_head()
    aws.main(["setup", "--ssh-from", HOME])
    template = boto3.client("ec2", region_name="us-east-1").describe_launch_template_versions(LaunchTemplateName=aws.NAME)
    monkeypatch.setenv("HOME", str(tmp_path / "bert"))
    told = (
        f"error: the head of sweep-gpu in us-east-1 ({head}) was started with the key ~/.ssh/ray-autoscaler_us-east-1.pem, and "
        "`ray up` would take another one here: it would end that machine, and delete what is on it. If it is another person's, "
        "give `cluster_name` in your file a name of your own that begins with sweep-. If it is yours, copy that key and "
        "~/.ray/auth_token from where you started it"
    )
    for _ in range(2):
        assert refusal(aws, capsys, "setup", "--ssh-from", ELSEWHERE) == told
        assert let_in() == {(22, HOME)}
        now = boto3.client("ec2", region_name="us-east-1").describe_launch_template_versions(LaunchTemplateName=aws.NAME)
        assert len(now["LaunchTemplateVersions"]) == len(template["LaunchTemplateVersions"])
        assert launch_hash(bootstrap("gpu")) != before, "Ray makes a key of its own"
    aws.main(["setup", "--ssh-from", ELSEWHERE, "--cluster-name", "sweep-bert"])
    assert let_in() == {(22, HOME), (22, ELSEWHERE)}
    key = Path(".ssh") / "ray-autoscaler_us-east-1.pem"
    (tmp_path / "bert" / key).write_bytes((tmp_path / key).read_bytes())  # readable by all, which ssh refuses, but not Ray
    aws.main(["setup", "--ssh-from", ELSEWHERE])
    assert launch_hash(bootstrap("gpu")) == before


def test_a_key_with_the_name_from_another_account_is_not_the_one_of_the_head(
    aws: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.main(["setup", "--ssh-from", HOME])
    head, before = start_head()
    other = boto3.client("ec2", region_name="eu-west-1").create_key_pair(KeyName="ray-autoscaler_us-east-1")["KeyMaterial"]
    (tmp_path / ".ssh" / "ray-autoscaler_us-east-1.pem").chmod(0o600)
    (tmp_path / ".ssh" / "ray-autoscaler_us-east-1.pem").write_text(other)
    assert launch_hash(bootstrap("gpu")) != before
    assert head in refusal(aws, capsys, "setup", "--ssh-from", HOME)


@pytest.mark.parametrize("kept", [True, False])
def test_a_head_with_a_key_of_ones_own_is_known_by_its_file(
    aws: Any, kept: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.main(["setup", "--ssh-from", HOME])
    ec2 = boto3.client("ec2", region_name="us-east-1")
    (tmp_path / ".ssh").mkdir()
    made = ec2.create_key_pair(KeyName="mine", KeyType="ed25519")["KeyMaterial"]
    (tmp_path / ".ssh" / ("mine.pem" if kept else "other.pem")).write_text(made)
    tags = [{"Key": "ray-node-type", "Value": "head"}, {"Key": "ray-cluster-name", "Value": "sweep-gpu"}]
    ec2.run_instances(
        MinCount=1, MaxCount=1, LaunchTemplate={"LaunchTemplateName": aws.NAME, "Version": "$Latest"}, KeyName="mine",
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )  # fmt: skip
    if kept:
        aws.main(["setup", "--ssh-from", ELSEWHERE])
        assert let_in() == {(22, HOME), (22, ELSEWHERE)}
    else:
        assert "the key ~/.ssh/mine.pem" in refusal(aws, capsys, "setup", "--ssh-from", ELSEWHERE)


def test_the_role_stays_as_long_as_another_region_has_a_firewall(aws: Any, capsys: pytest.CaptureFixture[str]) -> None:
    iam = boto3.client("iam")
    for region in ("us-east-1", "eu-west-1"):
        aws.main(["setup", "--region", region, "--ssh-from", HOME])
    capsys.readouterr()
    aws.main(["remove"])
    assert capsys.readouterr().out == "sweep-orchestrator removed from us-east-1; its role stays for eu-west-1\n"
    assert rules() == []
    assert boto3.client("ec2", region_name="us-east-1").describe_launch_templates()["LaunchTemplates"] == []
    told = "error: nothing of sweep-orchestrator is in us-east-1, but in eu-west-1: add --region eu-west-1"
    assert refusal(aws, capsys, "remove") == told
    assert [role["RoleName"] for role in iam.list_roles()["Roles"]] == [aws.NAME]
    assert iam.list_role_policies(RoleName=aws.NAME)["PolicyNames"] == [aws.NAME]
    assert len(iam.get_instance_profile(InstanceProfileName=aws.NAME)["InstanceProfile"]["Roles"]) == 1
    assert let_in("eu-west-1") == {(22, HOME)}
    aws.main(["remove", "--region", "eu-west-1"])
    assert iam.list_roles()["Roles"] == []
    assert rules("eu-west-1") == []


def test_all_regions_of_the_account_are_known() -> None:
    from cluster import aws

    class Account:
        def describe_regions(self) -> dict[str, Any]:
            return {"Regions": [{"RegionName": "us-east-1", "Endpoint": "..."}, {"RegionName": "eu-west-1", "Endpoint": "..."}]}

    assert aws._regions(Account()) == ["eu-west-1", "us-east-1"]


def test_a_region_that_the_account_may_not_use_is_passed_over(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.main(["setup", "--ssh-from", HOME])
    real = aws._security_group

    def refused(ec2: Any) -> Any:
        if ec2.meta.region_name == "us-east-1":
            return real(ec2)
        raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "denied"}}, "DescribeSecurityGroups")

    monkeypatch.setattr(aws, "_security_group", refused)
    aws.main(["remove"])
    assert remaining() == []


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
