"""`make submit`, `fetch` and `send`, and the job on Kubernetes, with a `ray` that does here what it would do on the head."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
import yaml

from orchestrator.store import ResultStore, make_row
from tests.conftest import ROOT
from trainables.spec import RunSpec

RAY = f"""#!{sys.executable}
import json, os, shlex, subprocess, sys
words, head = sys.argv[1:], os.environ["HEAD"]
copy = ["rsync", "-avz", "--quiet"]
match words:
    case ["exec", _, command]:
        sys.exit(subprocess.run(["bash", "-c", command], env=os.environ | {{"HOME": head}}).returncode)
    case ["rsync-down", _, source, target]:
        source = source.replace("~", head)
        subprocess.run([*copy, "--exclude=/runs", source, target], check=True)
        subprocess.run(os.environ.get("MEANWHILE", "true"), shell=True, check=True)  # a study goes on there
        subprocess.run([*copy, source, target], check=True)
    case ["rsync-up", _, source, target]:
        subprocess.run([*copy, source, target.replace("~", head)], check=True)
    case ["get-head-ip", file]:
        if not os.path.isdir(os.path.join(head, "sweep")):
            sys.exit("Traceback (most recent call last):\\n  ...\\nRuntimeError: Head node of cluster (sweep) not found!")
        print("10.0.0.1")
    case ["get-auth-token", "--generate"]:
        path = os.path.join(os.environ["HOME"], ".ray", "auth_token")
        os.makedirs(os.path.dirname(path))
        open(path, "w").write("secret")
    case ["up", *rest]:
        open(os.environ["SAID"] + ".up", "w").write(json.dumps(rest))
    case ["job", "status", *_]:
        sys.exit(1)
    case ["job", "submit", *rest]:
        open(os.environ["SAID"] + ".job", "w").write(rest[rest.index("--submission-id") + 1])
        if "--runtime-env-json" in rest:
            open(os.environ["SAID"] + ".env", "w").write(rest[rest.index("--runtime-env-json") + 1])
        subprocess.run(shlex.join(rest[rest.index("--") + 1:]), shell=True, check=True)
    case ["job", "logs", "--follow", *jobs]:
        print(json.dumps(jobs))
"""
STUDY = f"""#!{sys.executable}
import json, os, pathlib, sys
if "orchestrator.merge" in sys.argv:
    weights = pathlib.Path("results", "weights")
    pathlib.Path(os.environ["SAID"] + ".weights").write_text(json.dumps([file.name for file in weights.glob("*")]))
if "orchestrator.merge" in sys.argv or "-c" in sys.argv:
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
pathlib.Path(os.environ["SAID"]).write_text(json.dumps([os.getcwd(), *sys.argv[1:]]))
"""


copies = pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync on PATH")


@dataclass
class Cluster:
    """The user's folder, and the head with its home."""

    here: Path
    head: Path
    said: Path

    def __post_init__(self) -> None:
        self.bins = self.head / "sweep" / ".venv" / "bin"
        self.bins.mkdir(parents=True)
        self.here.mkdir()
        for name, text in (("ray", RAY), ("python", STUDY)):
            (self.bins / name).write_text(text)
            (self.bins / name).chmod(0o755)
        self.environment = dict(os.environ) | {
            "HEAD": str(self.head), "SAID": str(self.said), "PYTHONPATH": str(ROOT), "PATH": f"{self.bins}:{os.environ['PATH']}"
        }  # fmt: skip

    def make(self, *words: str) -> str:
        made = self.tried(*words)
        assert made.returncode == 0, made.stdout + made.stderr
        return made.stdout

    def tried(self, *words: str) -> subprocess.CompletedProcess[str]:
        make = ["make", f"--file={ROOT}/Makefile", *(f"--old-file=.venv/.installed{of}" for of in ("", "-cluster"))]
        command = [*make, f"BIN={self.bins}", *words]
        return subprocess.run(command, cwd=self.here, env=self.environment, capture_output=True, text=True)

    def started(self) -> list[str]:
        """The folder and the words of the study that was started on the head."""
        return json.loads(self.said.read_text())

    @property
    def stores(self) -> tuple[Path, Path]:
        return self.here / "results", self.head / "sweep" / "results"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "here", tmp_path / "head", tmp_path / "said")


def add(store: Path, *seeds: int) -> None:
    with ResultStore(store) as opened:
        for seed in seeds:
            spec = RunSpec(task="m:C", dataset="d", N=4, data_count=3, seed=seed)
            row = make_row(
                spec, task_version="1", fixed_count=0, parents=None, launch="l", versions="v", status="passed", reason="target",
                steps=1, passage_step=1, accuracy=1.0, id_mse=0.1, ood_mse=0.0, loss=float("nan"), curve_step=[1],
                curve_loss=[0.1], curve_accuracy=[1.0], curve_error=[0.0], measures={"volume": 0.3}, seconds=1.0,
            )  # fmt: skip
            opened.append([row])


def seeds(store: Path) -> list[int]:
    with ResultStore(store, read_only=True) as opened:
        assert opened.notices == []
        return sorted(row["seed"] for row in opened.rows())


def parts(store: Path) -> list[Path]:
    return sorted((store / "runs").iterdir())


PROGRAM = "awk -v n={data_count} -f '/opt/my x.awk' \"$1\" `a` \\n"


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--N 16..64 --workers 4", ["--N", "16..64", "--workers", "4"]),
        (f"--program {shlex.quote(PROGRAM)} --counts 1..9", ["--program", PROGRAM, "--counts", "1..9"]),
        ('--program "awk -v n={data_count}" --counts 1..9', ["--program", "awk -v n={data_count}", "--counts", "1..9"]),
        ("", []),
    ],
)
def test_a_study_is_submitted_as_it_was_typed(cluster: Cluster, typed: str, words: list[str]) -> None:
    cluster.make("submit", f"ARGS={typed}", "STUDY=tune")
    assert cluster.started() == [str(cluster.head / "sweep"), "-m", "orchestrator.tune", "--address", "auto", *words]


def test_a_job_that_is_stopped_has_the_time_to_say_how_to_continue(cluster: Cluster) -> None:
    """Ray gives it three seconds, unless this variable of its environment says otherwise."""
    job_supervisor = Path(ray.__file__).parent / "dashboard" / "modules" / "job" / "job_supervisor.py"
    assert "RAY_JOB_STOP_WAIT_TIME_S" in job_supervisor.read_text()
    cluster.make("submit", "ARGS=--N 16")
    assert json.loads(Path(f"{cluster.said}.env").read_text()) == {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "30"}}


ODD = (
    "my results", "s;touch BAD;", "r$(shell touch BAD)", "$(touch BAD)", "x'; touch BAD; echo '", 'x"; touch BAD; "',
    "a$HOME#`b`",
)  # fmt: skip


def no_bad(folder: Path) -> bool:
    return not list(folder.rglob("*BAD*"))


@pytest.mark.parametrize("target", ["report", "paper"])
@pytest.mark.parametrize("name", ODD)
def test_a_store_and_a_page_may_have_any_name(cluster: Cluster, tmp_path: Path, target: str, name: str) -> None:
    cluster.make(target, f"STORE={name}", f"REPORT={name} too")
    assert cluster.started() == [str(cluster.here), "-m", "analysis.report", "--store", name, "--out", f"{name} too"]
    cluster.make(target)
    assert cluster.started()[3:] == ["--store", "results", "--out", "report"]
    cluster.environment |= {"STORE": name}
    cluster.make(target)
    assert cluster.started()[3:] == ["--store", name, "--out", "report"]
    assert no_bad(tmp_path)


@pytest.mark.parametrize("name", ODD)
def test_a_job_a_study_and_a_cluster_may_have_any_name(cluster: Cluster, tmp_path: Path, name: str) -> None:
    assert json.loads(cluster.make("logs", f"JOB={name}", f"CLUSTER={name}")) == [name]
    cluster.make("submit", f"JOB={name}", f"STUDY={name}", f"CLUSTER={name}", "ARGS=--N 16")
    assert cluster.started() == [str(cluster.head / "sweep"), "-m", f"orchestrator.{name}", "--address", "auto", "--N", "16"]
    assert Path(f"{cluster.said}.job").read_text() == name
    text = (ROOT / "cluster" / "gpu.yaml").read_text()
    (cluster.here / name).write_text(text)
    cluster.environment["HOME"] = str(tmp_path / "home")
    cluster.make("up", f"CLUSTER={name}", f"BUCKET={name}")
    named = ["--region", "us-east-1", "--cluster-name", "sweep-gpu"]
    assert cluster.started()[1:] == ["cluster/aws.py", "setup", *named, "--bucket", name]
    (cluster.here / name).unlink()
    assert no_bad(tmp_path)


def test_a_job_is_called_as_its_study_unless_it_is_named(cluster: Cluster) -> None:
    assert json.loads(cluster.make("logs")) == ["scaling"]
    assert json.loads(cluster.make("logs", "STUDY=tune")) == ["tune"]
    cluster.make("submit", "STUDY=tune")
    assert Path(f"{cluster.said}.job").read_text() == "tune"


@pytest.mark.parametrize("name", ["sweep-mine", "'sweep-mine'", '"sweep-mine" # of my own'])
def test_up_takes_the_name_of_the_file_and_no_configuration_that_ray_kept(cluster: Cluster, tmp_path: Path, name: str) -> None:
    cluster.environment["HOME"] = str(tmp_path / "home")
    text = (ROOT / "cluster" / "gpu.yaml").read_text()
    (cluster.here / "mine.yaml").write_text(text.replace("cluster_name: sweep-gpu", f"cluster_name: {name}"))
    cluster.make("up", "CLUSTER=mine.yaml")
    assert cluster.started()[2:] == ["setup", "--region", "us-east-1", "--cluster-name", "sweep-mine"]
    assert json.loads(Path(f"{cluster.said}.up").read_text()) == ["--yes", "--no-config-cache", "mine.yaml"]


def test_up_ends_where_setup_refuses(cluster: Cluster, tmp_path: Path) -> None:
    cluster.environment["HOME"] = str(tmp_path / "home")
    (cluster.here / "mine.yaml").write_text((ROOT / "cluster" / "gpu.yaml").read_text())
    (cluster.bins / "python").write_text("#!/bin/sh\nexit 2\n")
    assert cluster.tried("up", "CLUSTER=mine.yaml").returncode == 2
    assert not Path(f"{cluster.said}.up").exists()


@pytest.mark.parametrize("token", ["new", "as Ray leaves it"])
def test_up_takes_the_region_of_the_file_and_keeps_the_token_from_others(cluster: Cluster, tmp_path: Path, token: str) -> None:
    kept = tmp_path / "home" / ".ray" / "auth_token"
    cluster.environment["HOME"] = str(tmp_path / "home")
    if token != "new":
        kept.parent.mkdir(parents=True)
        kept.write_text("older")
        kept.chmod(0o644)
    text = (ROOT / "cluster" / "gpu.yaml").read_text()
    (cluster.here / "mine.yaml").write_text(text.replace("  region: us-east-1", "  region: eu-west-1 # near us"))
    cluster.make("up", "CLUSTER=mine.yaml")
    assert cluster.started()[1:] == ["cluster/aws.py", "setup", "--region", "eu-west-1", "--cluster-name", "sweep-gpu"]
    assert kept.read_text() == ("secret" if token == "new" else "older")
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("pasted", ["as it is", "in words"])
def test_the_job_on_kubernetes_is_the_study(cluster: Cluster, pasted: str) -> None:
    """KubeRay makes one line for a shell of it, or, before 1.3, hands on its words."""
    (job,) = (part for part in yaml.safe_load_all((ROOT / "cluster" / "kuberay.yaml").read_text()) if part["kind"] == "RayJob")
    entrypoint = job["spec"]["entrypoint"].replace("/home/ray", str(cluster.head))
    submit = "ray job submit --address http://head:8265 --no-wait --submission-id ID --"
    line = f"if ! ray job status --address http://head:8265 ID >/dev/null 2>&1 ; then {submit} {entrypoint} ; fi ; ray job logs"
    words = ["bash", "-ce", "--", line] if pasted == "as it is" else [*submit.split(), *shlex.split(entrypoint)]
    subprocess.run(words, cwd=cluster.here, env=cluster.environment, check=True)
    folder, *started = cluster.started()
    assert folder == str(cluster.head / "sweep")
    assert started[:4] == ["-m", "orchestrator.scaling", "--N", "16..64"]
    assert started[-2:] == ["--workers", "4"]


@pytest.mark.parametrize("target", ["submit", "logs", "fetch", "send"])
def test_without_a_head_the_reason_and_what_to_do_are_told_without_a_traceback(cluster: Cluster, target: str) -> None:
    shutil.move(cluster.bins, bins := cluster.head / "bins")
    cluster.bins = bins
    shutil.rmtree(cluster.head / "sweep")
    add(cluster.here / "results", 0)
    refused = cluster.tried(target, "CLUSTER=mine.yaml")
    assert refused.returncode == 2
    assert [line for line in refused.stderr.splitlines() if not line.startswith("make")] == [
        "RuntimeError: Head node of cluster (sweep) not found!",
        "no head of mine.yaml was found: name its file with CLUSTER=..., or start it with `make up`",
    ]
    assert refused.stdout == ""
    assert not (cluster.here / "results" / ".tmp" / "taken").exists()


@copies
def test_what_was_trained_here_and_there_is_kept_by_fetch_and_send(cluster: Cluster) -> None:
    here, there = cluster.stores
    add(here, 0)
    cluster.make("send")
    assert seeds(there) == [0]
    add(there, 1, 2, 3)
    add(here, 10, 11, 3)
    cluster.make("fetch")
    assert seeds(here) == [0, 1, 2, 3, 10, 11]
    add(there, 4)
    add(here, 12)
    (here / "weights").mkdir()
    (here / "weights" / "k.safetensors").write_text("new")
    (there / "scaling").mkdir()
    (there / "scaling" / "scaling.csv").write_text("there")
    for _ in range(2):
        cluster.make("fetch")
        cluster.make("send")
    for store in (here, there):
        assert seeds(store) == [0, 1, 2, 3, 4, 10, 11, 12]
        assert len(parts(store)) == 1
        assert list((store / ".tmp").iterdir()) == []
        assert (store / "weights" / "k.safetensors").read_text() == "new"
        assert (store / "scaling" / "scaling.csv").read_text() == "there"


@copies
def test_rows_are_merged_as_they_are_and_of_other_files_the_newer_one_stays(cluster: Cluster) -> None:
    here, there = cluster.stores
    add(there, 1)
    for store, name, time in ((here, "pack-sizes.json", 2e9), (there, "pack-sizes.json", 1e9), (there, "old.csv", 1e9)):
        store.mkdir(exist_ok=True)
        (store / name).write_text(store.parent.name)
        os.utime(store / name, (time, time))
    cluster.make("fetch")
    assert (here / "pack-sizes.json").read_text() == "here"
    assert (here / "old.csv").stat().st_mtime == 1e9
    with ResultStore(here, read_only=True) as one, ResultStore(there, read_only=True) as other:
        assert repr(one.table().to_pylist()) == repr(other.table().to_pylist())


@copies
@pytest.mark.parametrize("newer", ["here", "there"])
def test_of_a_run_that_ended_on_both_sides_each_keeps_its_row_weights_and_measures(cluster: Cluster, newer: str) -> None:
    here, there = cluster.stores
    names = ["weights/k.safetensors", "measures/k.images-1.parquet"]
    for store in (here, there):
        add(store, 0)
        for name in names:
            (store / name).parent.mkdir()
            (store / name).write_text(store.parent.name)
            os.utime(store / name, (time := 2e9 if (store is here) == (newer == "here") else 1e9, time))
        (store / "weights" / f"of {store.parent.name}.safetensors").write_text("w")
    cluster.make("fetch")
    cluster.make("send")
    assert [(here / name).read_text() for name in names] == ["here"] * 2
    assert [(there / name).read_text() for name in names] == ["sweep"] * 2
    for store in (here, there):
        assert {file.name for file in (store / "weights").iterdir()} >= {"of here.safetensors", "of sweep.safetensors"}


@copies
def test_a_fetch_beside_a_study_brings_no_row_before_its_weights(cluster: Cluster, tmp_path: Path) -> None:
    here, there = cluster.stores
    add(there, 1)
    for name in ("weights/first.safetensors", "checkpoints/ended.pt", "scaling/scaling.csv"):
        (there / name).parent.mkdir(exist_ok=True)
        (there / name).write_text("w")
    add(tmp_path / "later", 1, 2)
    later = f"cp {tmp_path}/later/runs/* runs; touch weights/second.safetensors; rm checkpoints/ended.pt"
    cluster.environment["MEANWHILE"] = f"cd {there}; {later}"
    cluster.make("fetch")
    assert seeds(here) == [1]
    assert json.loads(Path(f"{cluster.said}.weights").read_text()) == ["first.safetensors"], "they are there before the rows"
    assert (here / "checkpoints" / "ended.pt").exists()
    assert list((there / ".tmp").iterdir()) == []
    cluster.environment["MEANWHILE"] = "true"
    cluster.make("fetch")
    assert seeds(here) == [1, 2]
    assert (here / "weights" / "second.safetensors").exists()


@copies
def test_there_must_be_results_to_send(cluster: Cluster) -> None:
    made = cluster.tried("send")
    assert (made.returncode, made.stderr.splitlines()[0]) == (2, "there is no folder results here to send")


@copies
def test_a_fetch_needs_no_results_on_either_side(cluster: Cluster) -> None:
    here, there = cluster.stores
    there.mkdir()
    cluster.make("fetch")
    add(here, 1)
    cluster.make("fetch")
    assert seeds(here) == [1]


@copies
@pytest.mark.parametrize(
    ("target", "link", "there"),
    [*((target, ".tmp", there) for target in ("fetch", "send") for there in (False, True)), ("send", ".tmp/sent", True)],
)
def test_nothing_is_removed_or_written_where_a_link_of_a_store_leads(
    cluster: Cluster, tmp_path: Path, target: str, link: str, there: bool
) -> None:
    store = cluster.stores[there]
    thesis = tmp_path / "mine" / "fetched" / "thesis.txt"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("years")
    add(cluster.here / "results", 1)
    (store / link).parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(store / link, ignore_errors=True)
    (store / link).symlink_to(tmp_path / "mine")
    made = cluster.tried(target)
    assert made.returncode == 2
    assert f"results/{link} is a link: remove it" in made.stderr
    assert thesis.read_text() == "years"
    assert [file.name for file in (tmp_path / "mine").rglob("*")] == ["fetched", "thesis.txt"]


def test_a_plain_copy_over_a_store_loses_no_row_of_either(tmp_path: Path) -> None:
    """As long as only one side has grown; and no launch extends a part that the other side may extend too."""
    here, there = tmp_path / "here", tmp_path / "there"
    add(here, 0)
    shutil.copytree(here, there)
    add(there, 1)
    assert len(parts(there)) == 2
    assert {part.name for part in parts(here)} < {part.name for part in parts(there)}
    assert parts(here)[0].read_bytes() == (there / "runs" / parts(here)[0].name).read_bytes()
    shutil.copytree(there, here, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock", ".tmp", ".index"))
    add(here, 2)
    shutil.copytree(here, there, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock", ".tmp", ".index"))
    add(there, 3)
    assert seeds(there) == [0, 1, 2, 3]
    assert len(parts(there)) == 2
