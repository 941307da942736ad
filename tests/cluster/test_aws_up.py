"""`ray up cluster/gpu.yaml` from first to last against a simulated AWS whose machines are those of hosts.py."""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.cluster import hosts
from tests.cluster.hosts import Lab
from tests.conftest import ROOT, read_rows
from tests.toy import threshold

pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow(170),
    pytest.mark.timeout(1200),
    pytest.mark.skipif(hosts.missing() is not None, reason=str(hosts.missing())),
]

REGION, FROM = "us-east-1", "198.51.100.7/32"
KEY = f"~/.ssh/ray-autoscaler_{REGION}.pem"
AWS = {
    "AWS_ENDPOINT_URL": "http://client:5000",
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}

SERVER = """
import io, json, sys, urllib.parse
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

simulated = DomainDispatcherApplication(create_backend_app)
ours, image = b"/aws/service/deeplearning/ami/x86_64/", b"/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-6.1-x86_64"
code = b"<Code>InsufficientInstanceCapacity</Code><Message>none left</Message>"
granted = 0

def application(environ, start_response):
    global granted
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    if ours in body: # an image that the simulation does not know
        body = json.dumps(json.loads(body) | {"Name": image.decode()}).encode()
        environ["CONTENT_LENGTH"] = str(len(body))
    environ["wsgi.input"] = io.BytesIO(body)
    asked = dict(urllib.parse.parse_qsl(body.decode(errors="replace")))
    if asked.get("Action") == "RunInstances":
        market = asked.get("InstanceMarketOptions.MarketType", "on-demand")
        refused = market == "spot" and granted == 1
        granted += market == "spot" and not refused
        with open(sys.argv[1], "a") as log:
            log.write(f"{asked['InstanceType']} {market} {'refused' if refused else 'granted'}\\n")
        if refused:
            start_response("500 Internal Server Error", [("Content-Type", "text/xml")])
            return [b"<Response><Errors><Error>" + code + b"</Error></Errors></Response>"]
    return simulated(environ, start_response)

run_simple("0.0.0.0", 5000, application, threaded=True)
"""
"""An AWS with a single spot machine to give, which notes down every machine that it is asked for."""

ACCOUNT = """
import boto3, json
ec2 = boto3.client("ec2")
machines = [m for r in ec2.describe_instances()["Reservations"] for m in r["Instances"]]
volumes = {a["InstanceId"]: v for v in ec2.describe_volumes()["Volumes"] for a in v["Attachments"]}
groups = ec2.describe_security_groups()["SecurityGroups"]
template = ec2.describe_launch_template_versions(LaunchTemplateName="sweep-orchestrator")["LaunchTemplateVersions"][-1]
disks = {i: {name: v[name] for name in ("Size", "VolumeType", "Encrypted")} for i, v in volumes.items()}
about = {"machines": machines, "disks": disks, "groups": groups, "template": template["LaunchTemplateData"]}
print(json.dumps(about, default=str))
"""

ROUTE = """#!/bin/bash
# The machine that stands for an address: worker-N for the Nth that is asked for.
exec 9> ~/routes.lock; flock 9
grep -qxs "$1" ~/routes || echo "$1" >> ~/routes
exec nc "worker-$(grep -nx "$1" ~/routes | cut -d: -f1)" 22
"""

STUDY = ("--task", "toy:Toy", "--N", "8", "--seeds", "10", "--max-steps", "3", "--resolution", "0.1", "--pack-size", "1",
         "--no-speculate", "--option", "pause=2")  # fmt: skip


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A user with a token; a head and two workers, with what the container and a role give on AWS; and the simulated AWS."""
    with Lab(tmp_path) as lab:
        lab.run("sh", "-c", "ray get-auth-token --generate > /dev/null && chmod 600 ~/.ray/auth_token")
        lab.add("head", "worker-1", "worker-2")
        given = " ".join(f"{name}={value}" for name, value in {**AWS, "RAY_AUTH_MODE": "token"}.items())
        for name in ("head", "worker-1", "worker-2"):
            lab.ssh(name, f"echo export {given} | cat - ~/.bashrc > ~/new && mv ~/new ~/.bashrc")
        lab.ssh("head", f"echo {shlex.quote(ROUTE)} > ~/route && chmod +x ~/route")
        lab.ssh("head", "mkdir ~/.ssh && echo 'Host 172.*' > ~/.ssh/config && echo 'ProxyCommand ~/route %h' >> ~/.ssh/config")
        with (tmp_path / "server").open("w") as output:
            lab.start(sys.executable, "-c", SERVER, str(tmp_path / "asked"), output=output)
        lab.run("sh", "-c", "until nc -z client 5000; do sleep 0.1; done")
        yield lab


def reachable(folder: Path) -> str:
    """The file for machines that are reached otherwise, without Docker and the internet, and that leave sooner."""
    config = yaml.safe_load((ROOT / "cluster" / "gpu.yaml").read_text())
    del config["docker"]
    config["auth"] = {"ssh_user": "root", "ssh_proxy_command": "nc head 22"}
    config["idle_timeout_minutes"] = 0.3
    config["file_mounts"]["~/sweep/toy.py"] = "tests/toy.py"
    config |= {"initialization_commands": [], "head_setup_commands": []}
    config["setup_commands"] = [f"ln -sfn {sys.prefix} ~/sweep/.venv"]
    file = folder / "gpu.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    return str(file)


def account(lab: Lab) -> dict[str, Any]:
    return json.loads(lab.run(sys.executable, "-c", ACCOUNT, **AWS))


def facts(account: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is to be known of every machine, by its type in the file."""
    found = {}
    for machine in account["machines"]:
        tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
        found[tags["ray-user-node-type"]] = {
            "type": machine["InstanceType"],
            "market": machine.get("InstanceLifecycle", "on-demand"),
            "state": machine["State"]["Name"],
            "key": machine["KeyName"],
            "profile": machine.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2],
            "image": machine["ImageId"],
            "groups": [group["GroupId"] for group in machine["SecurityGroups"]],
            "disk": account["disks"].get(machine["InstanceId"]),
            "cluster": tags["ray-cluster-name"],
            "kind": tags["ray-node-type"],
        }
    return found


def count(lab: Lab, state: str) -> int:
    return sum(machine["State"]["Name"] == state for machine in account(lab)["machines"])


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[str] | None, what: str, timeout: float = 200) -> None:
    end = time.monotonic() + timeout
    while not reached():
        assert process is None or process.poll() is None, f"it ended before {what}"
        assert time.monotonic() < end, f"not within {timeout} s: {what}"
        time.sleep(0.5)


def prefer_on_demand(file: Path) -> None:
    """What README.md says for when spot machines cannot be had."""
    config = yaml.safe_load(file.read_text())
    config["available_node_types"]["gpu-on-demand"]["priority"] = 2
    file.write_text(yaml.safe_dump(config, sort_keys=False))


def ray_up(lab: Lab, file: str, folder: Path) -> None:
    """Every machine on AWS lets in the key that Ray makes; so do ours, as soon as it is made."""
    with (folder / "up").open("w") as output:
        up = lab.start("ray", "up", "--yes", "--no-config-cache", file, output=output, **AWS)
    lab.run("sh", "-c", f"until ssh-keygen -y -f {KEY} >> /run/authorized_keys; do sleep 0.2; done 2> /dev/null", timeout=120)
    assert up.wait(300) == 0, (folder / "up").read_text()


def test_machines_come_and_go_as_a_study_needs_them(lab: Lab, tmp_path: Path) -> None:
    file, asked, said = reachable(tmp_path), tmp_path / "asked", tmp_path / "said"
    lab.run(sys.executable, "cluster/aws.py", "setup", "--ssh-from", FROM, **AWS)
    ray_up(lab, file, tmp_path)
    assert asked.read_text() == "m6i.large on-demand granted\n", "no worker before there is a study"

    words = f".venv/bin/python -m orchestrator.scaling {shlex.join(STUDY)} --address auto --gpus-per-run 1 --workers 2"
    with said.open("w") as output:
        study = lab.start("ray", "exec", file, f"cd ~/sweep && {words}", output=output, **AWS)
    wait_until(lambda: asked.read_text().count("spot refused") >= 5, study, "a spot machine is refused")
    prefer_on_demand(Path(file))
    lab.run("ray", "up", "--yes", "--no-config-cache", "--no-restart", file, **AWS)
    wait_until(lambda: count(lab, "running") == 3, study, "an on-demand machine is there")
    seen = account(lab)
    found = facts(seen)
    assert study.wait(400) == 0, said.read_text()
    assert "trains on its CPU, though every worker has a GPU" in said.read_text()
    wanted = asked.read_text().splitlines()
    assert wanted[:2] == ["m6i.large on-demand granted", "g5.xlarge spot granted"]
    assert [line for line in wanted[2:] if line != "g5.xlarge spot refused"] == ["g5.xlarge on-demand granted"]

    shared = {
        "key": f"ray-autoscaler_{REGION}",
        "image": seen["template"]["ImageId"],
        "groups": seen["template"]["SecurityGroupIds"],
        "disk": {"Size": 150, "VolumeType": "gp3", "Encrypted": True},
        "cluster": "sweep-gpu",
    }
    worker = {"type": "g5.xlarge", "profile": "", "kind": "worker"} | shared
    head = {"type": "m6i.large", "profile": "sweep-orchestrator", "kind": "head", "market": "on-demand"} | shared
    print(json.dumps(found, indent=1))
    assert {of_machine.pop("state") for of_machine in found.values()} == {"running"}
    assert found == {
        "head": head,
        "gpu-spot": worker | {"market": "spot"},
        "gpu-on-demand": worker | {"market": "on-demand"},
    }
    rules = [rule for group in seen["groups"] if group["GroupId"] in shared["groups"] for rule in group["IpPermissions"]]
    print(json.dumps(rules))
    open_to = [(rule.get("FromPort"), rule.get("ToPort"), r["CidrIp"]) for rule in rules for r in rule["IpRanges"]]
    assert open_to == [(22, 22, FROM)]
    assert "0.0.0.0/0" not in json.dumps(rules)

    lab.run("ray", "rsync-down", file, "~/sweep/results/", str(tmp_path / "results/"), **AWS)
    rows = read_rows(tmp_path)
    print(f"{len(rows)} rows, by host {rows['host'].value_counts().to_dict()}")
    assert "head" not in set(rows["host"])
    assert set(rows["device"]) == {"cpu"}
    table = pd.read_csv(tmp_path / "results" / "scaling" / "scaling.csv")
    exact = table["seed"].map(partial(threshold, 8))
    assert ((exact <= table["threshold"]) & (table["threshold"] <= 1.1 * exact + 1)).all()

    wait_until(lambda: count(lab, "running") == 1, None, "idle workers leave")
    assert {name for name, of_machine in facts(account(lab)).items() if of_machine["state"] == "running"} == {"head"}
    lab.run("ray", "down", "--yes", file, **AWS)
    assert count(lab, "terminated") == 3
    lab.run(sys.executable, "cluster/aws.py", "remove", **AWS)
