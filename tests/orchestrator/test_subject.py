"""A study takes the options of its task: those it has and no others, with the help that it gives."""

from __future__ import annotations

import hashlib
import importlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator import __main__ as everything
from orchestrator import scaling, tune
from orchestrator.command.cli import run
from orchestrator.command.sources import made_by_former_version, made_by_other_source, source_of
from orchestrator.command.subject import TaskApp
from orchestrator.launch import LaunchOptions
from orchestrator.searches import Row, Rows
from orchestrator.store import ResultStore, make_row
from orchestrator.thresholds import ThresholdStudy
from tests.toy import Toy
from trainables import setting
from trainables import spec as spec_module
from trainables.bumps import BumpTask
from trainables.spec import RunSpec
from trainables.task import load_task


@dataclass(frozen=True, kw_only=True)
class ToySettings:
    dataset: str = setting("toys", words=("toys",))
    decoder: str = setting("linear", "The network.", words=("linear", "cubic"))
    strength: float = setting(0.5, "How hard it pulls.", low=0, high=9)
    spins: bool = setting(False, "Whether it spins.")
    seeds: int = setting(3, "Not those of the study.")
    pause: float = setting(0.0)
    trouble: str = setting("none")
    trouble_N: int = setting(0)
    ledger: str = setting("", "Comma-separated values are kept in it, from 1,000 to 9,999.")


class Tuned(Toy):
    """A toy with settings."""

    settings = ToySettings


@dataclass(frozen=True, kw_only=True)
class AnySettings(ToySettings):
    dataset: str = setting("alpha")


class AnyData(Toy):
    """A toy that takes data sets of any name."""

    settings = AnySettings


@dataclass(frozen=True, kw_only=True)
class HelpSettings(ToySettings):
    help: str = setting("")


class Helpful(Toy):
    """A toy with a setting that no task may have."""

    settings = HelpSettings


@dataclass(frozen=True, kw_only=True)
class SortedSettings:
    dataset: str = setting("cups", words=("cups", "balls"))
    decoder: str = setting("linear", words=("linear", "cubic"))
    seen: str = setting("all", "Images of a grid, as the decoder sees them.")
    store: str = setting("shop")
    workers: int = setting(3)


class Sorted(Toy):
    """A toy with data sets, a decoder that needs no GPU, and settings with names of options."""

    settings = SortedSettings
    cheap = ("cubic",)


TASK, ANY = ("--task", f"{__name__}:Tuned"), ("--task", f"{__name__}:AnyData")


def options(*words: str) -> set[str]:
    result = CliRunner().invoke(scaling.app.of(words), ["--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return set(re.findall(r"--[A-Za-z][\w-]*", re.sub(r"\x1b\[[\d;]*m", "", result.output)))


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[ThresholdStudy]:
    found: list[ThresholdStudy] = []

    def keep(study: ThresholdStudy, where: LaunchOptions) -> int:
        found.append(study)
        return 0

    monkeypatch.setattr(scaling, "launch", keep)
    return found


@pytest.mark.slow(1)
def test_help_of_three_tasks_shows_the_options_of_each_and_no_others() -> None:
    bumps, chords, tuned = options(), options("--task", "examples.own_task:Chords"), options("--task=" + TASK[1])
    of_bumps = {"--encoding", "--holdout", "--centres", "--sigma", "--absent", "--polarity", "--tolerance"}
    assert bumps - chords == of_bumps
    assert chords - bumps == {"--error"}
    assert tuned - bumps == {"--strength", "--spins", "--no-spins", "--pause", "--trouble", "--trouble-N", "--ledger"}
    assert bumps - tuned == of_bumps | {"--depth", "--width"}


def help_of(app: TaskApp, *words: str) -> str:
    """Without the lines and the frames of the terminal."""
    result = CliRunner().invoke(app.of(words), ["--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return " ".join(re.sub(r"\x1b\[[\d;]*m|[^\x00-\x7f]", "", result.output).split())


@pytest.mark.slow(1)
@pytest.mark.parametrize("app", [scaling.app, tune.app], ids=["scaling", "tune"])
@pytest.mark.parametrize(
    "words",
    [TASK, ("--task", "examples.own_task:Chords"), ("--program", "echo {data_count}", "--counts", "1..9")],
    ids=["toy", "example", "program"],
)
def test_help_of_another_task_does_not_speak_of_bumps(app: TaskApp, words: tuple[str, ...]) -> None:
    usual, told = help_of(app), help_of(app, *words)
    first, examples, rest = re.split(r"( Examples, of the task that is built in .* Exit codes: )", told)
    assert examples.replace(", of the task that is built in", "") in usual
    said = first + rest.replace("trainables.bumps:BumpTask", "")
    assert not re.search(r"bump|stripe|image|grid size|the grid|coordinate|a decoder|the decoder", said)
    if app is scaling.app:
        assert "How many training images does a decoder need before it composes, and how does that grow with the grid?" in usual
        assert "How many training samples does a network need before it generalizes, and how does that grow with N?" in first
        assert "For bumps from 8 to 1024." in usual
        assert "Comma-separated: bumps, stripes+bumps." in usual
        assert "This task has one data set, so omit the option." in rest
    assert "for decoders that need none (mlp)" in usual
    assert "for decoders that need none (this task has none)" in rest


def test_help_has_the_data_sets_and_the_decoders_of_the_task() -> None:
    told = help_of(scaling.app, "--task", f"{__name__}:Sorted")
    assert "Comma-separated: cups, balls." in told
    assert "Comma-separated names, whichever the task knows." in help_of(scaling.app, *ANY)
    assert "for decoders that need none (cubic)" in told
    assert "Images of a grid, as the decoder sees them." in told, "the words of the task are left as they are"


@pytest.mark.slow(1)
def test_help_names_the_settings_that_option_alone_gives() -> None:
    also = "Another option of the task, NAME=VALUE; repeatable; also for seeds, whose name another option here has."
    assert also in help_of(scaling.app, *TASK)
    both = "; also for store and workers, whose name another option here has."
    assert both in help_of(tune.app, "--task", f"{__name__}:Sorted")
    for app in (scaling.app, tune.app):
        assert "Another option of the task, NAME=VALUE; repeatable. " in help_of(app)


def test_what_is_given_is_in_every_run(launched: list[ThresholdStudy]) -> None:
    words = [*TASK, "--N", "8,16", "--seeds", "2", "--strength", "2", "--spins", "--decoder", "cubic", "--option", "seeds=5"]
    assert run(scaling.app, words) == 0
    assert run(everything.app, ["scaling", *words]) == 0
    for study in launched:
        specs = [bracket.template for bracket in study.brackets]
        assert len(specs) == 4
        for spec in specs:
            told = {name: spec.option(name) for name in ("strength", "spins", "seeds")}
            assert told == {"strength": 2.0, "spins": True, "seeds": 5}
            assert (spec.dataset, spec.decoder, spec.encoding, spec.holdout, spec.depth) == ("toys", "cubic", "", "", 0)


def test_a_setting_of_a_task_is_no_list_whatever_its_help_says(launched: list[ThresholdStudy]) -> None:
    assert run(scaling.app, [*TASK, "--N", "8", "--seeds", "1", "--ledger", "a b", "--ledger", "c"]) == 0
    assert launched[0].brackets[0].template.option("ledger") == "c"


def test_data_sets_without_words_may_have_any_name(launched: list[ThresholdStudy]) -> None:
    words = [*ANY, "--N", "8", "--seeds", "1"]
    assert run(scaling.app, words) == 0
    assert run(scaling.app, [*words, "--datasets", "beta, alpha"]) == 0
    assert [[b.template.dataset for b in study.brackets] for study in launched] == [["alpha"], ["beta", "alpha"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*TASK, "--sigma", "1"), "No such option: --sigma"),
        ((*TASK, "--decoder", "rnn"), "--decoder 'rnn' is unknown: choose linear or cubic"),
        ((*TASK, "--strength", "10"), "--strength must be at most 9, not 10.0"),
        ((*TASK, "--option", "sigma=1"), "this task has no option 'sigma': its options are dataset, decoder, strength"),
        ((*TASK, "--option", "strenght=1"), "this task has no option 'strenght': perhaps strength is meant; its options are d"),
        ((*TASK, "--option", "seed=3"), "this task has no option 'seed': perhaps seeds is meant; its options are dataset, dec"),
        (("--option", "seed=3"), "this task has no option 'seed': perhaps --seeds, an option of this command, is meant; its o"),
        (("--option", "lr=3"), "this task has no option 'lr': perhaps --lr, an option of this command, is meant; its options"),
        ((*TASK, "--option", "spins=perhaps"), "--option 'spins=perhaps': the option spins takes True or False, not 'perhaps'"),
        ((*TASK, "--datasets", "bumps"), "--datasets 'bumps' is unknown: choose toys"),
        ((*TASK, "--option", "dataset=toys"), "--option dataset has an option of its own: use --datasets"),
        ((*ANY, "--option", "dataset=beta"), "--option dataset has an option of its own: use --datasets"),
        ((*ANY, "--datasets", "beta,"), "--datasets 'beta,' lacks a name: write names with commas"),
        ((*TASK, "--option", "spins=true", "--option", "spins=false"), "--option spins is given twice: keep one of the two"),
        ((*TASK, "--strength", "1", "--option", "strength=2"), "--strength and --option strength both give strength: keep one"),
        ((*TASK, "--ledger", "a", "b"), "'b' belongs to no option, and --ledger takes one value: omit it, or quote a value"),
        (("--strength", "1"), "No such option: --strength"),
        (("--task", f"{__name__}:Helpful", "--help"), "the task's setting help has the name of the option that shows what"),
        (("--task", "nowhere:Task", "--help"), "--task 'nowhere:Task' cannot be imported"),
        (("--task", "./mine:Task"), "--task './mine:Task' names a file: write mine:Task, and start in the folder of mine.py"),
        (("--task", "a/mine.py:Task"), "--task 'a/mine.py:Task' names a file: write mine:Task, and start in the folder of"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(scaling.app, list(words)) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_a_file_below_this_folder_is_told_by_the_name_that_imports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here := tmp_path / "here").mkdir()
    for name in ("moved_tasks", "old-tasks", "../beside"):
        (here / name).mkdir()
        (here / name / "flaky_toy.py").write_text("from tests.toy import Toy\n\nclass Flaky(Toy): ...\n")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(here))
    for file in ("moved_tasks/flaky_toy.py", "./moved_tasks/flaky_toy", f"{here}/moved_tasks/flaky_toy.py"):
        with pytest.raises(ValueError, match=r"names a file: write moved_tasks\.flaky_toy:Flaky$"):
            load_task(f"{file}:Flaky")
    assert type(load_task("moved_tasks.flaky_toy:Flaky")).__name__ == "Flaky"
    for file in ("old-tasks/flaky_toy.py", "../beside/flaky_toy.py", f"{tmp_path}/beside/flaky_toy.py", "none/flaky_toy.py"):
        with pytest.raises(ValueError, match=r"write flaky_toy:Flaky, and start in the folder of flaky_toy\.py$"):
            load_task(f"{file}:Flaky")


def test_runs_made_by_another_text_of_the_task_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "changing_task.py"
    file.write_text("from tests.toy import Toy\n\nclass Mine(Toy):\n    version = '7'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = "changing_task:Mine"
    task = load_task(path)
    before = source_of(task)
    spec = RunSpec(task=path, dataset="toys", N=8, data_count=3, seed=0, options=tuple(Toy.defaults.items()))

    def rows(*versions: str) -> Rows:
        about = {"task_version": "7", "fixed_count": 0, "status": "missed", "reason": "budget"}
        return Rows(make_row(spec.with_count(3 + n), versions=told, **about) for n, told in enumerate(versions))

    finished, empty = rows("python=3", f"python=3 {before}", f"python=3.12 {before}"), ResultStore(tmp_path, read_only=True)
    assert made_by_other_source(path, task, finished, empty) is None
    file.write_text(file.read_text() + "# another line\n")
    told = made_by_other_source(path, task, finished, empty)
    assert told is not None
    assert told.startswith("2 finished runs of changing_task:Mine were trained when its file had another text.")
    assert source_of(BumpTask()) == ""


def test_runs_of_former_versions_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a former version of the task by what the store knows of all rows; those of a former training among the rows."""
    fields = {"dataset": "toys", "N": 8, "options": tuple(Toy.defaults.items()), "stop": "budget"}
    about = {"fixed_count": 0, "status": "missed", "reason": "budget"}

    def row(seed: int, version: str = Toy.version, task: str = "tests.toy:Toy", count: int = 3) -> Row:
        return make_row(RunSpec(task=task, data_count=count, seed=seed, **fields), task_version=version, **about)

    def told(rows: list[Row], *asked: int) -> str | None:
        specs = [RunSpec(task="tests.toy:Toy", data_count=0, seed=seed, **fields) for seed in asked]
        return made_by_former_version("tests.toy:Toy", Toy(), rows, store, specs)

    with ResultStore(tmp_path / "store") as store:
        now = store.append([row(0), row(0, "8", "tests.toy:Other")])
        assert told([]) is told(now) is None
        store.append([row(1, "0")])
        alone = (
            "1 run of tests.toy:Toy in the store is of a former version of the task or of the training: it stays there, but "
            "does not count, and is trained again if it is needed"
        )
        assert told(now) == alone
        store.append([row(2, "0")])
        with monkeypatch.context() as patch:
            patch.setattr(spec_module, "TRAINING_VERSION", "1")
            former = store.append([row(3), row(3, count=4)])
        with ResultStore(tmp_path / "store") as another:
            [new] = another.append([row(0, count=5)])
        assert told(now, 0) == told(now)
        assert told([*now, *former]) == told([*now, *former], 3) == told(now, 3) == (
            "4 runs of tests.toy:Toy in the store are of former versions of the task or of the training: they stay there, but "
            "do not count, and those that are needed are trained again"
        )
        assert [one["key"] for one in store.refresh()] == [new["key"]], "what another launch finished meanwhile is still news"


def test_a_module_that_the_task_inherits_from_or_uses_is_watched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "mine_leaf": "from mine_base import Common\n\nclass Mine(Common):\n    version = '7'\n",
        "mine_base": "from tests.toy import Toy\nimport mine_helper\n\nclass Common(Toy):\n    pass\n",
        "mine_helper": "from mine_far import far\n",
        "mine_far": "def far():\n    from mine_package.part import value\n",
        "mine_package/part": "from . import value\n",
        "mine_package/value": "value = 1\n",
        "mine_package/unused": "value = 2\n",
        "mine_other": "pass\n",
    }
    (tmp_path / "mine_package").mkdir()
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("mine_other")
    task = load_task("mine_leaf:Mine")
    spec = RunSpec(task="mine_leaf:Mine", dataset="toys", N=8, data_count=3, seed=0, options=tuple(Toy.defaults.items()))
    empty = ResultStore(tmp_path, read_only=True)

    def told(*sources: str) -> str | None:
        about = {"task_version": "7", "fixed_count": 0, "status": "missed", "reason": "budget"}
        rows = [make_row(spec.with_count(3 + n), versions=f"x=1 {of}", **about) for n, of in enumerate(sources)]
        return made_by_other_source("mine_leaf:Mine", task, rows, empty)

    before = source_of(task)
    alone = f"source={hashlib.sha256(texts['mine_leaf'].encode()).hexdigest()[:12]}"
    assert before != alone
    assert told(before, alone) is None, "rows of former versions knew the file of the class alone"
    (tmp_path / "mine_other.py").write_text("pass  # not used\n")
    for name in ("mine_package.unused", "mine_package.value"):
        importlib.import_module(name)
    assert source_of(task) == before, "whatever is loaded by now"
    for name in ("mine_base", "mine_helper", "mine_far", "mine_package/part", "mine_package/value"):
        (tmp_path / f"{name}.py").write_text(f"{texts[name]}# another line\n")
        assert source_of(task) != before
        files = "mine_leaf.py, mine_base.py, mine_far.py, mine_helper.py, part.py and 1 more"
        assert told(before, alone) == (
            f"1 finished run of mine_leaf:Mine was trained when its files ({files}) had another text. If results would "
            "differ now, change its version '7'"
        )
        (tmp_path / f"{name}.py").write_text(texts[name])
    assert source_of(task) == before
