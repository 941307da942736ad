"""The cluster files hold what they promise: Ray takes them, versions agree with the pinned ones, nothing is open or secret."""

import copy
import logging
import platform
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from orchestrator import regularization, scaling
from orchestrator.command.cli import run
from tests.conftest import ROOT

FOLDER = ROOT / "cluster"
AWS, RAY = ("gpu", "cpu"), ("gpu", "cpu", "local")
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
README = (FOLDER / "README.md").read_text()
TEXTS = [path for path in FOLDER.iterdir() if path.is_file()]


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text())


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with Ray's defaults, as `ray up` checks it."""
    prepared = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    return prepared


def commands(config: dict[str, Any]) -> str:
    return "\n".join(line for key in config if key.endswith("_commands") for line in config[key])


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


@pytest.fixture(autouse=True)
def _quiet_ray(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize("name", RAY)
def test_ray_takes_the_file(name: str) -> None:
    config, given = checked(load(name)), load(name)
    assert config["cluster_name"] == f"sweep-{name}"
    if name in AWS:  # a list left out would be Ray's own: nightly wheels of another Python
        assert {key for key in config if key.endswith("_commands")} <= given.keys()
    assert "nightly" not in commands(config)
    assert "ray-3" not in commands(config)


@pytest.mark.parametrize("name", RAY)
@pytest.mark.parametrize("where", [(), ("auth",)], ids=["top", "auth"])
def test_a_misspelt_key_is_refused(name: str, where: tuple[str, ...]) -> None:
    config = load(name)
    inner = config
    for key in where:
        inner = inner[key]
    inner["idle_timeout_minuts"] = 5
    with pytest.raises(jsonschema.ValidationError, match="idle_timeout_minuts"):
        checked(config)


@pytest.mark.parametrize("name", AWS)
def test_keys_that_ray_does_not_check_are_known(name: str) -> None:
    config = load(name)
    assert config["provider"].keys() == {"type", "region", "availability_zone", "cache_stopped_nodes"}
    known = {"LaunchTemplate", "InstanceType", "InstanceMarketOptions", "IamInstanceProfile", "MetadataOptions"}
    for kind in config["available_node_types"].values():
        assert kind["node_config"].keys() <= known | {"BlockDeviceMappings"}
        assert kind.keys() <= {"resources", "node_config", "min_workers", "max_workers", "priority"}


@pytest.mark.parametrize("name", AWS)
def test_the_head_trains_nothing_and_workers_come_and_go(name: str) -> None:
    config = checked(load(name))
    head, workers = config["head_node_type"], dict(config["available_node_types"])
    of_head = workers.pop(head)
    assert of_head["resources"] == {"CPU": 0}
    assert of_head["max_workers"] == 0
    assert "InstanceMarketOptions" not in of_head["node_config"], "a lost head is a lost study"
    assert {kind["min_workers"] for kind in workers.values()} == {0}
    assert {kind["max_workers"] for kind in workers.values()} == {config["max_workers"]}
    assert 0 < config["idle_timeout_minutes"] <= 15
    assert len(config["provider"]["availability_zone"].split(",")) > 1
    assert config["provider"]["cache_stopped_nodes"] is False
    spot, on_demand = workers[f"{name}-spot"], workers[f"{name}-on-demand"]
    assert spot["node_config"].pop("InstanceMarketOptions") == {"MarketType": "spot"}
    assert spot.pop("priority") > on_demand.pop("priority")
    assert spot == on_demand
    assert ("GPU" in spot["resources"]) == (name == "gpu")


def test_the_two_aws_files_differ_only_in_their_workers() -> None:
    gpu, cpu = load("gpu"), load("cpu")
    cpu["setup_commands"][1] = cpu["setup_commands"][1].removesuffix(" --index-url https://download.pytorch.org/whl/cpu")
    for config in (gpu, cpu):
        del config["cluster_name"]
        config["docker"].pop("worker_run_options", None)
        config["available_node_types"] = config["available_node_types"]["head"]
    assert gpu == cpu


@pytest.mark.parametrize("name", AWS)
def test_image_and_firewall_come_from_the_template(name: str) -> None:
    made = re.search(r'^NAME = "(.+)"$', (FOLDER / "aws.py").read_text(), re.MULTILINE)
    assert made is not None
    nodes = [kind["node_config"] for kind in load(name)["available_node_types"].values()]
    assert {node["LaunchTemplate"]["LaunchTemplateName"] for node in nodes} == {made[1]}
    assert not {"ImageId", "SecurityGroupIds"} & set().union(*nodes)
    assert load(name)["available_node_types"]["head"]["node_config"]["IamInstanceProfile"] == {"Name": made[1]}


@pytest.mark.parametrize("name", RAY)
def test_what_is_copied_is_there_and_is_no_more_than_the_code(name: str) -> None:
    mounts = load(name)["file_mounts"]
    assert mounts.pop("~/.ray/auth_token") == "~/.ray/auth_token"
    for there, here in mounts.items():
        assert (ROOT / here).exists()
        assert there == f"~/sweep/{here}"
    assert set(mounts.values()) == {*code(), "pyproject.toml", "constraints.txt"}


def code() -> set[str]:
    """Top-level folders with modules that a study may import."""
    return {path.parent.name for path in ROOT.glob("*/*.py")} - {"tests", "benchmarks", "cluster"}


def test_versions_are_those_of_the_constraints() -> None:
    assert {"ray", "boto3"} <= PINS.keys()
    images = [load(name)["docker"]["image"] for name in AWS]
    images += re.findall(r"^FROM (\S+)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert set(images) == {f"rayproject/ray:{PINS['ray']}-py311-cpu"}
    assert ray_job()["spec"]["rayClusterSpec"]["rayVersion"] == PINS["ray"]
    for path in TEXTS:  # whatever else names a version
        for package, version in re.findall(r"\b([A-Za-z][\w.-]*)(?:\[\w+\])?==([\d.]+\d)", path.read_text()):
            assert version == PINS.get(package), f"{package} in {path.name}"


def test_every_ray_that_may_be_installed_knows_tokens() -> None:
    (least,) = re.findall(r'"ray\[tune\]>=([\d.]+),', (ROOT / "pyproject.toml").read_text())
    assert tuple(map(int, least.split("."))) >= (2, 52), "before there is no `ray get-auth-token` and no RAY_AUTH_MODE"


@pytest.mark.parametrize("name", [*RAY, "Dockerfile"])
def test_nodes_install_exactly_the_constraints(name: str) -> None:
    text = (FOLDER / name).read_text() if name == "Dockerfile" else "\n".join(load(name)["setup_commands"])
    installs = [shlex.split(words) for words in re.findall(r"\.venv/bin/python -m pip install (.*)", text)]
    assert len(installs) == 2
    for words in installs:
        assert words[words.index("-c") + 1] == "constraints.txt"
    assert "torch" in installs[0]
    assert {"--editable", ".[cluster]"} <= set(installs[1])
    assert f"python{'3' if name == 'local' else ''} -m venv" in text
    if name in AWS:
        assert load(name)["head_setup_commands"] == []


@pytest.mark.parametrize("name", RAY)
def test_ray_is_started_with_a_token_and_a_small_object_store(name: str) -> None:
    config = load(name)
    *_, head = config["head_start_ray_commands"]
    *_, worker = config["worker_start_ray_commands"]
    for command in (head, worker):
        assert "--object-store-memory=1000000000" in command
        assert "RAY_USAGE_STATS_ENABLED=0" in command
        if name == "local":
            assert "export RAY_AUTH_MODE=token" in command
    if name in AWS:
        assert "--env=RAY_AUTH_MODE=token" in config["docker"]["run_options"]
        assert "--shm-size=2g" in config["docker"]["run_options"]
    else:
        assert "RAY_enable_autoscaler_v2=0" in head
    assert "--dashboard-host=127.0.0.1" in head
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in head


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_nothing_is_open_to_the_world_and_nothing_is_secret(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"0\.0\.0\.0|::/0", text)
    assert not re.search(r"AKIA\w{16}|BEGIN [A-Z ]*PRIVATE KEY|\b[0-9a-f]{40,}\b|\b[A-Za-z0-9+/]{40}\b", text)
    assert not re.search(r"(?i)(RAY_AUTH_TOKEN|password|secret_access_key)\s*[=:]\s*\S", text)
    if path.suffix == ".yaml":
        values = list(walk([*yaml.safe_load_all(text)]))
        assert not [key for key, _ in values if key in ("IpPermissions", "hostPort", "ports", "hostNetwork", "security_group")]
        assert not [value for _, value in values if value in ("LoadBalancer", "NodePort")]
        assert not re.search(r"--publish|(?<!\w)-p \d", text)


def ray_job() -> dict[str, Any]:
    (job,) = (part for part in yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text()) if part["kind"] == "RayJob")
    return job


def test_the_kubernetes_job_scales_to_zero_and_ends() -> None:
    job = ray_job()
    assert job["apiVersion"] == "ray.io/v1"
    spec = job["spec"]
    assert spec.keys() == {
        "entrypoint", "backoffLimit", "activeDeadlineSeconds", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished",
        "submissionMode", "submitterConfig", "rayClusterSpec",
    }  # fmt: skip
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (3, 12 * 3600)
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["submissionMode"] == "K8sJobMode"
    cluster = spec["rayClusterSpec"]
    assert cluster.keys() == {
        "rayVersion", "authOptions", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec", "workerGroupSpecs",
    }  # fmt: skip
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["enableInTreeAutoscaling"] is True
    assert cluster["autoscalerOptions"] == {"version": "v2", "idleTimeoutSeconds": 300}
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert (workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (0, 0, 8)
    (of_head,), (of_worker,) = (group["template"]["spec"]["containers"] for group in (head, workers))
    assert of_head["image"] == of_worker["image"]
    assert of_worker["resources"]["limits"] == of_worker["resources"]["requests"]
    assert of_worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    for group in (head, workers):
        assert group["template"]["spec"]["restartPolicy"] == "Never", "what the newer autoscaler asks for"
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    (volume,) = head["template"]["spec"]["volumes"]
    (mount,) = of_head["volumeMounts"]
    assert mount == {"name": volume["name"], "mountPath": "/home/ray/sweep/results"}
    claim = next(part for part in yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text()) if part["kind"] != "RayJob")
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_the_image_is_made_of_what_the_other_clusters_copy() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    let_in = re.findall(r"^!(.+)$", (FOLDER / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    mounts = set(load("gpu")["file_mounts"].values()) - {"~/.ray/auth_token"}
    assert {word for line in copied for word in line.split()} == set(let_in) == mounts


def studies() -> list[tuple[str, str]]:
    """Every study that a page or a file starts, with its options."""
    found = re.findall(r"python -m orchestrator\.(\w+)([^'\"&\n]*)", README + ray_job()["spec"]["entrypoint"])
    return sorted(set(found))


def test_commands_name_files_that_exist() -> None:
    named = set(re.findall(r"(?<!/)\bcluster/[\w.]+\w", README))
    assert {"cluster/gpu.yaml", "cluster/local.yaml", "cluster/kuberay.yaml", "cluster/Dockerfile", "cluster/aws.py"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_ray_up_never_takes_a_configuration_that_it_kept() -> None:
    """It names a firewall and an image that may be gone, and anyone can put it into /tmp."""
    commands = re.findall(r"ray up --yes\s+(\S+)", README + (ROOT / "Makefile").read_text())
    assert commands == ["--no-config-cache"] * 3


def test_machines_of_one_cluster_need_the_same_python_to_the_last_digit() -> None:
    import ray
    from ray._private.utils import check_version_info

    check_version_info({"ray_version": ray.__version__, "python_version": platform.python_version()}, "here")
    with pytest.raises(RuntimeError, match="Version mismatch"):
        check_version_info({"ray_version": ray.__version__, "python_version": platform.python_version() + "1"}, "here")
    for text in (README, (FOLDER / "local.yaml").read_text()):
        assert "to the last digit: with 3.11.7 on one" in " ".join(text.replace("# ", "").split())


@pytest.mark.parametrize(("study", "options"), studies())
def test_studies_are_understood(study: str, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cluster and its GPUs: what they are asked for is checked on them."""
    monkeypatch.chdir(tmp_path)
    words = shlex.split(options.replace("--address auto", "").replace("--gpus-per-run 1", ""))
    app = {"scaling": scaling.app, "regularization": regularization.app}[study]
    assert run(app, [*words, "--dry-run"]) == 0


def test_there_are_studies_to_check() -> None:
    assert studies()
    assert all({"--address", "--workers"} <= set(shlex.split(options)) for _, options in studies())
