"""What follows from the searched setting, and which of its values a task allows, at every data set and value along."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from analysis.figures.scaling import draw
from analysis.report.studies import studies_of
from analysis.report.told import Around
from analysis.results import Results
from orchestrator import scaling
from orchestrator.command.cli import run
from orchestrator.searches import Rows
from orchestrator.store import ResultStore, make_row, save_question
from orchestrator.thresholds import ThresholdStudy
from tests.conftest import check_refusal
from tests.toy import Toy
from trainables.settings import setting
from trainables.spec import Counts, RunSpec

Ask = Callable[[str], ThresholdStudy]


class Plain(Toy):
    """A task of which nothing but the settings matters."""

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=20)

    def data(self, spec: RunSpec) -> Any:
        return self.samples(spec, "none")

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(1, 1)


@dataclass(frozen=True, kw_only=True)
class FollowingSettings:
    dataset: str = setting("flat", words=("flat", "deep"))
    kind: str = setting("plain", words=("plain", "mha"))
    width: int = setting(16, low=1, high=64)
    hidden: int | None = setting(None, low=1)
    spare: int = setting(0, later=True)
    layers: int | None = setting(None, low=1)

    def __post_init__(self) -> None:
        if self.hidden is None:
            object.__setattr__(self, "hidden", 4 * self.width if self.kind == "mha" else 4)
        if self.layers is None:
            object.__setattr__(self, "layers", self.width if self.dataset == "deep" else 1)
        if self.kind == "mha" and self.width < 2:
            raise ValueError(f"width must be at least 2 with mha, not {self.width}")


class Following(Plain):
    """Its hidden units follow from the width with one kind, and its layers on one data set."""

    settings = FollowingSettings


@dataclass(frozen=True, kw_only=True)
class InsideSettings:
    width: int = setting(16, low=1, high=64)
    odd: int | None = setting(None)
    warm: bool = setting(False, later=True)

    def __post_init__(self) -> None:
        if self.odd is None:
            object.__setattr__(self, "odd", self.width % 2)
        if self.width > 50:
            object.__setattr__(self, "warm", True)


class Inside(Plain):
    """What follows from an even width is the same for all of them."""

    settings = InsideSettings


@dataclass(frozen=True, kw_only=True)
class BoundSettings:
    width: int = setting(16, low=1, high=64)
    heads: int = setting(4, low=1)

    def __post_init__(self) -> None:
        if self.width < self.heads:
            raise ValueError(f"width {self.width} is less than heads {self.heads}")


class Bound(Plain):
    """It allows widths from its heads on."""

    settings = BoundSettings


@dataclass(frozen=True, kw_only=True)
class ClippedSettings:
    width: int = setting(16, low=1, high=64)
    heads: int = setting(4, low=1)

    def __post_init__(self) -> None:
        if self.width > 32:
            object.__setattr__(self, "heads", 8)


class Clipped(Plain):
    """It changes the heads that it is given, if it is wide."""

    settings = ClippedSettings


@dataclass(frozen=True, kw_only=True)
class WordSettings:
    heads: int = setting(1, words=(1, 2, 4, 8))
    temp: float = setting(0.5, words=(0.1, 0.5, 1.0))


class Words(Plain):
    """Its numbers are words."""

    settings = WordSettings


@dataclass(frozen=True, kw_only=True)
class ByPlaceSettings:
    dataset: str = setting("a", words=("a", "b"))
    decoder: str | None = setting(None, words=("cnn", "mlp"))
    kind: str = setting("plain", words=("plain", "mha"))
    width: int | None = setting(None, low=1)
    holdout: str | None = setting(None)
    hidden: int | None = setting(None, low=1)
    rate: float | None = setting(None)
    both: int | None = setting(None)
    later: int = setting(0, later=True)
    same: int = setting(3)

    def __post_init__(self) -> None:
        mha, b = self.kind == "mha", self.dataset == "b"
        chosen = {"decoder": "mlp" if mha else "cnn", "width": 256 if mha else 64, "holdout": "box" if mha else "random"}
        chosen |= {"hidden": 16 if mha else 4, "rate": 0.2 if b else 0.1, "both": mha + 2 * b}
        for name, value in chosen.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if mha:
            object.__setattr__(self, "later", 7)


class ByPlace(Plain):
    """What it chooses depends on the kind, on the data set, or on both."""

    settings = ByPlaceSettings


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """The study that a command would launch."""
    found: list[ThresholdStudy] = []
    monkeypatch.setattr(scaling, "launch", lambda study, *_: found.append(study) or 0)

    def study_of(command: str) -> ThresholdStudy:
        assert run(scaling.app, [*shlex.split(command), "--store", str(tmp_path / "store")]) == 0
        return found.pop()

    return study_of


def of(task: type, words: str) -> str:
    return f"--task {__name__}:{task.__name__} {words} --N 8 --seeds 1 --precision float32"


LEAST = "--least width --data-count 3"
FOLLOWS = "the task chooses hidden by width at kind = mha, so more than width would vary: give hidden a value"


@pytest.mark.parametrize(
    ("task", "words", "why"),
    [
        (Following, f"{LEAST} --between 4..64 --datasets flat --along kind=plain,mha", FOLLOWS),
        (Following, f"{LEAST} --between 4..64 --datasets flat --along kind=mha,plain", FOLLOWS),
        (Following, f"{LEAST} --between 4..64", "the task chooses layers by width, so more than width would vary: give layers"),
        (Following, f"{LEAST} --between 4..64 --kind mha --datasets flat", "the task chooses hidden by width, so more"),
        (Following, f"{LEAST} --between 1..64 --datasets flat --along kind=plain,mha", "width must be at least 2 with mha"),
        (Inside, f"{LEAST} --between 4..8", "the task chooses odd by width, so more than width would vary: give odd a value"),
        (Inside, f"{LEAST} --between 4..60 --odd 1", "the task chooses warm by width, so more than width would vary: give"),
        (Bound, f"{LEAST} --between 4..64 --along heads=1,8", "width 4 is less than heads 8"),
        (
            Clipped, f"{LEAST} --between 4..64 --along heads=2,4",
            "the task chooses heads by width at heads = 2, so more than width would vary: with width 64 it is 8, whatever is "
            "given: ask for other values of width",
        ),
        (
            Words, "--least heads --between 1..8 --data-count 3",
            "--least heads may ask for any value of --between, and heads 3, 5, 6 and 7 are unknown: choose 1, 2, 4 or 8; give "
            "a range without others, or ask along them, --along heads=1,2,4,8, in place of --least heads",
        ),
        (Words, "--least heads --between 2..4 --data-count 3", "and heads 3 is unknown: choose 1, 2, 4 or 8; give a range"),
        (
            Words, "--least temp --between 0.1..1.0 --data-count 3 --resolution 0.2",
            "and temp 0.10476, 0.1286, 0.15786, 0.19378, 0.23789 and 6 more are unknown: choose 0.1, 0.5 or 1.0; give a range",
        ),
    ],
)  # fmt: skip
def test_a_value_with_which_a_run_would_be_another_is_refused_at_every_place(
    task: type, words: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(scaling.app, shlex.split(of(task, words)), why, tmp_path, capsys)


@pytest.mark.parametrize(
    ("task", "words", "counts"),
    [
        (Following, f"{LEAST} --between 4..64 --datasets flat", (4, 64)),
        (Following, f"{LEAST} --between 4..64 --datasets flat --along kind=plain,mha --hidden 4", (4, 64)),
        (Following, f"{LEAST} --between 4..64 --layers 2", (4, 64)),
        (Inside, f"{LEAST} --between 4..8 --odd 1", (4, 8)),
        (Bound, f"{LEAST} --between 2..64 --along heads=1,2", (2, 64)),
        (Words, "--least heads --between 1..2 --data-count 3", (1, 2)),
    ],
)
def test_nothing_is_refused_for_what_the_defaults_alone_would_choose(
    task: type, words: str, counts: tuple[int, int], ask: Ask
) -> None:
    assert {(b.counts.low, b.counts.high) for b in ask(of(task, words)).brackets} == {counts}


def test_settings_of_the_answer_say_what_all_runs_have_and_else_at_which_place(ask: Ask) -> None:
    told = ask(of(ByPlace, "--along kind=plain,mha")).settings
    assert told["width"] == {"plain": 64, "mha": 256}
    assert told["holdout"] == {"plain": "random", "mha": "box"}
    assert told["options"] == {
        "hidden": {"plain": 4, "mha": 16}, "rate": {"a": 0.1, "b": 0.2}, "later": {"plain": 0, "mha": 7}, "same": 3,
    }  # fmt: skip
    assert (told["kind"], told["precision"], told["max_steps"]) == (["plain", "mha"], "float32", 2000)
    assert told.keys() & {"decoder", "dataset", "N", "seed"} == {"N"}
    alone = ask(of(ByPlace, "--along kind=plain")).settings
    assert (alone["width"], alone["decoder"], alone["holdout"]) == (64, "cnn", {"a": "random", "b": "random"})
    assert alone["options"] == {"hidden": 4, "rate": {"a": 0.1, "b": 0.2}, "both": {"a": 0, "b": 2}, "same": 3}


def test_settings_of_decoders_are_those_of_each(ask: Ask) -> None:
    study = ask("--along decoder=cnn,mlp --N 12 --datasets bumps --seeds 2 --precision float32")
    assert {name: study.settings[name] for name in ("width", "depth", "encoding", "holdout")} == {
        "width": {"cnn": 64, "mlp": 256}, "depth": 2, "encoding": "bump", "holdout": {"bumps": "random"},
    }  # fmt: skip


def test_table_figure_and_page_show_settings_that_differ(ask: Ask, tmp_path: Path) -> None:
    study = ask(of(ByPlace, "--along kind=plain,mha"))
    rows = Rows()
    with ResultStore(tmp_path / "store") as store:
        save_question(store, study.question)
        made = []
        while wanted := study.search.propose(rows, 1):
            spec = wanted[0]
            found = {"status": "passed", "reason": "target", "steps": 10, "accuracy": 0.95}
            if spec.data_count < 5:
                found |= {"status": "missed", "reason": "budget", "accuracy": 0.5}
            made.append(make_row(spec, task_version="1", fixed_count=0, seconds=1.0, **found))
            rows.add(made[-1])
        store.append(made)
    answer = json.loads(json.dumps(study.answer(rows)))
    assert answer["settings"]["width"] == {"plain": 64, "mha": 256}
    assert {row["images"] for row in answer["thresholds"]} == {5}
    assert draw(study._answer(rows)).axes[0].get_title().startswith("ByPlace")
    results = Results.of(tmp_path / "store")
    assert results.notices == []
    [told], notices = studies_of(results, Around(dict, lambda key: b""))
    assert notices == []
    assert told.settings["width"] == "plain 64, mha 256"
    assert told.settings["rate"] == "a 0.1, b 0.2"
