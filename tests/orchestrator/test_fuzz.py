"""Random command lines, files and stores: each is done, or refused in one line with nothing written.

Lines are valid ones with up to two mistakes, so that most get past the parser. The examples are mistakes that once had a
traceback.
"""

import contextlib
import functools
import gzip
import importlib.metadata
import io
import re
import resource
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import typer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from analysis import export, measure
from analysis.report import __main__ as report
from orchestrator import __main__ as everything
from orchestrator import again
from orchestrator.command.cli import run
from orchestrator.store import STATUSES, make_row
from orchestrator.store.parts import parquet_bytes
from orchestrator.store.rows import encode
from tests.conftest import many
from tests.orchestrator.timed import look_at_each_run_once
from trainables.spec import RunSpec, run_key

MEMORY = 3 << 30
"""Bytes that a case may take besides what the program has anyway."""

STUDIES = tuple(everything.STUDIES)
APPS = {
    **{name: study.app for name, study in everything.STUDIES.items()},
    "orchestrator.again": again.app,
    "analysis.export": export.app,
    "analysis.measure": measure.app,
    "analysis.report": report.app,
    "orchestrator": everything.app,
}
SMALL = {
    "scaling": ("--N", "8", "--decoder", "mlp", "--width", "4", "--seeds", "1", "--resolution", "0.3"),
    "tune": ("--search", "lr=1e-3..1:log", "--N", "8", "--decoder", "mlp", "--trials", "2", "--seeds", "1", "--max-steps", "2"),
    "regularization": ("--N", "8", "--trials", "2", "--seeds", "1", "--epochs", "2", "--rank", "2"),
    "encodings": ("--N", "8", "--width", "4", "--seeds", "1", "--by-depth", "none", "--decoders", "mlp", "--depth", "1"),
    "geometry": ("--N", "8", "--width", "4", "--seeds", "1", "--depths", "1", "--decoders", "mlp", "--bumps", "3"),
    "tuning": ("--N", "8", "--width", "4", "--seeds", "1", "--bumps", "0,3", "--decoder", "mlp", "--depth", "1"),
    "rotation": ("--N", "8", "--width", "4", "--seeds", "1", "--angles", "40", "--epochs", "2"),
    "objectives": ("--tier", "smoke", "--seeds", "1"),
    "conditioning": ("--tier", "smoke", "--seeds", "1"),
    "jepa": ("--tier", "smoke", "--seeds", "1"),
    "signal": ("--tier", "smoke", "--seeds", "1"),
}
"""What makes a line of a study quick to plan."""

PATHS = (
    *("folder", "file", "new", "new/er", "file/below", "nowhere", "round", "store", "", ".", "..", "/dev/null", "store/runs"),
    *("ünï cødé 漢字", "\udcff", "[/red]", "x" * 300, "x/" * 3000, "-"),
)
NUMBERS = (
    *("0", "1", "-1", "1.5", "2147483647", "9" * 12, "9" * 400, "9" * 5000, "1e400", "1e-320", "nan", "inf", "-inf"),
    *("٣", "½", "0x10"),
)
WORDS = (
    *("", " ", ",", "a,b", "é漢字🙂", "\udcff", "[/red]", "\x1b[31m", "x" * 5000, "two\nlines", "--", "-", "=", "true", "None"),
    *("1..2..3", "8..", "..8", "16..8", "8..12:0", "8..12:1", "8..999999999999", "8..256:1", "0.001..1", "nan..1", "0..0"),
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "--address": ("local",),
    "--workers": ("1", "3"),
    "--gpus-per-run": ("0",),
    "--pack-size": ("1", "4"),
    "--max-hours": ("0", "1.5"),
    "--on-error": ("continue", "stop"),
    "--batch-size": ("1", "32", "64"),
    "--lr": ("0.001", "1"),
    "--weight-decay": ("0", "0.1"),
}
DECODER = {
    "--option": ("polarity=dark", "sigma=2", "tolerance=2"),
    "--absent": ("zero", "minus-one"),
    "--sigma": ("0.7", "3"),
    "--tolerance": ("0", "2"),
    "--precision": ("auto", "float32", "bfloat16"),
    "--max-steps": ("1", "40"),
}
OF_STUDY: dict[str, dict[str, tuple[str, ...]]] = {
    "scaling": {
        **DECODER,
        "--N": ("8,12", "8..16", "9", "8..12:4"),
        "--datasets": ("bumps", "stripes+bumps", "bumps, stripes+bumps"),
        "--target": ("0.5", "1"),
        "--seeds": ("2",),
        "--resolution": ("0.05", "0.9"),
        "--until-width": ("0.2", "1"),
        "--task": ("trainables.bumps:BumpTask", "tests.toy:Toy"),
        "--decoder": ("cnn", "mlp"),
        "--depth": ("0", "2"),
        "--width": ("1", "8"),
        "--encoding": ("bump", "one-hot", "positional", "ramp"),
        "--holdout": ("random", "center", "corner"),
        "--centres": ("integer", "real"),
        "--least": ("data_count", "width", "sigma", "max_steps"),
        "--along": ("N", "N=9,10", "width=8,16", "encoding=bump,ramp"),
        "--between": ("1..9", "4..64", "0.5..2"),
        "--data-count": ("5", "20"),
    },
    "tune": {
        **DECODER,
        "--search": ("lr=1e-3..1:log", "width=8|16", "sigma=0.5..2,weight_decay=0|1e-4..1:log", "depth=0..2,decoder=cnn|mlp"),
        "--objective": ("mse", "accuracy", "mse,id_mse", "max:accuracy", "steps"),
        "--trials": ("1", "5"),
        "--confirm": ("1", "3"),
        "--seeds": ("2",),
        "--seeds-per-trial": ("1", "3"),
        "--sampler": ("tpe", "nsga2", "random", "grid", "gp"),
        "--pruner": ("median", "percentile", "none"),
        "--search-seed": ("7",),
        "--schedule": ("constant", "cosine"),
        "--target": ("0.5", "1"),
        "--N": ("9", "12"),
        "--data-count": ("5", "20"),
        "--task": ("trainables.bumps:BumpTask", "tests.toy:Toy"),
        "--decoder": ("cnn", "mlp"),
        "--depth": ("0", "2"),
        "--encoding": ("bump", "one-hot"),
        "--holdout": ("random", "center"),
    },
    "regularization": {
        "--N": ("9", "12"),
        "--region": ("corner", "center"),
        "--trials": ("1", "5"),
        "--seeds": ("2",),
        "--search": ("weights", "decoder"),
        "--confirm": ("1", "3"),
        "--lambda-entropy": ("0.1", "0", "0.01..1", "2..2", "0|0.1..1"),
        "--lambda-variance": ("0.1", "0", "0.01..1"),
        "--objectives": ("validation", "id,validation"),
        "--sampler": ("tpe", "nsga2", "random", "grid"),
        "--pruner": ("median", "percentile", "none"),
        "--seeds-per-trial": ("1", "3"),
        "--confirm-seeds": ("0", "2"),
        "--search-seed": ("7",),
        "--sigma": ("0.7", "3"),
        "--rank": ("1", "8"),
        "--channels": ("1", "3"),
        "--init": ("published", "positive"),
        "--depth": ("0", "3"),
        "--padding": ("0", "2"),
        "--ema": ("0", "0.5"),
        "--beta2": ("0.99", "0.9"),
        "--tolerance": ("0", "2"),
        "--option": ("lambda_entropy=0.2", "rank=3"),
        "--epochs": ("1", "7"),
        "--schedule": ("constant", "cosine"),
    },
    "encodings": {
        **DECODER,
        "--N": ("9", "12"),
        "--encodings": ("bump", "ramp,one-hot", "positional, bump"),
        "--decoders": ("cnn", "cnn,mlp"),
        "--holdouts": ("center", "corner,center"),
        "--depth": ("2",),
        "--by-depth": ("none", "1", "1..3:2"),
        "--seeds": ("2",),
        "--width": ("1", "8"),
    },
    "geometry": {
        **DECODER,
        "--N": ("9", "12"),
        "--depths": ("1,2", "1..3"),
        "--decoders": ("cnn", "cnn,mlp"),
        "--encodings": ("bump", "ramp,one-hot"),
        "--holdout": ("center", "corner"),
        "--bumps": ("0", "10"),
        "--seeds": ("2",),
        "--width": ("1", "8"),
    },
    "tuning": {
        **DECODER,
        "--N": ("9", "12"),
        "--bumps": ("0", "0,5", "0..20"),
        "--decoder": ("cnn", "mlp"),
        "--depth": ("2",),
        "--encoding": ("bump", "one-hot", "positional"),
        "--holdout": ("center", "corner"),
        "--seeds": ("2",),
        "--width": ("1", "8"),
    },
    "rotation": {
        "--digit": ("0", "9"),
        "--angles": ("20", "100"),
        "--gap": ("160..200", "0.5..90.5"),
        "--seeds": ("2",),
        "--N": ("8", "12"),
        "--width": ("2", "8"),
        "--epochs": ("1", "7"),
    },
    "objectives": {
        "--families": ("dit", "maskgit,dit", "maskgit", "givt,mar", "mar,dit"),
        "--tokenizers": ("vq", "vae", "vae,vq"),
        "--split": ("train1", "fail1", "000,110"),
        "--dataset": ("shapes2d",),
        "--seeds": ("2",),
        "--first-seed": ("0", "100"),
        "--network": ("linear", "linear,conv"),
        "--codes": ("2", "8,16"),
        "--fit": ("seen", "all,seen"),
        "--stride": ("4", "2,8", "6"),
        "--channels": ("3", "12"),
        "--predicts": ("eps", "x0,eps"),
        "--noise": ("linear", "zero-snr"),
        "--input-scale": ("0.5", "0.25,1"),
        "--embedding": ("linear", "silu,mlp"),
        "--schedule": ("constant", "cosine"),
        "--smoothing": ("0", "0,0.1"),
        "--temperature": ("0", "3"),
        "--rounds": ("1", "8"),
        "--shape": ("plus", "triangle,square"),
        "--radius-small": ("0.3", "0.4,0.45"),
        "--radius-jitter": ("0", "0.05"),
        "--colour-separation": ("0.5", "1"),
        "--background": ("0.9", "1"),
        "--pool": ("8", "64"),
        "--steps": ("1", "20,40"),
        "--option": ("width=16", "looks=2", "mixture=2", "head_depth=1"),
        "--precision": ("auto", "float32", "bfloat16"),
    },
    "conditioning": {
        "--conditionings": ("full", "dropout,both", "quantised,full"),
        "--families": ("dit", "maskgit", "mar,dit"),
        "--tokenizers": ("vq", "vae", "vae,vq"),
        "--dropout": ("0.1", "0.05,0.5"),
        "--dropout-mode": ("null_sample", "zero_batch,null_sample"),
        "--split": ("train1", "000,110"),
        "--seeds": ("2",),
        "--codes": ("2", "8,16"),
        "--steps": ("1", "20,40"),
        "--option": ("width=16", "looks=2"),
    },
    "jepa": {
        "--families": ("dit", "maskgit", "maskgit,dit"),
        "--tokenizers": ("vq", "vae,vq"),
        "--jepa": ("0", "0,0.6", "1"),
        "--jepa-layers": ("one", "three,one", "1,1+2"),
        "--jepa-teacher": ("ema", "same,gradient"),
        "--split": ("train1", "000,110"),
        "--seeds": ("2",),
        "--steps": ("1", "20,40"),
        "--option": ("width=16", "looks=2", "ema=0"),
    },
    "signal": {
        "--factors": ("size", "colour,shape"),
        "--family": ("dit", "maskgit", "givt"),
        "--tokenizer": ("vq", "vae"),
        "--between": ("0.1..1", "0.5..0.9", "0.3..0.3"),
        "--resolution": ("0.5", "0.1"),
        "--share": ("0.3", "1"),
        "--split": ("train1", "000,110"),
        "--seeds": ("2",),
        "--steps": ("1", "40"),
        "--option": ("width=16", "looks=2"),
    },
}
AS_PATHS = dict.fromkeys(STUDIES, ("--store", "--out"))
AS_PATHS["regularization"] += ("--export-optuna",)
AS_PATHS["tune"] += ("--export-optuna",)
AS_PATHS["rotation"] += ("--mnist",)
for of_pictures in ("objectives", "conditioning", "jepa", "signal"):
    AS_PATHS[of_pictures] += ("--data",)
FLAGS = dict.fromkeys(STUDIES, ("--json", "--verbose", "--save-weights", "--no-gates"))
for of_thresholds in ("scaling", "signal"):
    FLAGS[of_thresholds] += ("--speculate", "--no-speculate")
FLAGS["regularization"] += ("--ablation", "--no-ablation")
FLAGS["geometry"] += ("--stripes", "--no-stripes")
ADDRESSES = ("", "somewhere", "127.0.0.1:1", "127.0.0.1:x", "127.0.0.1:", ":1", "[::1]", "\udcff:1")
TASKS = ("nowhere:Task", "os:", ":x", "sys:exit", "builtins:input", "pathlib:Path", "..:x", "tests.toy:threshold", "a.b:c", "x")

LOOK = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@st.composite
def lines(draw: DrawFn) -> list[str]:
    """A valid line of a study, with up to two mistakes."""
    study = draw(st.sampled_from(STUDIES))
    known = OPTIONS | OF_STUDY[study]
    chosen = draw(st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True))
    words = [*SMALL[study], "--dry-run"]
    for option in chosen:
        words += [option, draw(st.sampled_from(known[option]))]
    words += draw(st.lists(st.sampled_from(FLAGS[study]), max_size=1))
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2, 2)))):
        words += draw(mistakes(study))
    return [*draw(st.sampled_from(((), (), ("orchestrator",)))), study, *words]


def mistakes(study: str) -> SearchStrategy[list[str]]:
    """Words that spoil a line, most of them in a way that the parser does not see."""
    names = sorted((OPTIONS | OF_STUDY[study]).keys() - {"--address"})
    spoiled = st.tuples(st.sampled_from(names), st.sampled_from(NUMBERS) | st.sampled_from(WORDS) | st.text(max_size=6))
    exchanged = st.tuples(st.sampled_from(names), st.sampled_from([v for vs in OF_STUDY[study].values() for v in vs]))
    paths = st.tuples(st.sampled_from(AS_PATHS[study]), st.sampled_from(PATHS))
    pair = st.builds("{}={}".format, st.sampled_from(OPTION_NAMES), st.sampled_from(NUMBERS + WORDS))
    pairs = st.tuples(st.just("--option"), pair)
    tasks = st.tuples(st.just("--task"), st.sampled_from(TASKS))
    addresses = st.tuples(st.just("--address"), st.sampled_from(ADDRESSES))
    stray = st.sampled_from((("stray",), ("--frobnicate",), ("--seeds",), ("--help",), ("--N=",), ("-N", "8")))
    kinds = [spoiled, spoiled, spoiled, paths, exchanged, stray, addresses]
    return st.one_of(*kinds, pairs, *([tasks] if study in ("scaling", "tune") else [])).map(list)


OPTION_NAMES = ("sigma", "tolerance", "polarity", "centres", "absent", "rank", "init", "lambda_entropy", "shape", "")


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes half of the time of a line, and is the same for all of them."""
    monkeypatch.setattr("typer.main.get_command", functools.cache(typer.main.get_command))
    monkeypatch.setattr("importlib.metadata.version", functools.cache(importlib.metadata.version))
    look_at_each_run_once(monkeypatch)


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    """An allocation that is out of all proportion fails, here and not in the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder to work in, with some of what PATHS names, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        whole, here = Path(name), Path(name) / "here"
        (here / "folder").mkdir(parents=True)
        (here / "file").write_text("mine")
        (here / "nowhere").symlink_to("missing")
        (here / "round").symlink_to("round")
        (here / "store" / "runs").mkdir(parents=True)
        (here / "store" / "runs" / "part.parquet").write_bytes(PART)
        with contextlib.chdir(here):
            yield whole


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def attempt(line: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a line: a command, then its words."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", e, write_through=True) for e in ("strict", "backslashreplace"))
    starts = patch("orchestrator.launch.executed", side_effect=AssertionError("it began to train"))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), starts:
            code = run(APPS[line[0]], line[1:], name=line[0])
    finally:
        torch.set_flush_denormal(False)  # timing steps sets it, and Hypothesis draws such numbers
    return code, *(stream.buffer.getvalue().decode() for stream in (out, err))


def check_refused(out: str, err: str) -> None:
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")


def check(line: list[str], seen: Counter[str]) -> None:
    """The line is done or refused; the refusal is counted without what stands in quotes and without numbers."""
    with workplace() as folder:
        before = contents(folder)
        code, out, err = attempt(line)
        assert code in (0, 2), (code, out, err)
        if code == 2:
            check_refused(out, err)
            if "--dry-run" in line and "belongs to no option" not in err:  # that depends on the word before
                assert attempt([word for word in line if word != "--dry-run"]) == (code, out, err)
        if code == 2 or "--dry-run" in line:
            assert contents(folder) == before
    seen["done" if code == 0 else re.sub(r"'.*'|\d+", "#", err)[:60]] += 1


DONE = {"seconds": 1.0, "host": "here", "finished_at": datetime(2025, 1, 1, tzinfo=UTC)}


def row(spec: RunSpec, **ending: object) -> dict[str, object]:
    given = {"status": "passed", "reason": "passage", "steps": 3, "accuracy": 1.0, "id_mse": 0.1, "ood_mse": 0.1}
    return make_row(spec, task_version="1", fixed_count=0, **DONE | given | ending)


SPEC = RunSpec(
    task="trainables.bumps:BumpTask",
    dataset="bumps",
    N=8,
    data_count=3,
    seed=0,
    decoder="mlp",
    width=4,
    options=(("sigma", 1.0), ("centres", "integer"), ("absent", "zero"), ("polarity", "bright"), ("tolerance", 1)),
)
PART = parquet_bytes(encode([row(SPEC), row(SPEC.with_count(4), status="missed")]))


@pytest.mark.slow(30)
def test_random_command_lines() -> None:
    seen: Counter[str] = Counter()

    @settings(LOOK, max_examples=many(200, 1300))
    @given(lines())
    @example(["scaling", *SMALL["scaling"], "--task", "sys:exit", "--dry-run"])
    @example(["scaling", *SMALL["scaling"], "--task", "builtins:input", "--dry-run"])
    @example(["scaling", *SMALL["scaling"], "--store", "\udcff", "--dry-run"])
    @example(["scaling", *SMALL["scaling"], "--out", "x" * 300, "--dry-run"])
    @example(["scaling", *SMALL["scaling"], "--seeds", "9" * 12, "--dry-run"])
    @example(["scaling", *SMALL["scaling"], "--width", "9" * 12, "--dry-run"])
    @example(["scaling", *SMALL["scaling"], "--max-steps", "9" * 12, "--dry-run"])
    @example(["encodings", *SMALL["encodings"], "--sigma", "1e-320", "--dry-run"])
    @example(["scaling", *SMALL["scaling"], "--option", "tolerance=" + "9" * 400, "--dry-run"])
    @example(["regularization", *SMALL["regularization"], "--epochs", "2147483647", "--dry-run"])
    @example(["rotation", *SMALL["rotation"], "--epochs", "2147483647", "--dry-run"])
    @example(["regularization", *SMALL["regularization"], "--batch-size", "2147483647", "--dry-run"])
    @example(["regularization", *SMALL["regularization"], "--sampler", "grid", "--trials", "9" * 12, "--dry-run"])
    @example(["tuning", *SMALL["tuning"], "--seeds", "9" * 12, "--dry-run"])
    @example(["rotation", *SMALL["rotation"], "--angles", "9" * 12, "--dry-run"])
    @example(["objectives", *SMALL["objectives"], "--dataset", "celeba", "--data", "folder", "--dry-run"])
    @example(["objectives", *SMALL["objectives"], "--dataset", "clevrer", "--data", "round", "--dry-run"])
    @example(["objectives", *SMALL["objectives"], "--dataset", "celeba", "--data", "x" * 300, "--dry-run"])
    @example(["objectives", *SMALL["objectives"], "--dataset", "celeba", "--data", "/dev/null", "--dry-run"])
    def each(line: list[str]) -> None:
        check(line, seen)

    each()
    print(seen.total(), "lines:", *seen.most_common(), sep="\n")
    assert 0.25 < seen["done"] / seen.total() < 0.8
    assert len(seen) >= 40, "refusals in many words"


KEY = run_key(SPEC, "1")
READERS: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "analysis.measure": ((), {"--workers": NUMBERS + WORDS, "--store": PATHS}),
    "analysis.report": ((), {"--workers": NUMBERS + WORDS, "--store": PATHS, "--out": PATHS}),
    "analysis.export": (
        ("--csv", "runs.csv"),
        {"--csv": PATHS, "--tensorboard": PATHS, "--where": ("N=8", "status=passed,missed", "seed=" + "9" * 30, "N", *WORDS)},
    ),
    "orchestrator.again": (
        (KEY[:9], "--dry-run"),
        {"--into": PATHS, "--close": NUMBERS, "--task": TASKS, "--program": WORDS, "--data": PATHS, "--workers": NUMBERS},
    ),
}
"""Commands that read a store, what makes a line of each valid, and some of their options."""


@st.composite
def lines_of_readers(draw: DrawFn) -> list[str]:
    """Lines of the commands that read a store; it has no weights."""
    name = draw(st.sampled_from(sorted(READERS)))
    words, known = READERS[name]
    for _ in range(draw(st.sampled_from((0, 1, 1, 2)))):
        option = draw(st.sampled_from(sorted(known)))
        words += (option, draw(st.sampled_from(known[option])))
    stray = st.sampled_from(((), (), ("--verbose",), ("--frobnicate",), ("stray",), ("--help",)))
    return [name, "--store", "store", *words, *draw(stray)]


@pytest.mark.slow(8)
def test_random_lines_of_commands_that_read_a_store() -> None:
    seen: Counter[str] = Counter()

    @settings(LOOK, max_examples=many(50, 150))
    @given(lines_of_readers())
    @example(["analysis.report", "--store", "store", "--out", "file"])
    @example(["analysis.report", "--store", "store", "--out", "file/below"])
    @example(["analysis.report", "--store", "store", "--out", "nowhere"])
    @example(["analysis.export", "--store", "store", "--csv", "round"])
    @example(["analysis.export", "--store", "store", "--csv", "x" * 300])
    @example(["analysis.export", "--store", "store", "--tensorboard", "x" * 300])
    @example(["analysis.export", "--store", "store", "--csv", "/dev/null"])
    @example(["orchestrator.again", KEY, "--store", "store", "--into", "round", "--dry-run"])
    @example(["orchestrator.again", KEY, "--store", "store", "--into", "x" * 300, "--dry-run"])
    def each(line: list[str]) -> None:
        check(line, seen)

    each()
    assert seen["done"] >= many(5, 20)
    assert len(seen) >= many(8, 12), seen


def idx(magic: int, sizes: list[int], content: bytes) -> bytes:
    return struct.pack(f">{1 + len(sizes)}I", magic, *sizes) + content


IMAGES = idx(2051, [3, 28, 28], bytes(range(256)) * 9 + bytes(48))
LABELS = idx(2049, [3], bytes([4, 4, 7]))
BOMB = gzip.compress(bytes(1 << 20)) * 4096
"""Four gigabytes of zeros in four million bytes."""


@st.composite
def idx_files(draw: DrawFn, good: bytes, dimensions: int) -> bytes:
    """A good file, or one with its bytes, header or packing spoiled."""
    size = st.sampled_from((0, 1, 3, 28, 60_000, 2**31, 2**32 - 1))
    sizes = st.lists(size, min_size=dimensions, max_size=dimensions)
    headers = st.builds(idx, st.sampled_from((2049, 2051, 0)), sizes, st.binary())
    cut = st.builds(lambda end: good[:end], st.integers(0, len(good)))
    longer = st.builds(lambda more: good + more, st.binary(max_size=9))
    kinds = st.sampled_from((*[st.just(good)] * 5, headers, cut, longer, st.binary(max_size=99)))
    content = draw(draw(kinds))
    if draw(st.booleans()):
        packed = gzip.compress(content)
        end = draw(st.sampled_from((b"", b"", b"garbage", None)))
        content = packed[: draw(st.integers(2, len(packed)))] if end is None else packed + end
    return content


@pytest.mark.slow(8)
def test_random_files_of_mnist() -> None:
    seen: Counter[str] = Counter()

    @settings(LOOK, max_examples=many(60, 200))
    @given(idx_files(IMAGES, 3), idx_files(LABELS, 1))
    @example(gzip.compress(IMAGES[:16]) + BOMB, LABELS)
    @example(idx(2051, [2**32 - 1] * 3, b""), LABELS)
    def each(images: bytes, labels: bytes) -> None:
        with workplace() as folder:
            for name, content in (("train-images-idx3-ubyte", images), ("train-labels.idx1-ubyte.gz", labels)):
                (folder / "here" / "folder" / name).write_bytes(content)
            before = contents(folder)
            code, out, err = attempt(["rotation", *MNIST])
            assert contents(folder) == before
            if code == 2:
                check_refused(out, err)
            else:
                assert (code, err) == (0, "")
        seen["done" if code == 0 else re.sub(r"\d+", "#", err.partition("byte")[2])[:25]] += 1

    each()
    assert seen["done"] >= many(2, 15)
    assert len(seen) >= 7


MNIST = ("--mnist", "folder", "--width", "4", "--seeds", "1", "--angles", "40", "--epochs", "1", "--dry-run")
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.lists(st.integers(), max_size=2)
NAMED = st.dictionaries(st.text(max_size=9), ANYTHING, max_size=3)


@pytest.mark.slow(5)
def test_random_dicts_are_a_spec_or_a_value_error() -> None:
    seen: Counter[str] = Counter()

    @settings(LOOK, max_examples=many(120, 240))
    @given(
        st.dictionaries(st.sampled_from([*SPEC.to_dict(), "more"]), ANYTHING | NAMED, max_size=3),
        st.sets(st.sampled_from(sorted(SPEC.to_dict())), max_size=1),
        st.sampled_from((True, True, True, False)),
    )
    @example({"options": {"sigma": float("nan")}}, set(), True)
    @example({"options": [1]}, set(), True)
    @example({"max_steps": 10**12}, set(), True)
    @example({"lr": 10**400}, set(), True)
    @example({"dataset": None}, set(), True)
    @example({}, {"seed"}, False)
    def each(changed: dict[str, object], left_out: set[str], whole: bool) -> None:
        fields = {name: v for name, v in (SPEC.to_dict() | changed).items() if whole or name not in left_out}
        try:
            spec = RunSpec.from_dict(fields)
        except ValueError as error:
            seen[str(error).split()[0]] += 1
            return
        seen["a spec"] += 1
        again = RunSpec.from_dict(spec.to_dict())
        assert again == spec
        assert run_key(again, "1") == run_key(spec, "1")
        assert encode([row(spec)]).num_rows == 1

    each()
    assert seen["a spec"] >= many(5, 20)
    assert len(seen) >= many(8, 12)


def planned_spec(dataset: str) -> RunSpec:
    """A run that `STORED` asks for."""
    holdout, options = ("random", SPEC.options) if dataset == "bumps" else ("center", SPEC.options)
    return RunSpec(
        task=SPEC.task, dataset=dataset, N=8, data_count=20, seed=0, decoder="mlp", width=4, holdout=holdout, options=options
    )


STORED = ("scaling", *SMALL["scaling"], "--dry-run", "--store", "store")


@st.composite
def parts(draw: DrawFn) -> bytes:
    """A part of one to three rows that the plan of STORED looks at, ended in any way, whole or spoiled."""
    number = st.none() | st.floats() | st.floats(0, 1)
    rows = [
        row(
            planned_spec(draw(st.sampled_from(("bumps", "stripes+bumps")))).with_count(draw(st.integers(0, 60))),
            status=draw(st.sampled_from(STATUSES)),
            reason=draw(st.sampled_from(("passage", "budget", "converged", "exception"))),
            steps=draw(st.integers(0, 2**31 - 1)),
            seconds=draw(st.floats(0, 1e6)),
            **{name: draw(number) for name in ("accuracy", "id_mse", "ood_mse", "loss")},
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    part = parquet_bytes(encode(rows))
    spoiled = draw(st.sampled_from(("no", "no", "no", "cut", "flipped", "junk", "foreign", "newer", "newer")))
    if spoiled == "cut":
        return part[: draw(st.integers(0, len(part)))]
    if spoiled == "flipped":
        at = draw(st.integers(0, len(part) - 1))
        return part[:at] + bytes([part[at] ^ draw(st.integers(1, 255))]) + part[at + 1 :]
    if spoiled in ("foreign", "newer"):
        version = {} if spoiled == "foreign" else {"orchestrator.schema": "99"}
        table = pa.table({"x": [1]}).replace_schema_metadata(version)
        pq.write_table(table, buffer := pa.BufferOutputStream())
        return buffer.getvalue().to_pybytes()
    return draw(st.binary(max_size=99)) if spoiled == "junk" else part


@pytest.mark.slow(5)
def test_random_stores() -> None:
    seen: Counter[str] = Counter()
    names = st.sampled_from(("a.parquet", "b.parquet", "runs-1.parquet", "notes.txt", "ünï.parquet"))

    @settings(LOOK, max_examples=many(60, 200))
    @given(st.dictionaries(names, parts(), max_size=3), st.sampled_from((None, None, "a folder", "a broken link")))
    def each(files: dict[str, bytes], more: str | None) -> None:
        with workplace() as folder:
            runs = folder / "here" / "store" / "runs"
            for name, content in files.items():
                (runs / name).write_bytes(content)
            if more == "a folder":
                (runs / "c.parquet").mkdir()
            elif more:
                (runs / "c.parquet").symlink_to("missing")
            before = contents(folder)
            code, out, err = attempt(list(STORED))
            assert contents(folder) == before
            if code == 2:
                check_refused(out, err)
                assert "schema 99" in err
            else:
                assert (code, err) == (0, "")
        seen["newer" if code else "left out" if "left out" in out else "whole"] += 1

    each()
    assert min(seen[kind] for kind in ("newer", "left out", "whole")) >= many(1, 5)
