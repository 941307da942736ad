"""`make up`, `submit`, `logs`, `fetch`, `send` and `down` with cluster/local.yaml, on machines that are real for all that ssh,
Ray and the study see: one dies under the study, and another comes."""

import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.chaos.rows import comparable
from tests.cluster import hosts
from tests.cluster.hosts import HOME, SSH, Lab
from tests.conftest import ROOT, Command, read_rows

pytestmark = [
    pytest.mark.slow(115),
    pytest.mark.timeout(1200),
    pytest.mark.skipif(hosts.missing() is not None, reason=str(hosts.missing())),
]

TOY = ("--task", "toy:Pupil", "--N", "8", "--seeds", "14", "--max-steps", "3", "--resolution", "0.1")
STUDY = (*TOY, "--pack-size", "1", "--no-speculate", "--option", "pause=1")
"""The same runs whatever their order: those of the first seed one after another, then one for every worker at a time."""
HEAD = "cd ~/sweep && export RAY_AUTH_MODE=token && .venv/bin/python"
ALIVE = """
import json, ray, sys, time
ray.init("auto", logging_level="critical", log_to_driver=False)
end = time.monotonic() + 150
while len(alive := sorted(node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"])) != int(sys.argv[1]):
    assert time.monotonic() < end, ray.nodes()
    time.sleep(0.5)
print(json.dumps(alive))
"""
SEEN = """
import pandas, pathlib, sys, time
end, seen = time.monotonic() + 250, set()
while len(seen) < int(sys.argv[1]) and time.monotonic() < end:
    time.sleep(1)
    if list(pathlib.Path("results").glob("runs/*.parquet")):
        seen = set(pandas.read_parquet("results/runs")["host"])
print(*seen)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make up` installs here and on the machines: this environment, with what `ray job submit` takes besides."""
    folder = tmp_path_factory.mktemp("installed")
    more = [word for word in importlib.metadata.requires("ray") or [] if word.endswith('extra == "default"')]
    assert more
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    packages = sysconfig.get_path("purelib", "venv", {"base": str(folder / "venv")})
    Path(packages, "more.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # what is there is not installed again
    words = ["--quiet", "--disable-pip-version-check", "--no-compile", "-c", str(ROOT / "constraints.txt")]
    command = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python"), "install", *words]
    command += [word.partition(";")[0] for word in more]
    subprocess.run(command, check=True, env=os.environ | {"HOME": HOME})  # where the settings of pip are
    ray = folder / "venv" / "bin" / "ray"
    ray.write_text(f"#!{folder}/venv/bin/python\nfrom ray.scripts.scripts import main\nmain()\n")
    ray.chmod(0o755)
    return folder


@pytest.fixture
def lab(tmp_path: Path, installed: Path) -> Iterator[Lab]:
    """Three machines to be named in the file, and one to come later."""
    with Lab(tmp_path, installed) as lab:
        lab.add("head", "worker-1", "worker-2", "worker-3")
        yield lab


def filled_in(folder: Path, installed: Path) -> str:
    """The file as somebody fills it in who has a task of his own. The environment is not installed, since there is no internet,
    and each machine counts as one core, since all share those of this one."""
    config = yaml.safe_load((ROOT / "cluster" / "local.yaml").read_text())
    config["provider"] |= {"head_ip": "head", "worker_ips": ["worker-1", "worker-2"]}
    config["auth"]["ssh_user"] = "root"
    config["file_mounts"]["~/sweep/toy.py"] = "tests/toy.py"
    assert ["venv" in command for command in config["setup_commands"]] == [True, True, True, True]
    config["setup_commands"][:3] = [f"ln -sfn {installed}/venv ~/sweep/.venv"]
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        config[key] = [command.replace("ray start", "ray start --num-cpus=1") for command in config[key]]
    file = folder / "local.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    return str(file)


def alive(lab: Lab, count: int) -> list[str]:
    """The machines of the cluster, once they are that many."""
    return json.loads(lab.ssh("head", f"{HEAD} -c {shlex.quote(ALIVE)} {count}").splitlines()[-1])


def stranger(lab: Lab, token: str) -> subprocess.Popen[str]:
    """A study started on a machine of the network by somebody without the cluster's token."""
    study = f"cd ~/sweep && HOME=/tmp {token} .venv/bin/python -m orchestrator.scaling {shlex.join(STUDY)} --address head:6379"
    return lab.start("ssh", *SSH, "worker-1", study)


def prepare(lab: Lab, name: str, installed: Path) -> None:
    """Put on one more machine what `ray up` puts on those of the file."""
    files = ("orchestrator", "trainables", "analysis", "examples", "tests/toy.py")
    for what, where in ((files, "sweep/"), ((f"{HOME}/.ray",), "")):
        lab.run("rsync", "-a", "--rsh", shlex.join(("ssh", *SSH)), *what, f"{name}:{where}")
    lab.ssh(name, f"ln -s {installed}/venv sweep/.venv")


def test_a_study_outlives_its_machines(lab: Lab, installed: Path, tmp_path: Path, here: Callable[..., Command]) -> None:
    toy = (ROOT / "tests" / "toy.py").read_text()
    (tmp_path / "toy.py").write_text(toy.replace('time.sleep(spec.option("pause"))', "pass"))  # the rows are the same without
    alone = here(*STUDY, "--workers", "2", "--store", "alone")
    file, said = filled_in(tmp_path, installed), tmp_path / "said"
    make = ("make", f"--file={ROOT}/Makefile", "--old-file=.venv/.installed-cluster")
    make += (f"BIN={installed}/venv/bin", f"CLUSTER={file}")
    lab.run(*make, "up")
    prepare(lab, "worker-3", installed)
    assert alive(lab, 3) == ["head", "worker-1", "worker-2"]
    lab.run(*make, "submit", f"ARGS={shlex.join(STUDY)}")
    with said.open("w") as output:
        study = lab.start(*make, "logs", output=output)
    strangers = [stranger(lab, f"RAY_AUTH_MODE={how}") for how in ("disabled", f"token RAY_AUTH_TOKEN={'0' * 64}")]
    assert len(lab.ssh("head", f"{HEAD} -c {shlex.quote(SEEN)} 3").split()) == 3, said.read_text()
    lab.lose("worker-2")
    join = "RAY_AUTH_MODE=token .venv/bin/ray start --num-cpus=1 --address=head:6379 --object-store-memory=1000000000"
    lab.ssh("worker-3", f"cd sweep && {join}")
    for refused in strangers:
        told, _ = refused.communicate(timeout=120)
        assert refused.returncode == 2, told
        assert "Traceback" not in told
    assert study.wait(300) == 0, said.read_text()
    assert "Job 'scaling' succeeded" in said.read_text()
    assert "lost its worker" in said.read_text()
    assert alive(lab, 3) == ["head", "worker-1", "worker-3"]
    lab.run(*make, f"--directory={tmp_path}", "fetch", PYTHONPATH=str(ROOT))
    assert "0 new rows in results" in lab.run(*make, f"--directory={tmp_path}", "send")
    assert alone.wait() == 0, alone.stdout + alone.stderr
    rows = read_rows(tmp_path)
    print(f"{len(rows)} rows, by host {rows['host'].value_counts().to_dict()}; lost: worker-2, joined: worker-3")
    assert rows["key"].is_unique
    assert set(rows["host"]) == {"head", "worker-1", "worker-2", "worker-3"}
    assert comparable(rows) == comparable(read_rows(tmp_path, "alone"))
    assert (rows["task"] == "toy:Teacher").sum() == 14  # one for each seed, whose weights went to the pupils through Ray alone
    lab.run(*make, "down")
    assert "raylet" not in lab.ssh("head", "ps -eo comm")
