"""The objectives study: which generators it trains, what it is refused, what it shows as they go, and a small one as a user
runs it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from analysis.remake import search_of
from analysis.report.page import Report
from analysis.report.studies import studies_of
from analysis.report.told import ANSWERED, Around
from analysis.results import Results
from orchestrator import generators as of_generators
from orchestrator import objectives
from orchestrator.command.cli import run, typed
from orchestrator.command.progress import Running
from orchestrator.command.stages import Stages
from orchestrator.engine import estimate
from orchestrator.generator_study import GeneratorStudy
from orchestrator.searches import Rows
from orchestrator.store import MeasureTable, ResultStore, make_row, save_question
from orchestrator.store.measures import encode
from tests.analysis.made_objectives import GOOD, curve, generator_row, parent_rows, storable
from tests.conftest import Command, check_refusal, read_rows
from tests.orchestrator.test_grid_studies import WHERE
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.tiers import TIERS
from trainables.needs import Tasks

SMALL = ("--tier", "smoke", "--seeds", "1", "--workers", "2", "--steps", "20", "--option", "probe_steps=20", "--option",
         "tokenizer_steps=20")  # fmt: skip


def study_of(words: str, monkeypatch: pytest.MonkeyPatch) -> GeneratorStudy:
    found: list[GeneratorStudy] = []
    monkeypatch.setattr(of_generators, "launch", lambda study, *_: found.append(study) or 0)
    assert run(objectives.app, words.split()) == 0
    return found[0]


def shown(table: RenderableType) -> list[list[str]]:
    """The lines of what is printed, those of tables as their cells."""
    console = Console(width=160, file=StringIO())
    console.print(table)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    cells = (line.strip("│┃").split("│" if "│" in line else "┃") for line in lines if line[0] not in "┏┡└")
    return [[cell.strip() for cell in line] for line in cells]


def about(study: GeneratorStudy, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(spec.value(name) for name in names) for spec in study.specs]


def test_the_core_study_has_nine_generators_of_the_toy_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of("--precision float32", monkeypatch)
    settings = [("dit", "vae"), ("dit", "vq"), ("maskgit", "vq")]
    assert about(study, "decoder", "encoding", "seed") == [(*one, seed) for seed in range(3) for one in settings]
    assert study.notes == ["left out: maskgit on vae, as maskgit guesses codes, and a vae has none"]
    for spec in study.specs:
        figures = ("radius_large", "radius_small", "radius_jitter", "colour_jitter", "background")
        assert tuple(map(spec.value, figures)) == (0.62, 0.5, 0.04, 0.05, 1.0)
        assert tuple(map(spec.value, ("network", "stride", "channels"))) == ("linear", 4, 12)
        assert (spec.N, spec.data_count, spec.max_steps, spec.lr, spec.schedule) == (24, 20_000, 4800, 3e-3, "constant")
        assert tuple(map(spec.value, ("fit", "predicts", "ema", "tokenizer_images"))) == ("seen", "x0", 0.998, 20_000)
        assert tuple(map(spec.value, ("probe_torn", "probe_steps"))) == (0.2, 4000)
        assert spec.max_steps == TIERS["toy"].run["max_steps"]
    assert study.answer(Rows())["settings"]["families"] == ["dit", "maskgit"]


def test_a_setting_is_varied_where_it_means_something(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--tier smoke --seeds 2 --first-seed 7 --codes 8,16 --smoothing 0,0.1 --predicts x0,eps --noise linear --fit all "
    words += "--steps 20,40,20"
    study = study_of(words, monkeypatch)
    assert {spec.seed for spec in study.specs} == {7, 8}
    names = ("decoder", "encoding", "codes", "smoothing", "predicts", "max_steps", "seed")
    of = [one[:-1] for one in about(study, *names) if one[-1] == 7]
    wanted = [("dit", "vae", 16, 0.0, predicts, steps) for predicts in ("x0", "eps") for steps in (20, 40)]
    wanted += [("dit", "vq", codes, 0.0, p, steps) for codes in (8, 16) for p in ("x0", "eps") for steps in (20, 40)]
    wanted += [("maskgit", "vq", codes, s, "x0", steps) for codes in (8, 16) for s in (0.0, 0.1) for steps in (20, 40)]
    assert sorted(of) == sorted(wanted)
    assert {spec.value("fit") for spec in study.specs} == {"all"}
    assert study.columns == ("decoder", "encoding", "codes", "predicts", "noise", "smoothing", "max_steps")
    monkeypatch.setattr(estimate, "step_seconds", lambda *_: 0.01)
    lines = shown(study.plan(Rows())[0])
    assert lines[1][:7] == ["family", "tokenizer", "codes", "predicts", "noise", "smoothing", "steps"]
    assert ["dit", "vae", "", "eps", "linear", "", "40", "0", "2", "40"] in [line[:10] for line in lines]
    assert ["maskgit", "vq", "8", "", "", "0.1", "20", "0", "2", "20"] in [line[:10] for line in lines]


def test_a_setting_of_several_families_is_varied_in_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--tier smoke --seeds 1 --families dit,maskgit,givt,mar --tokenizers vq --option mixture=4 --option head_depth=1"
    study = study_of(f"{words} --predicts x0,eps --noise linear --rounds 2,4 --temperature 1,2", monkeypatch)
    found = about(study, "decoder", "predicts", "rounds", "temperature")
    of_dit = [("dit", predicts, 4, 3.0) for predicts in ("x0", "eps")]
    masked = [(family, "x0", rounds, t) for family in ("maskgit", "givt") for rounds in (2, 4) for t in (1.0, 2.0)]
    of_mar = [("mar", predicts, rounds, 3.0) for predicts in ("x0", "eps") for rounds in (2, 4)]
    assert sorted(found) == sorted([*of_dit, *masked, *of_mar])
    assert set(about(study, "mixture", "head_depth")) == {(4, 1)}
    assert {study.task.model(spec).mixture for spec in study.specs if spec.decoder == "givt"} == {4}


def test_an_option_that_does_nothing_for_some_runs_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--tier smoke --seeds 1 --families dit,givt --tokenizers vae,vq --network linear,conv"
    plain = study_of(words, monkeypatch)
    assert plain.notes == []
    study = study_of(f"{words} --option mixture=4 --option tokenizer_width=8 --option width=16", monkeypatch)
    assert study.notes == [
        "--option mixture is for family givt: it does nothing for dit",
        "--option tokenizer_width is for network conv: it does nothing for linear",
    ]
    assert set(about(study, "mixture", "tokenizer_width")) == {(4, 8)}, "runs are those that they have been"
    assert len(study.specs) == len(plain.specs)


def test_an_option_that_says_what_is_so_in_any_case_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, more in (
        ("--families maskgit", "--predicts x0 --noise zero-snr --input-scale 0.5"),
        ("--families dit --tokenizers vae", "--smoothing 0 --temperature 3 --rounds 4 --codes 16"),
    ):
        plain, given = (study_of(f"--tier smoke --seeds 1 {one}", monkeypatch) for one in (words, f"{words} {more}"))
        assert (plain.specs, plain.notes) == (given.specs, given.notes)


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("--option conditioning=dropout", "conditioning dropout, as claims ask for: conditioning full"),
        ("--option jepa=0.6", "jepa 0.6, as claims ask for: without jepa"),
        (
            "--option conditioning=both --option jepa=0.6",
            "conditioning both, jepa 0.6, as claims ask for: conditioning full, without jepa",
        ),
        ("--option conditioning=full --option jepa=0", None),
        ("--option width=64 --families givt", None),
    ],
)
def test_the_plan_says_of_which_runs_no_claim_of_the_study_is(
    words: str, note: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [one for one in study_of(f"--tier smoke --seeds 1 {words}", monkeypatch).notes if one.startswith("no claim")]
    assert notes == ([] if note is None else [f"no claim of this study is about runs with {note}"])


@pytest.mark.parametrize(
    ("split", "lacks"),
    [
        ("000,011", "a plus (the first bit is 1)"),
        ("000,011 --shape square", "a square (the first bit is 1)"),
        ("000,011 --shape plus,triangle", "a plus or a triangle (the first bit is 1)"),
        ("111", "a disc (the first bit is 0), a large figure (the second bit is 0) or a red figure (the third bit is 0)"),
        ("100,101", "a disc (the first bit is 0) or a small figure (the second bit is 1)"),
        ("000,010", "a plus (the first bit is 1) or a blue figure (the third bit is 1)"),
        ("000,011,101", ""), ("train1", ""), ("fail1", ""),
    ],
)  # fmt: skip
def test_the_plan_says_what_no_seen_composition_has(split: str, lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"--tier smoke --seeds 1 --families dit --split {split}", monkeypatch)
    so = "no model can learn what it never sees, so add such compositions to --split"
    assert [note for note in study.notes if "of level" not in note] == [f"no seen composition has {lacks}: {so}"] * bool(lacks)


@pytest.mark.parametrize(("split", "is_told"), [("fail1", True), ("000,011,101,110", True), ("train1", False), ("000", False)])
def test_the_plan_says_that_no_composition_is_of_level_2(split: str, is_told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for family, left in (("maskgit", "only claim 4, categorical-forgets,"), ("dit", "no claim that is about these runs")):
        study = study_of(f"--tier smoke --seeds 1 --families {family} --tokenizers vq --split {split}", monkeypatch)
        told = f"no composition is of level 2 in this split: {left} can have a verdict"
        assert [note for note in study.notes if "level 2 in" in note] == [told] * is_told


def test_a_list_of_what_a_name_of_a_split_means_is_that_split(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(split: str) -> Any:
        return study_of(f"--tier smoke --seeds 1 --families dit --tokenizers vq --split {split}", monkeypatch)

    for listed, name in (("000,100,010,001", "train1"), ("000,100,010,111", "fail1")):
        assert (of(listed).specs, of(listed).notes) == (of(name).specs, of(name).notes)
        assert of(listed).settings["split"] == name
    other = of("100,000,010,001")
    assert other.specs[0].holdout == "100,000,010,001"
    assert other.notes == [
        "--split 100,000,010,001 is train1 in another order, and its runs are trained beside those of the name: type train1 to "
        "share them"
    ]


def test_the_plan_says_which_numbers_of_a_token_have_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--tier smoke --seeds 1 --families dit --channels 48,100 --network linear,conv"
    told = "--channels 100 is more than a linear tokenizer can use: a patch of 4 x 4 pixels has 48 numbers"
    assert study_of(words, monkeypatch).notes == [told]


@pytest.mark.parametrize("family", ["givt", "mar"])
def test_masked_continuous_families_learn_either_tokens(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"--tier smoke --seeds 1 --families {family}", monkeypatch)
    assert about(study, "decoder", "encoding") == [(family, "vae"), (family, "vq")]
    assert study.notes == []


def test_options_reach_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--tier smoke --families dit --tokenizers vq --split 000,011 --shape square --pool 32 --lr 0.01 --batch-size 8"
    more = "--network conv --seeds 1 --option width=16 --option looks=2 --radius-small 0.4"
    study = study_of(f"{words} {more}", monkeypatch)
    (spec,) = study.specs
    names = ("holdout", "pair", "data_count", "lr", "batch_size", "network", "channels", "width", "looks", "radius_small")
    assert tuple(map(spec.value, names)) == ("000,011", "square", 32, 0.01, 8, "conv", 8, 16, 2, 0.4)
    assert study.settings["network"] == ["conv"]
    assert study.settings["shape"] == ["square"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--families gan", "--families 'gan' is unknown: choose dit, maskgit, givt or mar"),
        ("--tokenizers vae,vq-gan", "--tokenizers 'vq-gan' is unknown: choose vq or vae"),
        ("--families maskgit --tokenizers vae", "--families maskgit needs codes, and a vae has none: choose --tokenizers vq"),
        ("--tier huge", "--tier 'huge' is unknown: choose smoke, coarse, toy, long, gpu or paper"),
        ("--split 000,00", "--split must be train1 or fail1, or list some of the eight compositions"),
        ("--shape star", "shape 'star' is unknown: choose plus, triangle or square"),
        ("--codes 1", "codes must be at least 2, not 1"),
        ("--codes 65536", "codes must be at most 36864, the vectors that they start from here, not 65536"),
        ("--tier smoke --families dit --codes 16385", "codes must be at most 16384, the vectors that they start from here"),
        ("--codes 8,", "--codes takes a whole number, not ''"),
        ("--steps 0", "steps must be at least 1, not 0"),
        ("--stride 5", "stride must be one of 2, 3, 4, 6, 8, not 5"),
        ("--stride 6 --tier smoke", "--stride 6 does not divide the 16 pixels of --tier smoke: choose 2, 4 or 8"),
        ("--stride 4,3 --tier smoke", "--stride 3 does not divide the 16 pixels of --tier smoke: choose 2, 4 or 8"),
        ("--stride 3 --tier paper", "--stride 3 does not divide the 28 pixels of --tier paper: choose 2 or 4"),
        ("--radius-small 0.6", "--radius-small + 2 --radius-jitter must be under --radius-large"),
        ("--option codes=3", "--option codes has an option of its own: use --codes"),
        ("--option pair=plus", "--option pair has an option of its own: use --shape"),
        ("--option holdout=fail1", "--option holdout has an option of its own: use --split"),
        ("--families maskgit --option ddim_steps=50", "--option ddim_steps is for family dit or mar, not maskgit: omit it, or"),
        ("--option mixture=4", "--option mixture is for family givt, not dit or maskgit: omit it, or choose --families givt"),
        ("--option dropout=0.5", "--option dropout is for conditioning dropout or both, not full: omit it, or choose --opt"),
        ("--families maskgit --predicts x0 --noise linear", "--noise is for family dit or mar, not maskgit: omit it, or choo"),
        ("--families maskgit --input-scale 1", "--input-scale is for family dit or mar, not maskgit: omit it, or choose --fam"),
        ("--families dit --temperature 1", "--temperature is for family maskgit or givt, not dit: omit it, or choose --famili"),
        ("--families dit --smoothing 0,0.1", "--smoothing is for family maskgit, not dit: omit it, or choose --families mas"),
        ("--tokenizers vae --codes 32,64", "--codes is for tokenizer vq, not vae: omit it, or choose --tokenizers vq"),
        ("--option probe=linear --option probe_width=64", "--option probe_width is for probe cnn, not linear: omit it, or ch"),
        ("--option tokenizer_width=64", "--option tokenizer_width is for network conv, not linear: omit it, or choose --ne"),
        ("--families givt --option jepa=0.6", "--option jepa is for family dit or maskgit, not givt: omit it, or choose --fa"),
        ("--option sigma=1", "this task has no option 'sigma': its options are faint, "),
        ("--option family=mar", "'family': perhaps --families, an option of this command, is meant; its options are faint, "),
        ("--option tokenizer=vq", "'tokenizer': perhaps --tokenizers, an option of this command, is meant; its options are "),
        *((f"--option {word}=1", f"this task has no option {word!r}: its options are ") for word in ("rate", "time", "count")),
        ("--option tokenizer_images=2147483647", "learn from 2147483647 pictures: of 24 x 24 pixels it may learn from 8 to 37"),
        ("--seeds 1000 --codes 2,3,4,5,6 --channels 1,2,3,4,5,6", "120000 runs are too many (at most 100000)"),
        ("--lr 0", "lr must be above 0"),
        ("--schedule linear", "--schedule 'linear' is unknown: choose constant or cosine"),
        ("--precision tf32", "needs a GPU"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_writes_nothing(
    words: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(objectives.app, words.split(), hint, tmp_path, capsys)


def test_the_set_of_options_is_frozen() -> None:
    text = re.sub(r"\x1b\[[\d;]*m", "", CliRunner().invoke(objectives.app, ["--help"], env={"COLUMNS": "160"}).output)
    found = set(re.findall(r"^│ \*? *(--[A-Za-z][\w-]*)", text, re.MULTILINE))
    found |= set(re.findall(r"^│ --[\w-]+ +(--no-[\w-]+)", text, re.MULTILINE))
    assert found == WHERE | {
        *("--families", "--tokenizers", "--tier", "--split", "--seeds", "--first-seed", "--network", "--codes", "--fit"),
        *("--stride", "--channels", "--embedding", "--predicts", "--noise", "--input-scale", "--smoothing", "--temperature"),
        *("--rounds", "--shape", "--dataset", "--data"),
        *("--radius-large", "--radius-small", "--radius-jitter", "--colour-separation", "--colour-jitter", "--centre-jitter"),
        *("--background", "--option", "--pool", "--steps", "--batch-size", "--lr", "--schedule"),
        *("--weight-decay", "--precision"),
    }


@pytest.mark.usefixtures("quick_oracle")
def test_the_table_shows_what_runs_draw_as_they_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    study = study_of(f"--tier smoke --store {tmp_path} --out {tmp_path / 'out'}", monkeypatch)
    dit, maskgit = study.specs[1], study.specs[2]
    rows = Rows([*parent_rows(dit), generator_row(dit, seen=1.0, level1=0.9, level2=0.8, oracle2=0.6)])
    latest = {"both_seen": 0.7, "both_level1": 0.5, "both_level2": 0.1, "probe_level2": 0.3, "oracle_level2": 0.2}
    running = {"a": Running(study.specs[4], 40, 0.5, latest), "b": Running(maskgit, 20)}
    running["c"] = Running(study.specs[5], 10, 0.1, latest)
    lines = shown(study.table(rows, running))
    header, *settings = lines[1:5]
    assert header[:7] == ["family", "tokenizer", "runs", "step", "seen", "level 1", "level 2"]
    assert header[7:] == ["level 2 by probe", "level 2 by oracle"]
    assert settings == [
        ["dit", "vae", "0/3", "", "", "", "", "", ""],
        ["dit", "vq", "1/3 +1", "40", "0.85", "0.70", "0.35", "0.55", "0.40"],
        ["maskgit", "vq", "0/3 +2", "10", "0.70", "0.50", "0.10", "0.30", "0.20"],
    ]
    told = [line[0] for line in lines[5:]]
    assert told[0] == "gate 1, both judges read real pictures: met by 1 of 1 runs (probe real 1.00, oracle real 1.00 at worst)"
    assert "claim 1, tokenizer-does-not-decide: not enough: there are no runs of dit on vae" in told
    measuring = typed(["python", "-m", "analysis.measure", "--store", str(tmp_path)])
    assert " ".join(" ".join(told).split()).endswith(f"gate 3 is known after: {measuring}, then this command again")
    assert study.line(generator_row(dit, level2=0.8)) == (
        "dit on vq, seed 0: finished (seen 1.00, level 1 1.00, level 2 0.80, level 2 by probe 0.80, level 2 by oracle 0.80, "
        "1000 steps, 60.0 s)"
    )
    failed = make_row(dit, task_version=GeneratorTask.version, fixed_count=0, status="failed", reason="exception")
    assert study.line(failed) == "dit on vq, seed 0: failed (0 steps, 0.0 s)"
    assert study.line(generator_row(dit, level2=0.8)).count("seed") == 1


@pytest.mark.slow(2)
@pytest.mark.usefixtures("quick_oracle")
def test_what_was_measured_of_tokens_completes_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"--tier smoke --store {tmp_path} --out {tmp_path / 'out'}", monkeypatch)
    found = [generator_row(spec, level2=0.1 if spec.decoder == "maskgit" else 0.9) for spec in study.specs]
    rows = Rows([*found, *(parent for spec in study.specs for parent in parent_rows(spec))])
    verdicts = {one["claim"]: one["verdict"] for one in study.answer(rows)["verdicts"]}
    assert verdicts["continuous-beats-categorical"] == "not enough"
    assert study.write(rows, tmp_path / "out", force=False) == []

    class Quantity:
        layer = array = None

        def __init__(self, name: str, value: float) -> None:
            self.name, self.value = name, value

    table, tasks = MeasureTable(tmp_path), Tasks(GeneratorTask())
    for key in {tasks.parents(spec)["tokenizer"] for spec in study.specs if spec.encoding == "vq"}:
        table.save(key, "tokens", 1, encode(key, "tokens", 1, [Quantity(*one) for one in GOOD.items()], 0.1))
    again = {one["claim"]: one["verdict"] for one in study.answer(rows)["verdicts"]}
    assert again == {
        "tokenizer-does-not-decide": "pass", "continuous-beats-categorical": "pass", "masking-is-not-it": "not enough",
        "categorical-forgets": "fail", "abrupt-on-vq": "not enough",
    }  # fmt: skip
    files = study.write(rows, tmp_path / "out", force=True)
    assert len(files) == 6
    told = json.loads((tmp_path / "out" / "objectives.json").read_text())
    assert {one["claim"]: one["verdict"] for one in told["verdicts"]} == again
    assert told["settings"]["tier"] == "smoke"
    assert curve(0.5)[0] == 0.5
    few = [Quantity(*one) for one in {**GOOD, "unseen_pairs_111": 0.3}.items()]
    for key in (row["key"] for row in found if row["decoder"] == "maskgit"):
        table.save(key, "generated", 1, encode(key, "generated", 1, few, 0.1))
    own = {one["claim"]: one["told"] for one in study.answer(rows)["verdicts"]}
    told_of = "maskgit on vq has 3 finished seeds of 3, gate 3 is not met by 3"
    assert own["continuous-beats-categorical"] == told_of, "the pictures that it has seen are fewer"


@pytest.mark.usefixtures("quick_oracle")
def test_the_table_does_not_wait_for_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(MeasureTable, "rows", lambda *_: asked.append("read") or [])
    monkeypatch.setattr(MeasureTable, "close", lambda _: asked.append("closed"))
    study, rows = study_of(f"--tier smoke --store {tmp_path}", monkeypatch), Rows()
    study.table(rows, {})
    rows.add(generator_row(study.specs[0]))
    study.table(rows, {})
    assert asked == []
    for take_in in (study.read_measures, lambda: study.write(rows, tmp_path, force=False), lambda: study.answer(rows)):
        take_in()
        study.table(rows, {})
        assert asked == ["read", "closed"]
        asked.clear()


@pytest.mark.slow(2)
@pytest.mark.usefixtures("quick_oracle")
def test_a_seed_whose_tokenizer_misses_its_gate_is_replaced_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"--tier smoke --store {tmp_path} --out {tmp_path / 'out'}", monkeypatch)
    rows = Rows()
    while asked := study.search.propose(rows, 1):
        [spec] = asked
        misses = spec.encoding == "vq" and spec.seed == 1
        for parent in parent_rows(spec):
            bad = misses and parent["task"].endswith("TokenizerTask")
            rows.add({**parent, "status": "missed"} if bad else parent)
        if not misses:
            rows.add(generator_row(spec, level2=0.1 if spec.decoder == "maskgit" else 0.9))
    answer = study.answer(rows)
    vae, *vq = ([one["seed"] for one in answer["runs"] if (one["family"], one["tokenizer"]) == setting]
                for setting in (("dit", "vae"), ("dit", "vq"), ("maskgit", "vq")))  # fmt: skip
    assert (vae, *map(sorted, vq)) == ([0, 1, 2], [0, 2, 3], [0, 2, 3])
    about = {"tokenizer": "vq", "seed": 1, "by": 3}
    assert answer["replaced"] == [{"family": "dit", **about}, {"family": "maskgit", **about}]
    line = "seed 3 is in the place of seed 1 (2 settings), whose probe or tokenizer misses its gate"
    assert [line] in shown(study.table(rows, {}))
    assert [cells[2] for cells in shown(study.table(rows, {}))[2:5]] == ["3/3"] * 3
    assert study.answered(rows)
    with ResultStore(tmp_path) as store:
        save_question(store, study.question)
        store.append(storable(rows))
    [told], notices = studies_of(Results.of(tmp_path), Around(dict, lambda key: b""))
    assert (notices, told.state) == ([], ANSWERED)
    assert line in told.lines
    of_tokens = {row["key"]: GOOD for row in rows if row["task"].endswith("TokenizerTask")}
    [with_verdict], _ = studies_of(Results.of(tmp_path), Around(lambda: of_tokens, lambda key: b""))
    decided = [": not enough: " not in one for one in with_verdict.lines if one.startswith("claim")]
    assert decided == sorted(decided, reverse=True), "the card shows the first lines"
    assert set(decided) == {True, False}
    assert told.keys == {row["key"] for row in study.search.runs(rows)}
    assert Report.of((), Results.of(tmp_path), [told]).others == 1, "the tokenizer that missed; the others are needed"
    others = [generator_row(spec) for spec in study.specs if (spec.encoding, spec.seed) == ("vq", 1)]
    with ResultStore(tmp_path) as store:
        stages = Stages(study.task, study.search, study.question, store, Rows([*rows, *others]), gates=True)
        assert stages.search.finished(rows)
        assert stages.rests_on() == [], "runs of others, without gates, that are not counted"
    with_all = study_of(f"--tier smoke --no-gates --store {tmp_path}", monkeypatch)
    assert sorted(spec.seed for spec in with_all.search.propose(rows, 10)) == [1, 1]


@pytest.mark.parametrize(
    ("words", "spares"),
    [("", 3), ("--seeds 5", 5), ("--no-gates", 0), ("--first-seed 95", 2), ("--first-seed 97", 0), ("--first-seed 98", 3)],
)
def test_there_are_as_many_spares_as_seeds_but_none_that_no_claim_counts(
    words: str, spares: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert study_of(f"--tier smoke {words}", monkeypatch).search.spares == spares


def missed_tokenizers(study: GeneratorStudy, *seeds: int) -> list[dict[str, Any]]:
    """The parents of all runs of the study, of which tokenizers of codes with these seeds have missed."""
    parents = [row for spec in study.specs for row in parent_rows(spec)]
    return [
        {**row, "status": "missed"}
        if row["task"].endswith("TokenizerTask") and row["encoding"] == "vq" and row["seed"] in seeds
        else row
        for row in parents
    ]  # fmt: skip


@pytest.mark.usefixtures("quick_oracle")
def test_what_is_told_is_of_the_study_and_not_of_others_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = study_of("--tier smoke --families maskgit --tokenizers vq --codes 8 --no-gates", monkeypatch)
    own = study_of("--tier smoke --families maskgit --tokenizers vq", monkeypatch)
    foreign = [*map(generator_row, other.specs), *missed_tokenizers(other, 0, 1, 2)]
    rows = [*foreign, *map(generator_row, own.specs), *missed_tokenizers(own)]
    with ResultStore(tmp_path) as store:
        store.append(storable({row["key"]: row for row in rows}.values()))
        stages = Stages(own.task, own.search, own.question, store, Rows(store.rows(where=own.wanted)), gates=True)
        assert stages.rests_on() == []
        assert stages.obstacles() == []
        told = [line for [line] in shown(stages.table("-", {})) if ": " in line]
        assert [line.partition(" (")[0] for line in told] == ["probe: 3 of 3 trained", "tokenizer: 3 of 3 trained"]
        theirs = Stages(other.task, other.search, other.question, store, Rows(store.rows(where=other.wanted)), gates=False)
        assert [one["name"] for one in theirs.rests_on()] == ["tokenizer"] * 3


def test_the_plan_knows_what_other_seeds_need_and_asks_for_no_weights_that_nobody_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of("--tier smoke --families maskgit --tokenizers vq", monkeypatch)
    more = study_of("--tier smoke --families maskgit --tokenizers vq --seeds 5", monkeypatch)
    trained = [generator_row(spec) for spec in more.specs if spec.seed in (0, 2, 4)]
    with ResultStore(tmp_path) as store:
        store.append(storable({row["key"]: row for row in [*trained, *missed_tokenizers(more, 1, 3)]}.values()))
        rows = Rows(store.rows(where=study.wanted))
        stages = Stages(study.task, study.search, study.question, store, rows, gates=True)
        assert [spec.seed for spec in study.search.asked(rows)] == [0, 4, 2]
        assert stages.search.finished(rows)
        assert not store.with_weights()
        plan, work = stages.plan(*study.plan(rows))
        assert [cells[:3] for cells in shown(plan) if cells[0] in ("probe", "tokenizer")] == [
            ["probe", "3", "0"], ["tokenizer", "3", "0"],
        ]  # fmt: skip
        assert not work


@pytest.mark.parametrize("spares", [-1, 1.5, "3", True, 10**9])
def test_a_question_with_impossible_spares_is_refused(spares: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    question = study_of("--tier smoke", monkeypatch).question
    assert question.settings["spares"] == 3
    assert question.name == study_of("--tier smoke --no-gates", monkeypatch).question.name, "one place on the page"
    with pytest.raises(ValueError, match=r"^spares must be a whole number from 0 to 1000, not "):
        search_of(dataclasses.replace(question, settings={**question.settings, "spares": spares}), None, [])


def check_chain(first: Command, tmp_path: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """The answer and the rows of a study of three generators with what they need."""
    assert first.wait() == 0, first.stderr
    answer = json.loads(first.stdout)
    assert [(one["family"], one["tokenizer"], one["status"]) for one in answer["runs"]] == [
        ("dit", "vae", "finished"), ("dit", "vq", "finished"), ("maskgit", "vq", "finished"),
    ]  # fmt: skip
    assert {one["verdict"] for one in answer["verdicts"]} == {"not enough"}
    rows = read_rows(tmp_path)
    assert sorted(task.rpartition(":")[2] for task in rows["task"]) == [
        *["GeneratorTask"] * 3, "ProbeTask", *["TokenizerTask"] * 2,
    ]  # fmt: skip
    assert {path.stem for path in (tmp_path / "results" / "weights").iterdir()} == set(rows["key"])
    out = tmp_path / "results" / "objectives"
    assert len(pd.read_csv(out / "objectives.csv")) == 3
    assert (out / "objectives-curves.png").stat().st_size > 10_000
    assert (out / "objectives-levels.png").stat().st_size > 10_000
    return answer, rows


@pytest.mark.slow(35)
def test_small_studies_train_the_chain_and_train_nothing_twice(here: Callable[..., Command], tmp_path: Path) -> None:
    answer, _ = check_chain(here(*SMALL, "--json", study="objectives"), tmp_path)
    assert all(0 <= one["seen_both"] <= 1 and one["gate_1"] == "not met" for one in answer["runs"])
    told = here(*SMALL, "--conditionings", "full,dropout,both", "--json", study="conditioning")
    assert told.wait() == 0, told.stderr
    answer = json.loads(told.stdout)
    assert [(one["conditioning"], one["status"]) for one in answer["runs"]] == [
        ("full", "finished"), ("dropout", "finished"), ("both", "finished"),
    ]  # fmt: skip
    more = read_rows(tmp_path)
    assert len(more) == 6 + 2, "the probe, the tokenizer and the generator that is told all are those of the first study"
    drawn = more[more["task"].str.endswith("GeneratorTask")]
    assert len({tuple(loss) for loss in drawn["curve_loss"]}) == 5
