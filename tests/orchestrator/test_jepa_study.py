"""The JEPA study: what it trains, what it shares with the objectives study, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import jepa, objectives
from orchestrator.searches import Rows
from orchestrator.store import MeasureTable
from orchestrator.store.measures import encode
from tests.analysis.made_objectives import GOOD, generator_row, parent_rows
from tests.conftest import check_refusal
from tests.orchestrator.test_conditioning_study import study_of
from tests.orchestrator.test_objectives_study import shown
from trainables.generative.generator_task import GeneratorTask
from trainables.needs import Tasks
from trainables.settings import value_of
from trainables.spec import run_key

OF_JEPA = ("decoder", "jepa", "jepa_layers", "jepa_teacher")


def test_the_loss_is_asked_of_one_layer_and_of_three_and_without_it_a_run_is_that_of_the_objectives_study(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = study_of(jepa.app, "--precision float32", monkeypatch)
    found = [tuple(value_of(spec, name) for name in (*OF_JEPA, "seed")) for spec in study.specs]
    settings = [(0.0, "three", "ema"), (0.6, "one", "ema"), (0.6, "three", "ema")]
    assert found == [(family, *one, seed) for seed in range(3) for family in ("maskgit", "dit") for one in settings]
    core = study_of(objectives.app, "--precision float32", monkeypatch)
    keys = [{run_key(spec, one.task.version) for spec in one.specs} for one in (study, core)]
    assert len(keys[0] & keys[1]) == 6
    lines = [line[:4] for line in shown(study.table(Rows(), {}))]
    assert ["dit", "vq", "0.0", ""] in lines
    assert ["maskgit", "vq", "0.6", "one"] in lines


def test_layers_may_be_listed_and_are_compared_with_other_teachers(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--tier smoke --seeds 1 --families maskgit --jepa 0.6 --jepa-layers 1,2+1 --jepa-teacher same,gradient"
    study = study_of(jepa.app, words, monkeypatch)
    assert [tuple(value_of(spec, name) for name in OF_JEPA[1:]) for spec in study.specs] == [
        (0.6, layers, teacher) for layers in ("1", "1+2") for teacher in ("same", "gradient")
    ]
    assert study.settings["jepa_layers"] == ["1", "2+1"]


@pytest.mark.parametrize(
    ("words", "notes"),
    [
        ("--jepa-layers 1,2,one,4,three", []),
        ("--jepa-layers 3", ["3 is what 'one'"]),
        ("--jepa-layers 1,3,4+3+2", ["3 is what 'one'", "4+3+2 is what 'three'"]),
        ("--jepa 0 --jepa-layers three", []),
        ("--jepa 0", []),
        ("", []),
    ],
)
def test_a_list_of_layers_that_a_word_means_is_noted(words: str, notes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(jepa.app, f"--families maskgit --seeds 1 {words}", monkeypatch)
    assert [note.removeprefix("--jepa-layers ").partition(" means")[0] for note in study.notes] == notes
    assert all("beside those of the word: type '" in note for note in study.notes)


def test_words_that_mean_the_same_layers_are_noted_and_an_option_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(jepa.app, "--families maskgit --seeds 1 --option depth=1 --option heads=4", monkeypatch)
    assert study.notes == [
        "--jepa-layers one and three are the same layers in a network of depth 1, and either is trained",
        "three means layer 1 in a network of depth 1, which has fewer than three",
    ]
    study = study_of(jepa.app, "--tier smoke --families maskgit --seeds 1", monkeypatch)
    (told,) = study.notes
    assert told == "three means layer 1 and layer 2 in a network of depth 2, which has fewer than three"
    study = study_of(objectives.app, "--families dit --seeds 1 --option jepa=0.6 --option jepa_layers=3", monkeypatch)
    assert study.notes[0].startswith("--option jepa_layers=3 is what 'one' means in a network of depth 4")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--families givt", "--families 'givt' cannot be given the JEPA loss: choose maskgit or dit"),
        ("--families maskgit,gan", "--families 'gan' is unknown: choose maskgit or dit"),
        ("--jepa -1", "jepa must be at least 0, not -1.0"),
        ("--tier smoke --jepa-layers 3", "--jepa-layers must be three or one, or list some of the layers 1 to 2"),
        ("--jepa-teacher other", "--jepa-teacher 'other' is unknown: choose ema, same or gradient"),
        ("--option jepa=1", "--option jepa has an option of its own: use --jepa"),
        ("--jepa 0 --jepa-layers one --jepa-teacher same", "--jepa-layers is for runs with the loss, and jepa is 0: omit it"),
        ("--jepa 0 --jepa-teacher same", "--jepa-teacher is for runs with the loss, and jepa is 0: omit it, or give --jepa a"),
        ("--jepa 0.6 --jepa-layers 3,one,2", "--jepa-layers 3 and one are the same layers in a network of depth 4: keep 'one'"),
        ("--jepa 0.6 --jepa-layers 1+2,2+1", "--jepa-layers 1+2 and 2+1 are the same layers in a network of depth 4: keep '1+"),
        ("--option ema=0", "--jepa-teacher ema is the average of the model, and ema 0 keeps none"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    words: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(jepa.app, words.split(), hint, tmp_path, capsys)


@pytest.mark.usefixtures("quick_oracle")
def test_what_was_measured_of_networks_completes_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(jepa.app, f"--tier smoke --option depth=4 --store {tmp_path} --out {tmp_path / 'out'}", monkeypatch)
    helped = {0.0: 0.1, 0.6: 0.5}
    found = [generator_row(s, level2=0.9 if s.decoder == "dit" else helped[value_of(s, "jepa")]) for s in study.specs]
    rows = Rows([*found, *(parent for spec in study.specs for parent in parent_rows(spec))])
    told = " ".join(line[0] for line in shown(study.table(rows, {})))
    assert "gate 3 and what claims ask of the networks is known after: " in told

    class Quantity:
        array = None

        def __init__(self, name: str, value: float, layer: int | None = None) -> None:
            self.name, self.value, self.layer = name, value, layer

    table, tasks = MeasureTable(tmp_path), Tasks(GeneratorTask())
    for key in {tasks.parents(spec)["tokenizer"] for spec in study.specs}:
        table.save(key, "tokens", 1, encode(key, "tokens", 1, [Quantity(*one) for one in GOOD.items()], 0.1))
    for row in found:
        less = 0.9 if row["options"].get("jepa") else 1.0
        distances = [Quantity(f"frechet_{word:03b}", 2.0) for word in range(8)]
        table.save(row["key"], "generated", 1, encode(row["key"], "generated", 1, distances, 0.1))
        inside = [Quantity("overlap", less * 0.5, layer) for layer in range(1, 5)]
        inside += [Quantity(f"jaccard_{a}_{b}", less * 0.4) for a, b in (("000", "001"), ("000", "100"), ("001", "101"))]
        inside += [Quantity(f"jaccard_{a}_{b}", 0.3) for a, b in (("000", "101"), ("001", "100"))]
        inside += [Quantity("jaccard_100_101", less * 0.4)]
        table.save(row["key"], "circuits", 1, encode(row["key"], "circuits", 1, inside, 0.1))
    verdicts = [(one["number"], one["verdict"]) for one in study.answer(rows)["verdicts"]]
    assert verdicts == [(9, "pass"), (9, "pass"), (10, "pass"), (11, "pass"), (11, "pass"), (12, "pass"), (12, "pass")]
    assert not any("is known after" in line for line in study._lines(study._answer_of(rows)))
