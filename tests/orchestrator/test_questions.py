"""The question that a launch was asked lies beside its rows, in one small file that anybody may have damaged."""

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import Server

from orchestrator import __main__ as everything
from orchestrator import decoders, generators, launch, regularization, rotation, scaling, signal, tune
from orchestrator.command.cli import run
from orchestrator.engine.execution import Execution, Outcome
from orchestrator.searches.facts import Table, kept_as
from orchestrator.searches.space import Dimension
from orchestrator.store import Question, ResultStore, StoreError, drop_question, load_questions, save_question
from orchestrator.store import questions as module
from tests.conftest import trained_by
from tests.toy import Choosy
from trainables.spec import RunSpec

TOY = ["scaling", "--task", "tests.toy:Toy", "--N", "8,16", "--seeds", "2"]
SPECS = [RunSpec(task="a:B", dataset="d", N=N, data_count=0, seed=seed) for N in (8, 12) for seed in range(2)]
SEARCH = {"resolution": 0.05, "stop": "auto"}
QUESTION = Question(
    study="scaling", task_version="1", specs={"thresholds": SPECS}, search=SEARCH, settings={"N": [8, 12]}, command=["a", "b"]
)
Ask = Callable[..., int]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """Launches a study in `tmp_path`, which trains nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: Outcome()))

    def asked(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["sweep", *words])
        return run(everything.app, list(words))

    return asked


def files(store: str | Path = "results") -> list[str]:
    return sorted(path.name for path in (Path(store) / "questions").iterdir())


def stored(store: str | Path = "results") -> list[Question]:
    with ResultStore(store, read_only=True) as opened:
        questions = load_questions(opened)
        assert opened.notices == []
    return questions


@pytest.mark.parametrize(
    "command",
    [
        "scaling --N 8,16 --seeds 2 --decoder mlp --holdout center",
        "regularization --N 8 --trials 3 --epochs 2",
        "regularization --N 8 --trials 3 --epochs 2 --no-ablation --lambda-entropy 0.1 --lambda-variance 0.01",
        "encodings --N 8 --max-steps 3 --precision float32",
        "geometry --N 8 --max-steps 3 --bumps 5 --option sigma=2",
        "tuning --N 8 --max-steps 3 --bumps 0,5",
        "rotation --N 12 --epochs 2",
        "objectives --tier smoke --codes 8,16 --smoothing 0,0.1",
        "jepa --tier smoke --jepa 0,0.6 --jepa-teacher same",
        "signal --tier smoke --factors size,colour --between 0.1..1",
        "conditioning --tier smoke --dropout 0.1,0.2 --dropout-mode zero_batch",
    ],
)
def test_every_study_says_its_question(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: list[Any] = []
    for study in (scaling, regularization, decoders, rotation, generators, signal):
        monkeypatch.setattr(study, "launch", lambda study, *_: found.append(study) or 0)
    assert run(everything.app, command.split()) == 0
    question = found[0].question
    assert question.study == command.split()[0]
    assert question.task_version == found[0].task.version
    assert question.settings is found[0].settings
    again = Question.of(question.to_bytes(), question.name)
    assert {part: list(specs) for part, specs in question.specs.items() if specs} == again.specs
    assert (again.search, again.task) == (json.loads(json.dumps(question.search)), question.task)
    with ResultStore(tmp_path) as store:
        save_question(store, question)
        assert [one.name for one in load_questions(store)] == [question.name]


@pytest.mark.slow(1)
def test_a_launch_stores_what_it_was_asked_and_the_same_one_again_replaces_it(ask: Ask) -> None:
    assert ask(*TOY) == 1  # as nothing was trained
    [name] = files()
    [question] = stored()
    assert name == f"{question.name}.json"
    assert name.startswith("scaling-")
    assert question.command == ["sweep", *TOY]
    assert question.search == {"resolution": 0.05, "stop": "auto"}
    assert {(spec.N, spec.seed) for spec in question.specs["thresholds"]} == {(N, seed) for N in (8, 16) for seed in (0, 1)}
    assert (question.task, question.task_version) == ("tests.toy:Toy", "1")
    assert (question.settings["N"], question.settings["seeds"]) == ([8, 16], 2)
    before = (Path("results") / "questions" / name).stat().st_ino
    assert ask(*TOY) == 1
    assert (Path("results") / "questions" / name).stat().st_ino == before, "the same is not written again"
    assert ask(*TOY, "--out", "elsewhere", "--workers", "2", "--no-speculate") == 1
    assert files() == [name]
    assert stored()[0].command[-1] == "--no-speculate"
    assert ask(*TOY, "--resolution", "0.2") == ask(*TOY, "--seeds", "3") == 1
    assert len(files()) == 3
    assert not list((Path("results") / ".tmp").iterdir())


@pytest.mark.parametrize("store", ["new", "old"])
def test_a_dry_run_writes_nothing(store: str, ask: Ask, tmp_path: Path) -> None:
    ResultStore(tmp_path / "old").close()
    before = sorted(tmp_path.rglob("*"))
    assert ask(*TOY, "--store", store, "--dry-run") == 0
    assert sorted(tmp_path.rglob("*")) == before
    with ResultStore("old", read_only=True) as opened, pytest.raises(StoreError, match=r"cannot save scaling-\w+.json in old"):
        save_question(opened, QUESTION)
    assert sorted(tmp_path.rglob("*")) == before


def test_it_is_there_before_the_first_run_and_after_an_interruption(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[int] = []

    def execute(execution: Execution, *_: object) -> Outcome:
        there.append(len(files()))
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "executed", trained_by(execute))
    assert ask(*TOY) == 130
    assert ask(*TOY) == 130
    assert there == [1, 1]
    assert stored()[0].command == ["sweep", *TOY]


def test_a_question_that_cannot_be_written_stops_the_launch(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    ResultStore("results").close()
    Path("results", "questions").write_text("mine")
    assert ask(*TOY) == 1
    stopped, last = capsys.readouterr().out.splitlines()[-2:]
    assert stopped.startswith("stopped: cannot save the question in results: ")
    assert stopped.endswith("move away what is in its place, or choose another folder")
    assert last == "all finished runs are kept; to continue: " + " ".join(["sweep", *TOY])
    assert Path("results", "questions").read_text() == "mine"


def test_a_full_disk_leaves_the_former_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with ResultStore(tmp_path) as store:
        save_question(store, QUESTION)
        monkeypatch.setattr("orchestrator.store.artifacts.os.fsync", full)
        with pytest.raises(StoreError, match=r"cannot save the question in .*: No space left on device; free some"):
            save_question(store, dataclasses.replace(QUESTION, command=["other"]))
        monkeypatch.undo()
        assert load_questions(store) == [QUESTION]


def test_a_bucket_keeps_it_for_other_machines(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ResultStore(uri) as store:
        save_question(store, QUESTION)
        save_question(store, dataclasses.replace(QUESTION, command=["later"]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert stored(uri) == [dataclasses.replace(QUESTION, command=["later"])]
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    with ResultStore(uri, read_only=True) as store:
        assert load_questions(store) == []
        assert f"{uri}/questions/{QUESTION.name}.json: it has" in store.notices[0]


def test_questions_in_a_bucket_are_fetched_once_and_then_listed(server: Server, uri: str) -> None:
    asked = [dataclasses.replace(QUESTION, task_version=str(version)) for version in range(4)]
    with ResultStore(uri) as store, ResultStore(uri, read_only=True) as looking:
        for question in asked:
            save_question(store, question)
        in_order = sorted(asked, key=lambda question: question.name)
        assert load_questions(looking) == in_order
        server.requests()
        assert load_questions(looking) == in_order
        assert server.requests() == ["GET questions"]
        drop_question(store, in_order.pop())
        assert load_questions(looking) == in_order


def changed(**changes: Any) -> bytes:
    return json.dumps({**json.loads(QUESTION.to_bytes()), **changes}).encode()


def of_specs(specs: Any) -> bytes:
    return changed(specs={"thresholds": specs})


PACKED = json.loads(QUESTION.to_bytes())["specs"]["thresholds"]
BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it is no JSON text"),
    "cut": (QUESTION.to_bytes()[:100], "it is no JSON text"),
    "no text": (b"\xff\xfe\x00", "it is no JSON text"),
    "deep": (b"[" * 100_000, "it is no JSON text"),
    "a list": (b"[]", "it must have study, task_version, specs, search, settings, command"),
    "no settings": (changed(settings=None), "it must have study"),
    "a number for a list": (changed(command=7), "it must have study"),
    "a number for a word": (changed(command=[7]), "command must be a list of words"),
    "another study": (changed(study="No study"), "study must be the name of a study, not 'No study'"),
    "NaN": (changed(settings={"x": float("nan")}), "it has a number that is not finite"),
    "infinity": (changed(settings={"x": 1}).replace(b'"x": 1', b'"x": 1e999'), "it has a number that is not finite"),
    "half a letter": (changed(settings={"x": "\ud800"}), "surrogates not allowed"),
    "too deep": (changed(settings={"a": [[[[[[[[0]]]]]]]]}), "it has more than 8 levels"),
    "other runs": (changed(task_version="2"), "its name is that of another question"),
    "another resolution": (changed(search={**SEARCH, "resolution": 0.1}), "its name is that of another question"),
    "a run twice": (of_specs({**PACKED, "varied": {"N": [8, 8], "seed": [0, 0]}}), "'thresholds' must name every run once"),
    "no runs": (changed(specs={}), "its runs must be those of one task"),
    "runs that are none": (of_specs(7), "specs must have what is shared, and lists of what is varied"),
    "uneven lists": (of_specs({**PACKED, "varied": {"N": [8], "seed": [0, 1]}}), "argument 2 is longer than argument 1"),
    "no grid": (of_specs({**PACKED, "varied": {"N": ["x"], "seed": [0]}}), "N must be a whole number"),
    "no lr": (of_specs({"shared": {"task": "a:B"}, "varied": {}}), "lr, .*are missing"),
    "no rate": (of_specs({**PACKED, "shared": {**PACKED["shared"], "lr": -1}}), "lr must be above 0"),
    "no options": (of_specs({**PACKED, "shared": {**PACKED["shared"], "options": [1]}}), "options must be names with values"),
}


def test_a_question_finds_its_name_once(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question.of(QUESTION.to_bytes(), QUESTION.name)
    monkeypatch.setattr(Question, "_defining", None)
    assert question.name == QUESTION.name
    monkeypatch.undo()
    assert dataclasses.replace(question, task_version="2").name != question.name


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_question_is_named_and_passed_over(name: str, tmp_path: Path) -> None:
    data, why = BAD[name]
    with ResultStore(tmp_path) as store:
        save_question(store, QUESTION)
        save_question(store, good := dataclasses.replace(QUESTION, task_version="3"))
        (tmp_path / "questions" / f"{QUESTION.name}.json").write_bytes(data)
        assert load_questions(store) == [good]
        [notice] = store.notices
        place = f"{tmp_path}/questions/{QUESTION.name}.json"
        with pytest.raises(ValueError, match=why):
            Question.of(data, QUESTION.name)
        assert notice.startswith(f"left out {place}: ")
        assert notice.endswith("; the report guesses from the rows what was asked")
        assert notice.isprintable()
        save_question(store, QUESTION)
        assert len(load_questions(store)) == 2


def make(kind: str, place: Path) -> None:
    {
        "a FIFO": os.mkfifo,
        "a folder": Path.mkdir,
        "a dangling link": lambda path: path.symlink_to("nowhere"),
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "too large": lambda path: path.write_bytes(QUESTION.to_bytes() + b" " * module.MOST_BYTES),
    }[kind](place)


@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a dangling link", "a device", "too large"])
def test_what_is_no_file_or_too_large_is_named_and_written_over(kind: str, tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        place = tmp_path / "questions" / f"{QUESTION.name}.json"
        place.parent.mkdir()
        make(kind, place)
        assert load_questions(store) == []
        assert len(store.notices) == 1
        assert str(place) in store.notices[0]
        save_question(store, QUESTION)
        assert load_questions(store) == [QUESTION]
        assert place.is_file()
        assert not place.is_symlink()


def test_other_files_are_no_questions_and_of_very_many_the_first_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultStore(tmp_path) as store:
        for version in "123":
            save_question(store, dataclasses.replace(QUESTION, task_version=version))
        (tmp_path / "questions" / "notes.txt").write_text("mine")
        (tmp_path / "questions" / f"{QUESTION.name}.json~").write_text("a backup of an editor")
        assert len(load_questions(store)) == 3
        assert store.notices == []
        monkeypatch.setattr(module, "MOST_FILES", 2)
        assert len(load_questions(store)) <= 2
        assert store.notices == [f"{tmp_path}/questions has 3 questions: only the first 2 are read"]


def test_a_question_that_is_too_large_is_not_stored_and_this_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(QUESTION.to_bytes())
    monkeypatch.setattr(module, "MOST_BYTES", size - 1)
    with ResultStore(tmp_path) as store:
        save_question(store, QUESTION)
        assert store.notices == [
            f"the question takes {size} bytes, more than the {size - 1} of a file: it is not stored, and the report guesses "
            "from the rows what was asked"
        ]
        assert load_questions(store) == []


@pytest.mark.slow(1)
def test_a_study_of_ten_thousand_runs_takes_a_third_of_a_file() -> None:
    words = {"bumps": "random", "stripes+bumps": "center"}
    of_size = [dataclasses.replace(SPECS[0], N=N, seed=seed) for N in range(8, 508) for seed in range(10)]
    specs = [dataclasses.replace(one, dataset=dataset, holdout=box) for dataset, box in words.items() for one in of_size]
    data = dataclasses.replace(QUESTION, specs={"thresholds": specs}).to_bytes()
    assert len(data) < module.MOST_BYTES / 3
    assert len(QUESTION.to_bytes()) < 1000


POINTS = [
    ({"kind": kind, "hid": hid, "deep": deep}, ["kind", "hid"] if kind == "mlp" else ["kind"])
    for kind in ("mlp", "lin")
    for hid in (1, 2)
    for deep in (False, 1, 1.0)
]


def test_a_table_has_a_line_for_each_value_of_what_decides() -> None:
    table = Table.of(POINTS)
    assert table is not None
    assert Table.read(json.loads(json.dumps(table.to_json()))) == table
    assert table.to_json() == {"by": ["kind"], "lines": {'["mlp"]': ["kind", "hid"], '["lin"]': ["kind"]}}
    assert table.at({"kind": "lin", "hid": 7}) == ["kind"]
    with pytest.raises(ValueError, match="the task cannot do these settings"):
        table.at({"hid": 1})
    constant = Table.of([(values, 1) for values, _ in POINTS])
    assert constant == Table([], {"[]": 1})


def test_a_table_tells_values_of_other_types_apart_and_knows_when_it_cannot() -> None:
    table = Table.of([({"a": value}, place) for place, value in enumerate((1, 1.0, True, "1"))] + [({}, 4)])
    assert table is not None
    assert [table.at({"a": value}) for value in (1, 1.0, True, "1")] + [table.at({})] == [0, 1, 2, 3, 4]
    assert Table.of([({"a": 1}, 0), ({"a": 1}, 1)]) is None
    assert Table.of([({"a": 1}, 0), ({"a": 1}, False)]) is None


@pytest.mark.parametrize("value", [None, [], {"by": "a", "lines": {}}, {"by": [1], "lines": {}}, {"by": [], "lines": []}])
def test_what_is_no_table_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must have names and lines"):
        Table.read(value)


def test_a_table_knows_a_long_range_by_its_words() -> None:
    few, many = (Dimension(name, (0,), (2, end), step=1) for name, end in (("few", 9), ("many", 900)))
    space = [few, many, Dimension("real", (0.0,), (0.5, 1.0))]
    assert kept_as(space, {"few": 3, "many": 3, "real": 0.7}) == {"few": 3, "many": "2..900", "real": "0.5..1"}
    assert kept_as(space, {"few": 0, "many": 0, "real": 0.0}) == {"few": 0, "many": 0, "real": 0.0}
    assert kept_as(space, {"few": 10, "many": 1, "other": 3}) == {}


def facts_of(words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Those of the question of a tune study."""
    found: list[Any] = []
    monkeypatch.setattr(tune, "launch", lambda study, *_: found.append(study.question.facts) or 0)
    assert run(everything.app, ["tune", "--search", *words.split(), "--store", str(tmp_path)]) == 0
    return found.pop()


def test_a_question_of_tune_tells_what_follows_from_what_is_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    task = f"{Choosy.__module__}:Choosy"
    found = facts_of(f"width=8|16,decoder=linear|mlp,lr=0.1..1 --task {task} --N 8", monkeypatch, tmp_path)
    of = {None: ["decoder", "lr"], "linear": ["decoder", "lr"], "mlp": ["width", "decoder", "lr"]}
    assert found["matters"] == {"by": ["decoder"], "lines": {json.dumps([word]): names for word, names in of.items()}}
    assert set(map(json.dumps, found["follows"]["lines"].values())) == {'{"width": 4}', "{}"}
    found = facts_of("N=6|8,lr=0.1..1 --task tests.toy:Toy", monkeypatch, tmp_path)
    assert found == {"follows": {"by": ["N"], "lines": {"[6]": {"data_count": 36}, "[8]": {"data_count": 64}}}}
    assert facts_of("N=6..70,batch_size=1..64,lr=0.1..1 --task tests.toy:Toy", monkeypatch, tmp_path) == {}
    assert facts_of("N=6..170,lr=0.1..1 --task tests.toy:Toy", monkeypatch, tmp_path) == {}
