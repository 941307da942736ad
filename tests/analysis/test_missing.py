"""The commands of the report train just the runs that a claim lacks: each is parsed by its study, and its plan compared."""

import dataclasses
import html
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import pytest

from analysis.report import page as pages
from analysis.report.answers import scaling_answer
from analysis.report.claims import CLAIMS
from analysis.report.generative_claims import GENERATIVE_CLAIMS
from analysis.report.missing import seeds_beside
from analysis.report.usual import departures
from analysis.results import OF_QUANTITY, OF_RUN, Results
from orchestrator import __main__ as everything
from orchestrator import decoders, generators
from orchestrator.command.cli import run
from orchestrator.searches import Rows
from orchestrator.store import make_row
from tests.analysis.made_objectives import GOOD, generator_row, parent_rows, spec_of
from tests.analysis.test_claims import finals, measured, paper_of, power, probes, table_of
from trainables.bumps import BumpSettings, BumpTask
from trainables.generative.chain import TOKENIZER
from trainables.generative.tiers import generator
from trainables.regularization import WEIGHTS
from trainables.rotation import RotationTask
from trainables.spec import RunSpec

APPS = {name: study.app for name, study in everything.STUDIES.items()}
BY_ID = {claim.id: claim for claim in (*CLAIMS, *GENERATIVE_CLAIMS)}
OF_DECODERS = [claim.id for claim in CLAIMS]
TASK = BumpTask()
Plan = Callable[[str], Any]


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their pictures."""
    monkeypatch.setattr(pages, "draw", lambda picture: pages.Drawn(picture.name, picture.alt, b"", b""))


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The study that a command would launch, and where."""
    launched: list[Any] = []

    def launch(study: Any, where: Any) -> int:
        launched.append((study, where))
        return 0

    for module in (decoders, generators, *everything.STUDIES.values()):
        monkeypatch.setattr(module, "launch", launch, raising=False)

    def parse(command: str) -> Any:
        python, flag, module, *words = shlex.split(command)
        assert (python, flag, module.split(".")[0]) == ("python", "-m", "orchestrator")
        assert run(APPS[module.split(".")[1]], words) == 0
        return launched.pop()

    return parse


def spec(seed: int = 0, dataset: str = "bumps", **changes: Any) -> RunSpec:
    """A run of the studies of decoders, with few steps and on a small grid."""
    words: dict[str, Any] = {"decoder": "cnn", "depth": 4, "encoding": "bump", "holdout": "center", **changes}
    width = BumpSettings(dataset=dataset, decoder=words["decoder"]).width
    words = {"width": width, "precision": "float32", "data_count": 0, **words}
    made = RunSpec(
        task="trainables.bumps:BumpTask", dataset=dataset, **{"N": 16, **words}, seed=seed, stop="budget",
        max_steps=120, options=tuple({**TASK.defaults, "sigma": 1.25}.items()), lr=0.002,
    )  # fmt: skip
    return dataclasses.replace(made, data_count=TASK.counts(made).high) if dataset == "bumps" else made


def results(specs: list[RunSpec], store: str = "some store") -> Results:
    """As the store would give them, measured."""
    lines = []
    for one in specs:
        row = {**make_row(one, task_version="1", fixed_count=0, status="missed", reason="budget"), "array": None}
        for (measure, quantity, layer), value in measured({**row, "options": dict(one.options)}).items():
            lines.append({**row, "measure": measure, "quantity": quantity, "layer": layer, "value": value})
    table = pd.DataFrame(lines, columns=[*OF_RUN, *OF_QUANTITY]).astype({"layer": float, "value": float})
    return Results([], table, store=store)


def commands(claim: str, found: Results) -> list[str]:
    """Those that the page has for a claim, as they stand there."""
    text = pages.Report.of([paper_of(BY_ID[claim])], found).html()
    return [html.unescape(command) for command in re.findall(r"<code>(python -m orchestrator.*?)</code>", text)]


def planned(plan: Plan, claim: str, found: Results) -> set[RunSpec]:
    specs: set[RunSpec] = set()
    for command in commands(claim, found):
        study, where = plan(command)
        assert (where.store, where.dry_run) == ("some store", False)
        specs |= set(study.specs)
    return specs


NAMED = ("dataset", "decoder", "depth", "encoding", "holdout", *WEIGHTS)
"""What a claim compares, or names."""


@pytest.mark.parametrize(
    ("command", "other"),
    [
        ("scaling", "--target 0.8"), ("scaling --decoder mlp", "--width 128"), ("encodings", "--lr 0.01"),
        ("geometry", "--option sigma=2"), ("tuning", "--batch-size 64"), ("rotation", "--weight-decay 0.01"),
        ("regularization --trials 2", "--schedule constant"), ("regularization --trials 2", "--weight-decay 0.01"),
    ],
)  # fmt: skip
def test_what_a_study_does_unless_told_otherwise_is_the_usual(command: str, other: str, plan: Plan) -> None:
    def far(words: str) -> set[int]:
        study, _ = plan(f"python -m orchestrator.{words}")
        told = [{**one.to_dict(), **dict(one.options)} for one in study.question.every_spec]
        own = [{name: value for name, value in one.items() if name not in NAMED} for one in told]
        return {departures(one, all_["task"], all_["decoder"]) for one, all_ in zip(own, told, strict=True)}

    assert far(command) == {0}
    assert far(f"{command} {other}") == {1}


@pytest.mark.parametrize(
    ("lost", "count"), [([], 3), ([0], 4), ([1, 3], 5), ([3, 4, 5, 6], 3), ([2, 3, 9], 5), ([0, 1, 2], 6), ([7], 3)]
)
def test_so_many_seeds_leave_three_beside_the_lost_ones(lost: list[int], count: int) -> None:
    assert seeds_beside(lost) == count


CODES = ("bump", "one-hot", "positional", "ramp")
CASES = {
    "fail-in-box": [{"encoding": code} for code in CODES],
    "superposition": [{}],
    "binary-kernel": [{}, {"encoding": "ramp"}],
    "volume": [{"depth": 6}],
    "factorization-falls": [{"depth": 3}, {"depth": 3, "encoding": "ramp"}],
    "mlp-opposite": [{}, {"decoder": "mlp", "precision": "bfloat16"}],
    "depth-does-not-help": [{"depth": 2}, {"depth": 6}],
    "stripes-compose": [{"dataset": "stripes+bumps", "holdout": "corner"}],
    "plus-to-bump": [{"dataset": "stripes+bumps", "holdout": "corner", "data_count": n} for n in (0, 100)],
    "early-stripes": [{"dataset": "stripes+bumps", "holdout": "corner", "data_count": n} for n in (0, 50, 100)],
    "stripes-volume": [{}, {"dataset": "stripes+bumps", "data_count": 30}],
}


@pytest.mark.slow(1)
@pytest.mark.parametrize("claim", CASES)
def test_the_seeds_that_are_missing_are_planned_with_the_settings_of_those_that_are_there(claim: str, plan: Plan) -> None:
    there = [spec(**setting) for setting in CASES[claim]] + [spec(1, **CASES[claim][0])]
    every = {spec(seed, **setting) for setting in CASES[claim] for seed in range(3)}
    assert planned(plan, claim, results(there)) == every
    assert set(there) < every


def test_a_group_that_is_whole_is_not_planned(plan: Plan) -> None:
    bumps, ramp = ([spec(seed, encoding=code) for seed in range(3)] for code in ("bump", "ramp"))
    assert planned(plan, "binary-kernel", results([*bumps, ramp[0]])) == set(ramp)


def test_a_group_without_any_run_is_planned_like_the_others(plan: Plan) -> None:
    bumps, ramp = ([spec(seed, encoding=code, width=24) for seed in range(3)] for code in ("bump", "ramp"))
    assert planned(plan, "binary-kernel", results(bumps)) == set(ramp)


def test_one_depth_is_compared_with_another(plan: Plan) -> None:
    there = [spec(seed, depth=4) for seed in range(3)]
    assert planned(plan, "depth-does-not-help", results(there)) == {spec(seed, depth=2) for seed in range(3)}


def test_a_claim_without_any_run_takes_grid_and_steps_of_the_other_runs_in_the_store(plan: Plan) -> None:
    [command] = commands("plus-to-bump", results([spec()]))
    study, where = plan(command)
    assert {(s.N, s.max_steps, s.dataset, s.data_count) for s in study.specs} == {
        (16, 120, "stripes+bumps", 0), (16, 120, "stripes+bumps", 100),
    }  # fmt: skip
    assert where.store == "some store"


@pytest.mark.slow(1)
@pytest.mark.parametrize("claim", OF_DECODERS)
def test_without_any_run_the_command_only_shows_what_it_would_train(claim: str, plan: Plan) -> None:
    found = Results([], table_of([]), store="some store")
    [command] = commands(claim, found)
    assert command == f"{BY_ID[claim].command} --store 'some store' --dry-run"
    assert plan(command)[1].dry_run
    assert "The rows do not say the settings of the missing runs." in pages.Report.of([paper_of(BY_ID[claim])], found).html()


def digit(seed: int, **changes: Any) -> RunSpec:
    options = {"image": "digit-7", "angles": 90, "gap_low": 150.0, "gap_high": 210.5}
    fields: dict[str, Any] = {"N": 16, "data_count": 75, "max_steps": 4 * 3, "width": 16, **changes}
    return RunSpec(
        task="trainables.rotation:RotationTask", dataset="rotation", seed=seed, decoder="rotation-cnn", encoding="angle",
        holdout="arc", options=tuple({**RotationTask.defaults, **options}.items()), stop="budget", schedule="cosine",
        weight_decay=1e-4, **fields,
    )  # fmt: skip


def test_rotation_is_asked_for_with_its_digit_its_arc_and_its_epochs(plan: Plan) -> None:
    [command] = commands("rotation", results([digit(1)]))
    study, _ = plan(command)
    assert study.specs == [digit(seed) for seed in range(3)]
    pixels = dataclasses.replace(digit(0), options=tuple({**dict(digit(0).options), "image": "pixels:eA=="}.items()))
    for unknown in (pixels, digit(0, max_steps=13)):
        [command] = commands("rotation", results([unknown]))
        assert command.endswith("--store 'some store' --dry-run")


@pytest.mark.parametrize("settings", [("none", "variance"), ("none", "entropy", "variance", "both")])
def test_penalties_are_compared_with_the_settings_of_the_runs_that_are_there(settings: tuple[str, ...], plan: Plan) -> None:
    every = finals(max_steps=300, holdout="center", lr=0.002)
    names = dict(zip(((0.0, 0.0), (0.1, 0.0), (0.0, 0.01), (0.1, 0.01)), ("none", "entropy", "variance", "both"), strict=True))
    there = [
        row for row in every
        if row["seed"] == 1 and names[row["options"]["lambda_entropy"], row["options"]["lambda_variance"]] in settings
    ]  # fmt: skip
    [command] = commands("regularization", Results(there, table_of([]), store="some store"))
    study, where = plan(command)
    specs = {one for ones in study.search.known.values() for one in ones}
    assert specs == {RunSpec.from_dict(row) for row in every}
    assert where.store == "some store"


@pytest.mark.slow(2)
@pytest.mark.parametrize("resolution", [0.05, 0.2])
def test_thresholds_that_are_missing_are_searched_as_those_that_are_there(resolution: float, plan: Plan) -> None:
    every, there = (probes(power(1.9), seeds, resolution) for seeds in (3, 2))
    for claim, dataset in (("scaling", None), ("cubic", "bumps")):
        [command] = commands(claim, Results(there, table_of([]), store="some store"))
        study, where = plan(command)
        known = {run["family"] for run in there}
        missing = {r["family"] for r in every if dataset in (None, r["dataset"]) and r["stop"] == "early"} - known
        assert {bracket.family for bracket in study.brackets} - known == missing
        assert len(missing) == (6 if dataset is None else 3)
        assert (study.resolution, study.stop, where.store) == (resolution, "auto", "some store")


def test_the_way_in_which_runs_ended_is_kept() -> None:
    def stop_of(runs: list[dict[str, Any]]) -> Any:
        found = scaling_answer(Results(runs, table_of([])))
        assert found is not None
        return found.settings["stop"]

    fields = ("fixed_count", "status", "reason", "steps", "accuracy")
    specs = [(RunSpec.from_dict({**r, "stop": "early", "lr": 0.002}), {n: r[n] for n in fields}) for r in probes(power(1.9), 1)]
    early = [make_row(one, task_version="1", **ended) for one, ended in specs]
    ends = [make_row(one.to_the_end(), task_version="1", **ended) for one, ended in specs]
    assert [stop_of(early), stop_of(ends), stop_of([*early, *ends])] == ["early", "budget", "auto"]


def test_sizes_that_are_too_few_or_too_small_are_asked_for_but_not_trained_unseen(plan: Plan) -> None:
    one = [run for run in probes(power(1.9), 3) if run["N"] == 24]
    found = Results(one, table_of([]), store="some store")
    [command] = commands("scaling", found)
    study, where = plan(command)
    assert where.dry_run
    assert {bracket.template.N for bracket in study.brackets} == set(range(16, 65, 8))
    page = pages.Report.of([paper_of(BY_ID["scaling"])], found).html()
    assert "The rows do not say which further grid sizes to train at." in page


def test_thresholds_beyond_all_images_are_not_called_missing_runs() -> None:
    runs = probes(lambda dataset, N, seed: 10**6)
    text = pages.Report.of([paper_of(BY_ID["cubic"])], Results(runs, table_of([]))).html()
    assert "No run is missing: some thresholds lie outside the numbers of images that were tried" in text
    assert "<code>" not in text


def test_runs_whose_measures_are_no_numbers_are_not_called_missing() -> None:
    found = results([spec(seed) for seed in range(3)])
    table = found.table.assign(value=float("nan"))
    text = pages.Report.of([paper_of(BY_ID["superposition"])], Results([], table)).html()
    assert "No run is missing: some were not measured, or their measures are not numbers." in text


def generated(specs: list[RunSpec], lost: Mapping[RunSpec, str] = MappingProxyType({}), unmet: Collection[int] = ()) -> Results:
    """Generators that are trained and lie in a store with what they need, but for the `lost` ones, which ended otherwise. Codes
    of the seeds in `unmet` miss gate 3."""
    made = [generator_row(one, level2=0.9, status=lost.get(one, "passed")) for one in specs]
    made += [parent for row in made for parent in parent_rows(RunSpec.from_dict(row))]
    runs = {row["key"]: {**row, "seconds": 60.0, "family": "one"} for row in made}
    measured = [
        {**run, "measure": "tokens", "quantity": name, "layer": None, "array": None, "value": 0.3 * (run["seed"] in unmet)}
        for run in runs.values() if run["task"] == TOKENIZER and run["encoding"] == "vq" for name in GOOD
    ]  # fmt: skip
    return Results([*runs.values()], table_of(measured), store="some store")


def trained(plan: Plan, claim: str, found: Results) -> set[RunSpec]:
    """What the commands on the page train beside the runs that there are."""
    rows, specs = Rows(found.runs), set[RunSpec]()
    for command in commands(claim, found):
        study, where = plan(command)
        assert (where.store, where.dry_run) == ("some store", False)
        specs |= {one for one in study.search.asked(rows) if study.search.row(rows, one) is None}
    return specs


def of_seeds(one: RunSpec, *seeds: int) -> list[RunSpec]:
    return [dataclasses.replace(one, seed=seed) for seed in seeds]


FAMILIES = (("dit", "vq"), ("dit", "vae"), ("maskgit", "vq"))
DIT, VAE, MASKGIT = (generator("toy", 0, {"decoder": family, "encoding": tokens}) for family, tokens in FAMILIES)
GPU = [generator("gpu", 0, {"decoder": family, "encoding": "vq"}) for family in ("dit", "maskgit", "givt", "mar")]


@pytest.mark.parametrize("status", ["diverged", "failed"])
@pytest.mark.usefixtures("quick_oracle")
def test_a_seed_of_a_generator_that_is_lost_is_replaced_on_all_sides(status: str, plan: Plan) -> None:
    there = [*of_seeds(DIT, 0, 1, 2), *of_seeds(MASKGIT, 0, 1, 2)]
    found = generated(there, {there[-1]: status})
    assert trained(plan, "continuous-beats-categorical", found) == {*of_seeds(DIT, 3), *of_seeds(MASKGIT, 3)}
    assert trained(plan, "categorical-forgets", found) == {*of_seeds(MASKGIT, 3)}
    later = generated([*of_seeds(DIT, 0, 1, 2), *of_seeds(MASKGIT, 0, 1, 2, 3)], {there[-1]: status})
    assert trained(plan, "continuous-beats-categorical", later) == {*of_seeds(DIT, 3)}


@pytest.mark.usefixtures("quick_oracle")
def test_a_seed_of_a_generator_whose_codes_are_not_seen_is_replaced(plan: Plan) -> None:
    found = generated([one for spec in (DIT, VAE, MASKGIT) for one in of_seeds(spec, 0, 1, 2)], unmet=(1,))
    dit, maskgit = (set(of_seeds(one, 3)) for one in (DIT, MASKGIT))
    both = {"continuous-beats-categorical": dit | maskgit, "categorical-forgets": maskgit}
    for claim, more in {**both, "tokenizer-does-not-decide": dit, "abrupt-on-vq": dit}.items():
        assert trained(plan, claim, found) == more


@pytest.mark.usefixtures("quick_oracle")
def test_a_seed_whose_tokenizer_missed_its_gate_is_left_to_the_study(plan: Plan) -> None:
    found = generated([one for spec in (DIT, MASKGIT) for one in of_seeds(spec, 0, 1, 2)])
    runs = [run for run in found.runs if run["seed"] != 1 or run["task"] == TOKENIZER]
    runs = [{**run, "status": "missed"} if run["seed"] == 1 else run for run in runs]
    more = {*of_seeds(DIT, 3), *of_seeds(MASKGIT, 3)}
    assert trained(plan, "continuous-beats-categorical", dataclasses.replace(found, runs=runs)) == more


@pytest.mark.usefixtures("quick_oracle")
def test_generators_that_are_missing_are_like_those_that_are_there(plan: Plan) -> None:
    claim = "continuous-beats-categorical"
    two = generated([one for spec in GPU[:2] for one in of_seeds(spec, 0, 1)])
    assert trained(plan, claim, two) == {*of_seeds(GPU[0], 2), *of_seeds(GPU[1], 2)}
    assert trained(plan, claim, generated(of_seeds(GPU[0], 0, 1, 2))) == {*of_seeds(GPU[1], 0, 1, 2)}
    both = generated([*of_seeds(GPU[0], 0, 1, 2), *of_seeds(GPU[1], 0, 1, 2)])
    assert trained(plan, "masking-is-not-it", both) == {one for spec in GPU[2:] for one in of_seeds(spec, 0, 1, 2)}
    own = {"width": 64, "holdout": "000,010,001", "codes": 64, "pair": "triangle", "probe_torn": 0.0}
    run = {"max_steps": 700, "data_count": 512, "lr": 0.002, "schedule": "cosine", "precision": "bfloat16"}
    dit = generator("coarse", 0, {"decoder": "dit", "encoding": "vq", **own}, **run)
    maskgit = generator("coarse", 0, {"decoder": "maskgit", "encoding": "vq", "smoothing": 0.1, **own}, **run)
    found = generated([*of_seeds(dit, 0, 1), *of_seeds(maskgit, 0)])
    assert trained(plan, claim, found) == {*of_seeds(dit, 2), *of_seeds(maskgit, 1, 2)}


@pytest.mark.usefixtures("quick_oracle")
def test_generators_of_other_studies_that_are_missing_are_planned(plan: Plan) -> None:
    full, both = (spec_of("dit", "vq", conditioning=word) for word in ("full", "both"))
    assert trained(plan, "conditioning", generated(of_seeds(full, 0, 1, 2))) == {*of_seeds(both, 0, 1, 2)}
    often = spec_of("dit", "vq", conditioning="both", dropout=0.3)
    found = generated([*of_seeds(full, 0, 1), *of_seeds(often, 0, 1, 2)])
    assert trained(plan, "conditioning", found) == {*of_seeds(full, 2)}
    loss, dit, maskgit = spec_of("maskgit", "vq", jepa=0.6, jepa_layers="one"), spec_of("dit", "vq"), spec_of("maskgit", "vq")
    found = generated([one for spec in (loss, dit, maskgit) for one in of_seeds(spec, 0, 1)])
    assert trained(plan, "jepa-helps", found) == {one for spec in (loss, dit, maskgit) for one in of_seeds(spec, 2)}
    unknown = generated(of_seeds(maskgit, 0), {maskgit: "diverged"})
    [command] = commands("jepa-heads", unknown)
    assert command == "python -m orchestrator.jepa --seeds 4 --store 'some store' --dry-run"


@pytest.mark.usefixtures("quick_oracle")
def test_generators_go_on_from_the_first_seed_that_is_there(plan: Plan) -> None:
    found = generated([*of_seeds(DIT, 50, 51, 52), *of_seeds(MASKGIT, 50, 51)])
    assert trained(plan, "continuous-beats-categorical", found) == {*of_seeds(MASKGIT, 52)}


@pytest.mark.usefixtures("quick_oracle")
def test_what_no_study_can_be_asked_for_alone_is_only_shown() -> None:
    """As a setting that was given for others, to which it means something; and pictures in a folder that no row names."""
    beside = generator("toy", 0, {"decoder": "maskgit", "encoding": "vq"})
    beside = dataclasses.replace(beside, options=tuple(sorted({**dict(beside.options), "ddim_steps": 7}.items())))
    real = dataclasses.replace(DIT, dataset="celeba")
    mixed = dataclasses.replace(DIT, options=tuple(sorted({**dict(DIT.options), "mixture": 4}.items())))
    [command] = commands("conditioning", generated(of_seeds(mixed, 0, 1, 2)))
    assert command == "python -m orchestrator.conditioning --seeds 3 --store 'some store' --dry-run"
    for spec, claim in ((beside, "categorical-forgets"), (real, "continuous-beats-categorical")):
        [command] = commands(claim, generated(of_seeds(spec, 0)))
        assert command == "python -m orchestrator.objectives --seeds 3 --store 'some store' --dry-run"


@pytest.mark.usefixtures("quick_oracle")
def test_several_commands_are_told_as_such_and_an_unmeasured_run_with_what_measures_it(plan: Plan) -> None:
    without, loss = (spec_of("maskgit", "vq", **jepa) for jepa in ({}, {"jepa": 0.6, "jepa_layers": "three"}))
    two = generated([*of_seeds(without, 0, 1), *of_seeds(loss, 0, 1)])
    assert trained(plan, "jepa-heads", two) == {*of_seeds(without, 2), *of_seeds(loss, 2)}
    text = pages.Report.of([paper_of(BY_ID["jepa-heads"])], two).html()
    assert "These commands train the missing runs:" in text
    three = generated([*of_seeds(without, 0, 1, 2), *of_seeds(loss, 0, 1, 2)])
    text = pages.Report.of([paper_of(BY_ID["jepa-heads"])], three).html()
    assert re.search("No run is missing: .*; runs are measured by: python -m analysis.measure --store &#39;some", text)


@pytest.mark.usefixtures("quick_oracle")
def test_runs_of_generators_that_lack_a_measure_are_not_called_missing() -> None:
    longer = [dataclasses.replace(one, max_steps=9600) for one in (DIT, MASKGIT)]
    found = generated([*of_seeds(DIT, 0, 1, 2), *of_seeds(MASKGIT, 0, 1, 2), *longer])
    claim = "continuous-beats-categorical"
    text = pages.Report.of([paper_of(BY_ID[claim])], dataclasses.replace(found, table=table_of([]))).html()
    assert "No run is missing: dit on vq, max steps 4800 against maskgit on vq, max steps 4800: not enough runs: " in text
    assert "gate 3 is not known of 3; gate 3 is known after: python -m analysis.measure --store &#39;some store&#39;." in text
    assert "<code>" not in text


def test_a_store_of_any_name_is_one_word(tmp_path: Path, plan: Plan) -> None:
    store = str(tmp_path / "a b'$(c)")
    [command] = commands("superposition", results([spec()], store))
    assert plan(command)[1].store == store
