"""How long runs take: judged by finished runs like them."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from orchestrator import launch, scaling, thresholds
from orchestrator.command.cli import run
from orchestrator.command.thresholds import plan_table
from orchestrator.engine import estimate
from orchestrator.engine.estimate import GUESSED_PROBES, Chain, Pace, StepTimes, Work, runs_left, usual_of
from orchestrator.errors import UserError
from orchestrator.searches import Latest, Rows
from orchestrator.searches.axes import Axes, Between
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import make_row
from orchestrator.study import GridStudy
from orchestrator.thresholds import ThresholdStudy
from tests.conftest import check_refusal
from tests.toy import Toy, threshold
from trainables.spec import GIVEN_UP, Counts, RunSpec
from trainables.training.loop import Training
from trainables.training.run import UnfitError


def spec(N: int = 16, **changes: Any) -> RunSpec:
    fields = {"task": "tests.toy:Toy", "dataset": "toys", "N": N, "data_count": 1, "seed": 0, "decoder": "mlp", "width": 8}
    return RunSpec(**{**fields, "depth": 1, "encoding": "none", **changes})


DONE = {"status": "missed", "reason": "budget", "seconds": 1.0, "steps": 100}


def row(seconds: float, steps: int, N: int = 16, **changes: Any) -> Any:
    told = {"status": "missed", "reason": "budget", "seconds": seconds, "steps": steps}
    return make_row(spec(N, **changes), task_version="1", fixed_count=0, **told)


def test_a_step_takes_as_long_as_in_runs_of_the_same_network_and_size() -> None:
    times = StepTimes.of([row(1.0, 100), row(3.0, 100, seed=1), row(9.0, 100, decoder="cnn"), row(0.0, 0, seed=2)])
    assert times(spec()) == pytest.approx(0.02)
    assert times(spec(decoder="cnn")) == pytest.approx(0.09)


def test_another_size_takes_time_in_proportion_to_its_pixels_if_one_is_known() -> None:
    times = StepTimes.of([row(1.0, 100)])
    assert times(spec(8)) == pytest.approx(0.01 / 4)
    assert times(spec(64)) == pytest.approx(0.01 * 16)


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        # 0.1 s and 0.01 N^2, on both sides of the two and between them
        ({16: 2.66, 32: 10.34}, {8: 0.74, 16: 2.66, 20: 4.1, 64: 41.06}),
        # of three sizes, those that enclose it, or the ends
        ({10: 1.1, 20: 2.0, 30: 9.1}, {5: 0.35, 15: 1.475, 25: 5.195, 40: 16.1}),
        # no growth, and less with N: beyond them as the nearer
        ({16: 3.0, 32: 3.0}, {8: 3.0, 20: 3.0, 64: 3.0}),
        ({10: 3.0, 20: 2.0}, {5: 3.0, 15: 3 - 125 / 300, 64: 2.0}),
        # N^3
        ({10: 1.0, 20: 8.0}, {5: 0.125, 40: 64.0}),
        # sizes that are not well apart tell nothing of how it grows, nor does chance go beyond N^3
        ({16: 4.2, 18: 9.9}, {17: 4.2 + 5.7 * 33 / 68, 64: 9.9 * 64**2 / 18**2, 8: 1.05}),
        ({16: 5.0, 18: 4.2}, {128: 4.2 * 128**2 / 18**2}),
        ({10: 1.0, 20: 100.0}, {40: 800.0, 5: 0.125}),
    ],
)
def test_from_two_sizes_on_a_part_of_a_step_may_not_grow_with_the_size(at: dict[int, float], wanted: dict[int, float]) -> None:
    times = StepTimes.of([row(100 * seconds, 100, N=N) for N, seconds in at.items()])
    assert {N: times(spec(N)) for N in wanted} == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("step", "timed"),
    [
        (lambda N: 1e-3, [8, 24]),
        (lambda N: 2e-2, [8]),  # by N^2 0.18 s at 24
    ],
)
def test_two_sizes_are_timed_if_steps_are_not_dear(
    step: Callable[[int], float], timed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(estimate, "step_seconds", lambda spec, *_: asked.append(spec.N) or step(spec.N))
    times = StepTimes.of([])
    times.measure_sizes([spec(N) for N in (24, 8, 64, 32)], Toy())
    assert asked == timed, "16 is the first of twice the size, or a larger one"
    assert times(spec(64)) == pytest.approx(step(8) * (1 if len(timed) == 2 else 64))


@pytest.mark.parametrize(("sizes", "timed"), [((8, 11, 12, 14), [8, 12]), ((8, 11), [8]), ((8, 12, 16), [8, 16])])
def test_a_second_size_is_well_apart_if_none_is_twice_the_first(
    sizes: tuple[int, ...], timed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(estimate, "step_seconds", lambda spec, *_: asked.append(spec.N) or 1e-3)
    StepTimes.of([]).measure_sizes(map(spec, sizes), Toy())
    assert asked == timed


@pytest.mark.parametrize(("seconds", "timed"), [(1.2, [8, 16]), (1.3, [8])])
def test_a_second_size_is_timed_if_that_takes_no_five_seconds(
    seconds: float, timed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By N^2 four times as long as the first, of which a step is quick, and all else is not."""
    clock, asked = [0.0], list[int]()

    def take(spec: RunSpec, *_: Any) -> float:
        clock[0] += seconds
        asked.append(spec.N)
        return 1e-3

    monkeypatch.setattr(estimate, "step_seconds", take)
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: clock[0])
    StepTimes.of([]).measure_sizes([spec(8), spec(16)], Toy())
    assert asked == timed


def test_too_little_memory_for_a_second_size_leaves_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(spec: RunSpec, *_: Any) -> float:
        if spec.N > 8:
            raise estimate.UntimedError("too small")
        return 1e-3

    monkeypatch.setattr(estimate, "step_seconds", timed)
    times = StepTimes.of([])
    times.measure_sizes([spec(8), spec(16)], Toy())
    assert times(spec(16)) == pytest.approx(4e-3)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({16: 12.8}, {8: 12.8, 64: 12.8}),  # one size tells nothing of others
        ({16: 12.8, 20: 20.0}, {8: 12.8, 64: 20.0}),  # nor do two that are not well apart
        ({4: 0.8, 8: 3.2, 16: 12.8}, {2: 0.2, 6: 1.8, 16: 12.8, 32: 51.2, 64: 204.8}),
        ({4: 3.0, 8: 2.0}, {2: 3.0, 16: 2.0}),  # a program is not taken to be faster with a larger size
        ({4: 1.0, 8: 64.0}, {16: 512.0}),  # the sixth power is not believed
    ],
)
def test_how_the_time_of_a_program_grows_is_told_by_sizes_well_apart(
    known: Mapping[int, float], expected: Mapping[int, float]
) -> None:
    times = StepTimes.of([row(seconds, 1, N=N) for N, seconds in known.items()], power=None)
    assert {N: times(spec(N)) for N in expected} == pytest.approx(expected)


def test_another_network_is_better_than_nothing() -> None:
    assert not StepTimes.of([])
    assert StepTimes.of([])(spec()) == 0.0
    assert StepTimes.of([row(1.0, 100)])(spec(depth=7)) == pytest.approx(0.01)


def test_runs_on_another_kind_of_device_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[bool] = []
    monkeypatch.setattr(estimate, "step_seconds", lambda spec, task, on_gpu: where.append(on_gpu) or 0.5)
    on_gpu = {"device": "cuda"}
    rows = [row(1.0, 100), {**row(1.0, 1000, seed=1), **on_gpu}, {**row(9.0, 10, decoder="cnn"), **on_gpu}]
    here, there = StepTimes.of(rows, on_gpu=lambda decoder: False), StepTimes.of(rows, on_gpu=lambda decoder: decoder != "cnn")
    assert (here(spec()), there(spec())) == (pytest.approx(0.01), pytest.approx(0.001))
    assert StepTimes.of(rows[1:], on_gpu=lambda decoder: False)(spec()) == 0.0
    assert StepTimes.of(rows[:2])(spec()) == pytest.approx(2 / 1100)  # it is not known which are trained where
    assert StepTimes.of(rows[:1], on_gpu=lambda decoder: decoder == "cnn")(spec(decoder="cnn")) == 0.0
    here.measure(spec(N=24), Toy())
    there.measure(spec(N=24), Toy())
    assert where == [False, True]


def test_nothing_is_guessed_of_a_kind_of_device_on_which_no_run_has_finished() -> None:
    cheap, dear = spec(decoder="mlp"), [spec(decoder="cnn", seed=seed) for seed in range(3)]
    study = GridStudy("encodings", Toy(), [cheap, *dear], {"store": "here", "out": "there"})
    rows = Rows([make_row(cheap, task_version="1", fixed_count=0, **DONE)], lambda decoder: decoder == "cnn")
    assert study.work_left(rows) is None
    rows.add(make_row(dear[0], task_version="1", fixed_count=0, **{**DONE, "device": "cuda"}))
    assert study.work_left(rows) == Work([(pytest.approx(0.01 * dear[0].max_steps), 1)] * 2)


def test_the_line_of_a_run_tells_an_error_that_it_has_alone() -> None:
    study = GridStudy("encodings", Toy(), [spec()], {"store": "here", "out": "there"})
    made = make_row(spec(), task_version="1", fixed_count=0, **DONE, ood_mse=0.25, accuracy=0.5)
    assert study.line(made) == "mlp, seed 0: missed (MSE 2.5e-01 OOD, 100 steps, 1.0 s)"


def test_thresholds_of_which_some_are_on_a_kind_of_device_that_is_not_known_have_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    axes, known = Axes("data_count", "decoder", scaled=False), {"task_version": "1", "counts": Counts(1, 40)}
    brackets = [
        Bracket(template=spec(data_count=0, decoder=decoder), axes=axes, **known)  # type: ignore[arg-type]
        for decoder in ("mlp", "cnn")
    ]
    study = ThresholdStudy(Toy(), brackets, 0.05, {"store": "here", "out": "there"}, speculate=False)
    rows = Rows([], lambda decoder: decoder == "cnn")
    [first, *_] = study.search.propose(rows, 1)
    rows.add(make_row(first, task_version="1", fixed_count=0, **DONE))
    assert study.work_left(rows) is None
    asked = list[str]()
    monkeypatch.setattr(estimate, "step_seconds", lambda spec, *_: asked.append(spec.decoder) or 1e-3)
    assert study.plan(rows)[1] is not None
    assert asked == ["cnn"], "a plan times it"


@pytest.mark.parametrize("change", [{"batch_size": 256}, {"options": (("layers", 9),)}, {"precision": "bfloat16"}])
def test_runs_of_a_network_with_other_settings_take_another_time(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = spec(**change)
    assert StepTimes.of([row(1.0, 100), row(9.0, 100, **change)])(other) == pytest.approx(0.09)
    assert StepTimes.of([row(1.0, 100)])(other) == pytest.approx(0.01), "which is better than nothing"
    rows = [row(1.0, 100), row(9.0, 100, **change), row(4.0, 100, N=32)]
    assert StepTimes.of(rows)(spec(32, **change)) == pytest.approx(0.04), "a size that is known goes before"
    asked: list[RunSpec] = []
    monkeypatch.setattr(estimate, "step_seconds", lambda spec, *_: asked.append(spec) or 0.01 * len(asked))
    times = StepTimes.of([])
    for one in (spec(), other, spec(lr=0.1, seed=7)):
        times.measure(one, Toy())
    assert asked == [spec(), other]
    assert [times(spec()), times(other)] == [0.01, 0.02]
    StepTimes.of([row(1.0, 100)]).measure(other, Toy())
    assert len(asked) == 2, "runs that have finished, perhaps in packs, tell more"


def taking(
    seconds: float, monkeypatch: pytest.MonkeyPatch, setting: str, step: Callable[[int], float] = lambda value: 1.0
) -> list[int]:
    """Timing takes so many seconds of a clock of its own. The values of a setting whose steps were timed, as they come."""
    clock, asked = [0.0], list[int]()

    def timed(spec: RunSpec, *_: Any) -> float:
        clock[0] += seconds
        asked.append(getattr(spec, setting))
        return step(asked[-1])

    monkeypatch.setattr(estimate, "step_seconds", timed)
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: clock[0])
    return asked


def test_only_as_many_settings_are_timed_as_a_plan_has_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = taking(2.0, monkeypatch, "batch_size")
    times = StepTimes.of([])
    for size in range(1, 30):
        times.measure(spec(batch_size=size), Toy())
    assert asked == [1, 2, 3]
    times.measure(spec(N=32), Toy())
    assert asked == [1, 2, 3, 32], "another size is timed in any case"


def test_a_further_setting_that_cannot_be_timed_here_is_guessed_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(spec: RunSpec, *_: Any) -> float:
        if spec.batch_size > 8:
            raise estimate.UntimedError("the memory here is too small")
        return 1.0

    monkeypatch.setattr(estimate, "step_seconds", timed)
    times = StepTimes.of([])
    for size in (8, 64):
        times.measure(spec(batch_size=size), Toy())
    assert times(spec(batch_size=64)) == 1.0
    with pytest.raises(estimate.UntimedError):
        StepTimes.of([]).measure(spec(batch_size=64), Toy())


def test_what_is_not_known_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(estimate, "step_seconds", lambda spec, *_: asked.append(spec.N) or 0.5)
    times = StepTimes.of([row(1.0, 100)])
    for N in (16, 24, 24):
        times.measure(spec(N), Toy())
    assert asked == [24]
    assert [times(spec(N)) for N in (16, 24)] == [0.01, 0.5]


def along(setting: str, *values: Any, **known: Any) -> ThresholdStudy:
    """The thresholds along another setting than N."""
    axes = Axes.of("data_count", setting, values)
    brackets = [
        Bracket(template=spec(data_count=0, stop="early").with_value(setting, v), task_version="1", counts=COUNTS, axes=axes)
        for v in values
    ]
    return ThresholdStudy(Toy(), brackets, 0.05, {"store": "here", "out": "there"}, speculate=False, **known)


COUNTS = Counts(1, 400)
SHARES = {"width": 1e-5, "batch_size": 1e-6, "depth": 1e-2}


def timed_by(setting: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Steps take time in proportion to a setting; its values, as they are timed."""
    asked: list[Any] = []

    def timed(spec: RunSpec, *_: Any) -> float:
        asked.append(getattr(spec, setting))
        return SHARES[setting] * asked[-1]

    monkeypatch.setattr(estimate, "step_seconds", timed)
    return asked


def seconds_of(study: ThresholdStudy, rows: Rows) -> dict[Any, float]:
    """What a plan tells of each value along."""
    told: dict[Any, float] = {}
    with mock.patch.object(thresholds, "plan_table", lambda results, seconds, guessed: told.update(seconds) or ""):
        study.plan(rows)
    return {value: seconds for (_, value), seconds in told.items()}


@pytest.mark.parametrize(("setting", "values"), [("width", (8, 64, 512)), ("batch_size", (1, 4096)), ("depth", (1, 20))])
def test_every_value_along_another_setting_than_the_size_is_timed(
    setting: str, values: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = timed_by(setting, monkeypatch)
    told = seconds_of(along(setting, *values), Rows())
    assert sorted(asked) == sorted(values)
    least = told[values[0]] / values[0]
    assert told == pytest.approx({value: least * value for value in values}, rel=0.25), "the first one walks, others wait"


@pytest.mark.parametrize(("setting", "values"), [("width", (8, 64, 512)), ("batch_size", (32, 4096))])
def test_values_along_of_which_no_run_is_known_are_timed(
    setting: str, values: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = timed_by(setting, monkeypatch)
    study = along(setting, *values)
    seconds = 100 * SHARES[setting] * values[0]
    [first] = study.search.propose(Rows(), 1)
    rows = Rows([make_row(first, task_version="1", fixed_count=0, **{**DONE, "seconds": seconds})])
    told = seconds_of(study, rows)
    assert asked == [*values[1:]]
    ratio = told[values[-1]] / told[values[0]]
    assert ratio == pytest.approx(values[-1] / values[0], rel=0.4)


@pytest.mark.parametrize(
    ("taken", "step", "values", "timed"),
    [
        (30.0, 1e-3, (1, 2, 3, 4, 400), [1, 2]),
        (10.0, 0.9, (1, 2, 3, 4, 5, 6), [1, 2, 3, 4, 5]),
        (0.1, 0.9, (1, 2, 5, 6, 600), [1, 2, 5]),
        (70.0, 1e-3, (1, 400), [1, 400]),
    ],
)
def test_values_along_whose_steps_are_dear_are_guessed_from_smaller_ones(
    taken: float, step: float, values: tuple[int, ...], timed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a minute to time steps, or a step takes more than five seconds."""
    asked = taking(taken, monkeypatch, "width", lambda width: step * width)
    told = seconds_of(along("width", *values), Rows())
    assert asked == timed
    least = min(told[value] / value for value in values)
    assert told == pytest.approx({value: least * value for value in values}, rel=0.3)


def test_words_along_are_not_timed_for_longer_than_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = [0.0], list[str]()

    def take(spec: RunSpec, *_: Any) -> float:
        clock[0] += 40.0
        asked.append(spec.decoder)
        return 1e-3 * len(asked)

    monkeypatch.setattr(estimate, "step_seconds", take)
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: clock[0])
    told = seconds_of(along("decoder", "mlp", "cnn", "vit"), Rows())
    assert asked == ["mlp", "cnn"]
    assert told["mlp"] < told["vit"] < told["cnn"]


def test_a_value_along_that_cannot_be_timed_here_leaves_no_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(spec: RunSpec, *_: Any) -> float:
        if spec.batch_size > 8:
            raise estimate.UntimedError("the memory here is too small")
        return 1.0

    monkeypatch.setattr(estimate, "step_seconds", timed)
    with pytest.raises(estimate.UntimedError):
        along("batch_size", 8, 64).plan(Rows())


def test_a_value_along_that_cannot_be_timed_here_is_guessed_from_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(spec: RunSpec, *_: Any) -> float:
        if spec.batch_size > 16:
            raise estimate.UntimedError("the memory here is too small")
        return float(spec.batch_size)

    monkeypatch.setattr(estimate, "step_seconds", timed)
    told = seconds_of(along("batch_size", 8, 16, 64), Rows())
    assert told[64] == pytest.approx(8 * told[8], rel=0.3)


def test_many_values_close_to_each_other_are_timed_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = taking(7.0, monkeypatch, "width")
    told = seconds_of(along("width", *range(1000, 1050)), Rows())
    assert asked == [*range(1000, 1009)]
    assert len(told) == 50


def test_a_first_step_of_many_seconds_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, steps = [0.0], list[int]()

    def take(self: Training, *_: Any) -> None:
        clock[0] += 40.0
        steps.append(1)

    monkeypatch.setattr(Training, "advance", take)
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: clock[0])
    assert estimate.step_seconds(spec(), Toy()) == 40.0
    assert len(steps) == 1


@pytest.mark.parametrize(("slow", "wanted"), [(99.0, 2.0 + 30.0 / 20), (2.0, 2.0)])
def test_a_step_has_its_share_of_a_look_unless_steps_are_slow(
    slow: float, wanted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def passing(seconds: float) -> Any:
        def take(self: Training, *_: Any) -> None:
            clock[0] += seconds

        return take

    monkeypatch.setattr(Training, "advance", passing(2.0))
    monkeypatch.setattr(Training, "answer", passing(30.0))
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(estimate, "SLOW_STEP", slow)
    task = Toy()
    assert estimate.step_seconds(spec(data_count=task.counts(spec()).low or 1, max_steps=100), task) == wanted


@pytest.mark.parametrize("max_steps", [1, 2, 3, 5, 6, 7])
def test_a_run_may_end_while_its_steps_are_timed(max_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "SLOW_STEP", 99.0)
    task = Toy()
    assert 0 < estimate.step_seconds(spec(data_count=task.counts(spec()).low or 1, max_steps=max_steps), task) < 30


def test_of_a_run_of_one_step_no_calls_are_timed_that_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, train_step = list[int](), Training.train_step
    monkeypatch.setattr(Training, "train_step", lambda self: taken.append(self.step) or train_step(self))
    monkeypatch.setattr(estimate, "SLOW_STEP", 0.0)
    estimate.step_seconds(spec(max_steps=1), Toy())
    assert taken == [*range(10)], "one to warm up, and those that are timed"


@pytest.mark.parametrize(("times", "told", "taken"), [
    ([0.01] * 4 + [5.0], 0.01, 5), ([0.02, 0.9, 0.03, 7.0], 0.03, 3), ([1e-3] * 20, 1e-3, 9), ([0.1] * 9, 0.1, 3),
])  # fmt: skip
def test_a_step_that_was_held_up_does_not_count(times: list[float], told: float, taken: int) -> None:
    left = iter(times)
    assert estimate._sampled(lambda: next(left)) == told
    assert len([*left]) == len(times) - taken


class Late(Toy):
    """A step fails with more samples than the check of a task takes, in one way or another."""

    ways: tuple[BaseException, ...] = (ArithmeticError("too many\nsamples"),)

    def model(self, spec: RunSpec) -> nn.Module:
        return Failing(self.ways)


class Failing(nn.Linear):
    def __init__(self, ways: tuple[BaseException, ...]) -> None:
        super().__init__(1, 1)
        self.ways = ways

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if len(inputs) > 4:
            if not self.ways:
                torch.empty(2**50)
            raise self.ways[0]
        return super().forward(inputs)


def failing(*ways: BaseException) -> Toy:
    return type("Failed", (Late,), {"ways": ways})()


STEP = "tests.toy:Toy at N = 16, data_count = 1, batch_size = 32"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ArithmeticError("too many\nsamples"), "ArithmeticError: too many"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (FileNotFoundError(2, "No such file", "x.csv"), "FileNotFoundError: [Errno 2] No such file: 'x.csv'"),
    ],
)
def test_a_step_that_fails_is_told_in_a_line(error: BaseException, told: str) -> None:
    with pytest.raises(UserError) as caught:
        estimate.step_seconds(spec(), failing(error))
    assert str(caught.value) == f"timing a few steps of {STEP} fails with {told}: mend the task, or ask for other settings"


@pytest.mark.parametrize(
    ("ways", "told_as"),
    [
        ((), "RuntimeError: [enforce fail"),
        ((MemoryError(),), "MemoryError): "),
        ((RuntimeError("CUDA out of memory"),), "RuntimeError: CUDA out of memory): "),
    ],
)
def test_a_step_that_runs_out_of_memory_is_told_in_a_line(ways: tuple[BaseException, ...], told_as: str) -> None:
    with pytest.raises(estimate.UntimedError) as caught:
        estimate.step_seconds(spec(), failing(*ways))
    told = f"{caught.value}: "
    assert told.startswith(f"the memory here is too small for a step of {STEP} ({told_as}")
    assert told.endswith("): ")
    assert told.isprintable(), "it is one line"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UnfitError("the folder of the pictures is not here")])
def test_what_is_no_fault_of_a_step_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        estimate.step_seconds(spec(), failing(error))
    assert caught.value is error


def test_runs_of_a_precision_of_gpus_are_timed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "SLOW_STEP", 99.0)
    assert 0 < estimate.step_seconds(spec(precision="tf32", max_steps=10), Toy()) < 30


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        ("Late", "at N = 8, data_count = 1, batch_size = 32 fails with ArithmeticError: too many: mend the task"),
        ("Large", f"error: the memory here is too small for a step of {__name__}:Large at N = 8, "),
    ],
)
def test_a_dry_run_ends_with_a_line_where_a_step_fails(
    task: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(scaling.app, ["--task", f"{__name__}:{task}", "--N", "8", "--dry-run"], hint, tmp_path, capsys)


def test_a_limit_on_time_refuses_no_launch_whose_steps_cannot_be_timed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "executed", lambda execution, *_: contextlib.nullcontext(execution.outcome))
    words = ["--task", f"{__name__}:Large", "--N", "8", "--max-hours", "2"]
    assert run(scaling.app, words, name="scaling") == 1
    told = " ".join(capsys.readouterr().out.split())
    assert f"no estimate: the memory here is too small for a step of {__name__}:Large at N = 8, data_count = 1, " in told
    assert "--dry-run" not in told
    assert "starting Ray on this machine" in told


class Large(Late):
    ways = ()


def test_a_few_long_steps_do_not_stand_for_all() -> None:
    """A run of few steps is mostly its start and its end."""
    assert StepTimes.of([row(1.0, 10), row(9.0, 990, seed=1)])(spec()) == pytest.approx(0.01)


def runs(start: float, step: float, *steps: int, N: int = 16, **changes: Any) -> list[Any]:
    """Rows of runs that take so many seconds before their first step, and so many for each step."""
    return [row(start + step * count, count, N, seed=seed, **changes) for seed, count in enumerate(steps)]


@pytest.mark.parametrize(
    ("known", "short", "wanted"),
    [
        # three seconds to make the data: as many seconds a step as in the long and short runs of the other size
        (runs(3.0, 0.001, 20, 2000, 2000), runs(3.0, 0.001, 20, 20, N=20), 13.02 / 4020),
        # nothing before the first step: what the short runs say is right
        (runs(0.0, 0.001, 20, 2000, 2000), runs(0.0, 0.004, 20, 20, N=20), 0.004),
        (runs(0.0, 0.001, 20, 2000, 2000), runs(0.0, 0.0001, 20, 20, N=20), 0.0001),
        # steps of about the same number, and none of them
        (runs(3.0, 0.001, 40, 2000), runs(3.0, 0.001, 20, N=20), 3.02 / 20 * (8.04 / 2040) / (3.04 / 40)),
        (runs(3.0, 0.001, 50, 2000), runs(3.0, 0.001, 20, N=20), 3.02 / 20),
        (runs(3.0, 0.001, 2000), runs(3.0, 0.001, 20, N=20), 3.02 / 20),
        # of two other sizes the nearer one, and that with runs of both lengths
        ([*runs(3.0, 0.001, 20, 2000), *runs(1.0, 0.0, 20, 2000, N=24)], runs(3.0, 0.0, 20, N=23), 0.15 * (2 / 2020) / 0.05),
        ([*runs(3.0, 0.001, 20, 2000), *runs(1.0, 0.0, 2000, N=24)], runs(3.0, 0.0, 20, N=23), 0.15 * (8.02 / 2020) / 0.151),
        # runs that are long enough, at both sides of the share
        (runs(3.0, 0.0, 500, 2000), runs(3.0, 0.0, 500, N=20), 3.0 / 500),
        (runs(3.0, 0.0, 499, 2000), runs(3.0, 0.0, 499, N=20), 6.0 / 2499),
        # short runs are never taken to be too fast, nor does a clock that stands still disturb
        ([*runs(0.0, 0.001, 20), *runs(0.0, 0.01, 2000)], runs(3.0, 0.0, 20, N=20), 0.15),
        ([*runs(0.0, 0.0, 20), *runs(0.0, 0.01, 2000)], runs(3.0, 0.0, 20, N=20), 0.15),
    ],
)
def test_short_runs_alone_do_not_tell_how_long_a_step_takes_in_long_ones(
    known: list[Any], short: list[Any], wanted: float
) -> None:
    """They also take time before their first step."""
    size = short[0]["N"]
    assert StepTimes.of([*known, *short])(spec(size)) == pytest.approx(wanted)
    assert StepTimes.of([*short, *known])(spec(size)) == pytest.approx(wanted)
    assert StepTimes.of(known)(spec()) == StepTimes.of([*known, *short])(spec())


def test_short_runs_of_a_further_size_do_not_multiply_the_time_left() -> None:
    """Data that take three seconds; runs that pass after 20 steps, and others after 2000."""
    brackets = [
        Bracket(template=spec(N, seed=seed, data_count=0, stop="early"), task_version="1", counts=Counts(1, N**2))
        for N in (4, 5)
        for seed in range(2)
    ]
    study, rows = ThresholdStudy(Toy(), brackets, 0.05, {}, speculate=False), Rows()
    taken, said = list[float](), list[float]()
    while asked := study.search.propose(rows, 1):
        passes = asked[0].data_count >= threshold(asked[0].N, asked[0].seed)
        steps = 20 if passes else 2000
        ending = {"status": "passed", "reason": "target"} if passes else {"status": "missed", "reason": "budget"}
        told = {"seconds": 3 + 0.001 * steps, "steps": steps, "accuracy": float(passes), **ending}
        rows.add(make_row(asked[0], task_version="1", fixed_count=0, **told))
        taken.append(told["seconds"])
        left = study.work_left(rows)
        said.append(left.seconds if left else 0.0)
    true = [sum(taken[done:]) for done in range(1, len(taken) + 1)]
    assert 60 < sum(taken) < 90
    assert [one for one in zip(said[1:], true[1:], strict=True) if one[0] > 2.5 * max(one[1], 10)] == []


def test_a_run_of_the_search_takes_as_many_steps_as_those_of_its_data_set_at_the_nearest_size() -> None:
    """Drawn to the mean of all sizes, which counts as three runs."""
    pace = Pace.of([row(1.0, 100), row(1.0, 300, seed=1), row(1.0, 800, N=32), row(1.0, 50, dataset="others")])
    assert [pace.steps(spec(N)) for N in (8, 16, 64)] == [(400 + 3 * 400) / 5, (400 + 3 * 400) / 5, (800 + 3 * 400) / 4]
    assert pace.steps(spec(dataset="others")) == 50
    assert pace.steps(spec(32, dataset="unknown")) == (800 + 3 * 1250 / 4) / 4
    assert Pace.of([]).steps(spec()) == 0.0


def test_what_is_made_of_rows_is_made_anew_only_with_more_rows() -> None:
    rows, other = Rows([row(1.0, 100)]), Rows([row(1.0, 100), row(1.0, 100, seed=1)])
    made: list[int] = []
    latest = Latest(lambda found: made.append(len(found)) or len(found))
    assert [latest.of(rows), latest.of(rows), latest.of(other), latest.of(rows)] == [1, 1, 2, 1]
    assert made == [1, 2, 1]
    rows.add(row(2.0, 100))  # a row takes the place of another: there are as many, and yet others
    assert latest.of(rows) == 1
    assert made == [1, 2, 1, 1]


def test_what_answered_thresholds_took_is_expected_of_the_others_of_their_data_set() -> None:
    def answers(*verdicts: str, dataset: str = "toys") -> list[Any]:
        return [SimpleNamespace(dataset=dataset, verdict=verdict, runs=2) for verdict in verdicts]

    found = usual_of([*answers("minimum", "minimum", "minimum", "open"), *answers("reached", "open", dataset="others")])
    assert found["toys"] == ((3 * 2 + 3 * GUESSED_PROBES) / 6, (0 + 3 * 1) / 6)
    assert found["others"] == ((2 + 3 * GUESSED_PROBES) / 4, 1.0)
    assert usual_of(answers("open"))["toys"] == (GUESSED_PROBES, 1.0)


@pytest.mark.parametrize(("counts", "most"), [(Counts(30, 30), 1), (Counts(30, 32), 3), (Counts(1, 400), GUESSED_PROBES)])
def test_no_more_runs_are_expected_of_a_threshold_than_there_are_counts(counts: Counts, most: int) -> None:
    """Of three seeds the first one walks at once, and the others wait for it."""
    brackets = [
        Bracket(template=spec(seed=seed, data_count=0, stop="early"), task_version="1", counts=counts) for seed in range(3)
    ]
    search = ThresholdSearch(brackets, 0.05, False, "auto")
    rows = Rows()
    results = search.answer(rows)
    left = [r.probes_left or most for r in results]
    assert left[1:] == [most, most]
    assert runs_left(results) == sum(left)
    table = plan_table(results, {}, {"toys": GUESSED_PROBES})
    cells = {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}
    assert (cells["open"], cells["runs to do"], cells["audits"]) == (["3"], [str(sum(left))], ["3"])


def test_a_threshold_that_only_waits_for_audits_of_all_its_counts_asks_for_no_further_run() -> None:
    bracket = Bracket(template=spec(data_count=0, stop="early"), task_version="1", counts=Counts(30, 30))
    search, rows = ThresholdSearch([bracket], 0.05, False, "auto"), Rows()
    [asked] = search.propose(rows, 1)
    told = {"status": "missed", "reason": GIVEN_UP, "accuracy": 0.2, "seconds": 1.0, "steps": 100}
    rows.add(make_row(asked, task_version="1", fixed_count=0, **told))
    [result] = search.answer(rows)
    assert (result.verdict, result.audits_left) == ("open", 1)
    assert runs_left([result]) == 0


def test_a_threshold_that_nothing_reaches_and_that_waits_for_its_audit_takes_the_time_of_this_one_run() -> None:
    """Its walk is over, so no more than the audit is expected, however many runs are usual."""
    brackets = [Bracket(template=spec(data_count=0, stop="early"), task_version="1", counts=Counts(1, 400))]
    study, rows = ThresholdStudy(Toy(), brackets, 0.05, {}, speculate=False), Rows()
    while not (result := study.results(rows)[0]).tried or result.probes_left:
        for asked in study.search.propose(rows, 1):
            told = {"status": "missed", "reason": GIVEN_UP, "accuracy": 0.2, "seconds": 1.0, "steps": 100}
            rows.add(make_row(asked, task_version="1", fixed_count=0, **told))
    assert (result.verdict, result.upper) == ("open", None)
    assert study.work_left(rows).seconds == pytest.approx(result.audits_left * 0.01 * brackets[0].template.max_steps)


@pytest.mark.parametrize(
    ("runs", "workers", "wanted"),
    [
        # equal runs take whole rounds
        ([(460.0, 3)], 1, 1380.0),
        ([(460.0, 3)], 2, 920.0),
        ([(460.0, 3)], 3, 460.0),
        ([(460.0, 3)], 64, 460.0),
        ([(10.0, 65)], 64, 20.0),
        # a run cannot be divided, nor can as many long ones as workers and one more
        ([(100.0, 1), (1.0, 100)], 4, 100.0),
        ([(100.0, 1), (1.0, 100)], 1, 200.0),
        ([(1.0, 100), (100.0, 3)], 2, 200.0),
        ([(1.0, 100), (100.0, 2)], 2, 150.0),
        # what is expected of a run that may not be needed
        ([(100.0, 0.25)], 8, 25.0),
        ([(100.0, 0.1)] * 20, 2, 100.0),
        ([(10.0, 0.1)] * 40, 2, 20.0),
        ([(100.0, 0), (1.0, 3)], 2, 2.0),
        ([], 4, 0.0),
    ],
)
def test_the_time_of_work_is_never_below_that_of_whole_runs(
    runs: list[tuple[float, float]], workers: int, wanted: float
) -> None:
    assert Work(runs).on(workers) == pytest.approx(wanted)
    assert Work(runs).seconds == pytest.approx(sum(seconds * count for seconds, count in runs))


@pytest.mark.parametrize(("workers", "wanted"), [(1, 100.0), (2, 50.0), (4, 30.0), (4096, 30.0)])
def test_the_time_of_work_is_never_below_that_of_its_longest_chain(workers: int, wanted: float) -> None:
    work = Work([(5.0, 20)], [Chain(20.0), Chain(30.0), Chain(0.0)])
    assert work.on(workers) == wanted


@pytest.mark.parametrize(("workers", "wanted"), [(1, 100.0), (4, 10 + 40 / 4**0.25), (16, 30.0), (4096, 10 + 40 / 128**0.25)])
def test_workers_that_guess_ahead_shorten_the_walk_of_a_threshold(workers: int, wanted: float) -> None:
    work = Work([(5.0, 20)], [Chain(10.0, 40.0), Chain(12.0)])
    assert work.on(workers) == pytest.approx(wanted)


def test_runs_that_others_need_come_before_these() -> None:
    own = Work([(100.0, 3)])
    assert own.on(8) == 100.0
    assert own.after([(30.0, 3), (10.0, 3)], 30.0).on(8) == 130.0
    assert own.after([(30.0, 3), (10.0, 3)], 30.0).seconds == 420.0
    assert own.after([(30.0, 3)], 30.0).on(1) == 390.0
    assert Work([(5.0, 20)], [Chain(10.0, 40.0)]).after([(7.0, 1)], 7.0).on(16) == pytest.approx(7 + 10 + 40 / 2)
    assert Work().after([(7.0, 2)], 7.0).on(16) == 7.0


def test_three_equal_runs_on_two_workers_take_as_long_as_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "step_seconds", lambda *_: 0.1)
    specs = [spec(seed=seed) for seed in range(3)]
    study = GridStudy("rotation", Toy(), specs, {"store": "here", "out": "there"})
    work, one = study.plan(Rows())[1], 0.1 * specs[0].max_steps
    assert [work.on(workers) for workers in (1, 2, 3, 64)] == pytest.approx([3 * one, 2 * one, one, one])
    assert work.seconds == pytest.approx(3 * one)


def brackets_of(sizes: Sequence[int], seeds: int) -> list[Bracket]:
    return [
        Bracket(template=spec(N, data_count=0, seed=seed, stop="early"), task_version="1", counts=COUNTS)
        for N in sizes
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(("sizes", "seeds", "walks"), [((8,), 1, [8]), ((8,), 3, [8, 8]), ((8, 16, 32), 3, [8, 16, 32, 32])])
def test_thresholds_take_no_less_than_the_walks_that_wait_for_each_other(
    sizes: tuple[int, ...], seeds: int, walks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pilots of all sizes, then another seed of the last one; and the audit at its end."""
    monkeypatch.setattr(estimate, "step_seconds", lambda spec, *_: 1e-4 * spec.N**2)
    monkeypatch.setattr(estimate, "probes_left", lambda result, usual: 4.0)
    monkeypatch.setattr(thresholds, "probes_left", lambda result, usual: 4.0)
    plans = {}
    for speculate in (False, True):
        study = ThresholdStudy(Toy(), brackets_of(sizes, seeds), 0.05, {"store": "here", "out": "there"}, speculate)
        plans[speculate] = study.plan(Rows())[1]
    step = 1e-4 * sizes[-1] ** 2
    audit = spec().max_steps * step
    walked = sum(4 * estimate.GUESSED_STEPS * 1e-4 * N**2 for N in walks)
    assert plans[False].on(4096) == pytest.approx(audit + walked)
    assert plans[True].on(16) == pytest.approx(audit + walked / 2)
    assert plans[True].on(1) == plans[True].seconds == plans[False].seconds


def test_walks_along_words_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "step_seconds", lambda *_: 0.01)
    one, three = (along("encoding", *words).plan(Rows())[1] for words in (("none",), ("none", "bump", "ramp")))
    assert three.seconds > 2 * one.seconds
    assert three.on(4096) == pytest.approx(one.on(4096))


def test_a_least_width_is_timed_where_its_search_begins_and_then_where_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = timed_by("width", monkeypatch)
    axes = Axes("width", "N")
    brackets = [
        Bracket(template=spec(N, seed=seed, stop="early"), task_version="1", counts=Between(4, 1024), axes=axes)
        for N in (16, 24)
        for seed in range(2)
    ]
    study, rows = ThresholdStudy(Toy(), brackets, 0.05, {"store": "here", "out": "there"}, speculate=False), Rows()
    [first] = study.search.propose(rows, 1)
    study.plan(rows)
    assert asked[0] == pytest.approx(first.width, rel=0.5)
    assert asked[0] > 100, "the middle is 64"
    while (result := study.results(rows)[0]).verdict == "open":
        [one] = study.search.propose(rows, 1)
        told = {"status": "passed" if one.width >= 500 else "missed", "reason": "budget", "steps": 100}
        rows.add(make_row(one, task_version="1", fixed_count=0, seconds=0.01 * one.width, **told))
    left = study._left(study.results(rows), study._pace(rows))
    step = 1e-4 * float(result.upper or 0)
    assert left[1].audit == pytest.approx(spec().max_steps * step), "the other seed comes to a width like this one"
