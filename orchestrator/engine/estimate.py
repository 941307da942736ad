"""How long runs take: judged by finished runs like them, else by a few steps timed here and now."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from orchestrator.engine.scratch import scratch
from orchestrator.errors import UserError
from orchestrator.searches import Row
from orchestrator.searches.bracket import ThresholdResult
from trainables.spec import RunSpec
from trainables.task import Task

FEWEST_SAMPLED, SAMPLED_STEPS, SAMPLED_SECONDS = 3, 9, 0.3
"""A step is timed so many times: at least the first number; up to the second one as long as all took less than this."""
WARM_STEPS = 5
"""Steps of a GPU before that: it records the fourth."""
SLOW_STEP = 0.5
"""Seconds of a step from which on no look is timed, as one may take minutes."""
DEAR_STEP, DEAR_RUN = 0.1, 5.0
"""Seconds of a step, and of all it takes to time some, from which on no second size is timed, as far as can be said before. A
first step of so many seconds is not taken again."""
PATIENCE = 60.0
"""Seconds of timing from which on no further value of a setting is timed that can be guessed."""
APART = 1.5
"""Two sizes tell how a step grows if the larger one is at least so many times the smaller one."""
STEEPEST = 3.0
"""The highest power of N with which the time of a program is taken to grow."""

SHORT = 0.25
"""Runs are short if all of their size have less than this share of the steps of the longest run of their network."""
ALIKE = 2.0
"""Runs have about as many steps as others if they have at most so many times more or fewer."""

GUESSED_PROBES = 5
"""Runs a threshold is expected to take before anything is known."""
LEAST_LEFT = 0.5
"""Probes of a threshold that is not begun and has as many runs as are usual: it may only wait for another one."""
GUESSED_STEPS = 400
"""Steps of such a run."""
WEIGHT = 3
"""What is expected beforehand counts as much as so many thresholds, or runs, of which it is known."""

GUESSING, MOST_GUESSING = 0.25, 128
"""A threshold search that guesses ahead is shorter by the number of workers to this power, and by no more workers than that.
Simulated (`benchmarks/threshold_search.py`): 1.4 times with 4, 1.6 to 1.9 with 8, 2.3 to 2.5 with 32, 2.7 to 3.4 with 128."""

Shape = tuple[Any, ...]


class Chain(NamedTuple):
    """Seconds of runs that come one after another, however many workers there are."""

    fixed: float
    walk: float = 0.0
    """Those of a threshold search, whose workers may guess ahead."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is left to train, and what of it cannot be done at the same time."""

    runs: Sequence[tuple[float, float]] = ()
    """Seconds of a run, and how many runs take so long, as far as can be expected."""
    chains: Sequence[Chain] = ()

    def __bool__(self) -> bool:
        """Whether anything is left, as far as its time is known."""
        return self.seconds > 0

    @property
    def seconds(self) -> float:
        """Of one worker that does all of it."""
        return sum(seconds * count for seconds, count in self.runs)

    def on(self, workers: int) -> float:
        """The least seconds that so many workers take. None of them does less than its share. One of them does at least so many
        of the longest runs as there are for each, rounded up. And none is done before the longest chain is."""
        ahead = min(workers, MOST_GUESSING) ** GUESSING
        least = max([self.seconds / workers, *(chain.fixed + chain.walk / ahead for chain in self.chains)])
        longer = 0.0
        for seconds, count in sorted(self.runs, reverse=True):
            longer += count
            least = max(least, seconds * min(longer, math.ceil(round(longer / workers, 6))))
        return least

    def after(self, runs: Sequence[tuple[float, float]], longest: float) -> Work:
        """This and runs that must be done before it, of which the longest chain takes so many seconds."""
        own = self.chains or [Chain(max((seconds for seconds, count in self.runs if count), default=0.0))]
        return Work((*self.runs, *runs), [Chain(chain.fixed + longest, chain.walk) for chain in own])


class UntimedError(UserError):
    """The memory here is too small for a step. The workers may have more."""


@dataclass(slots=True)
class Mean:
    """A mean of numbers that come one by one: a study asks for it for each of its runs, at every look."""

    total: float = 0.0
    count: int = 0

    def add(self, total: float, count: int = 1) -> None:
        self.total += total
        self.count += count

    @property
    def value(self) -> float:
        return self.total / self.count

    def drawn_to(self, expected: float) -> float:
        """The mean with a value that was expected beforehand, which counts as WEIGHT of them."""
        return (self.total + WEIGHT * expected) / (self.count + WEIGHT)


@dataclass(slots=True)
class StepTimes:
    """Seconds of an optimizer step of any run, or of the whole of a program's run, which counts as one step.

    It is the mean over all steps of the finished runs of the same network, settings and size, or of the same network and size,
    if none has the same settings (those of `_setting`). Of other sizes of that network it is a part that is the same for all,
    and one in proportion to N to a power, that of the pixels unless told otherwise: the line through the two sizes that enclose
    it, or through the least and the largest. A single size is all in proportion, and so is the nearest one where these are not
    well apart. Where no run of the network is known, those of any other tell. Runs of a
    decoder that is trained on a GPU now tell nothing if they were trained on a CPU, and the other way round; but where it is
    not known which decoders are. A size of which all runs are short says too much, as they also take time before their first
    step: see `_paces`.
    """

    power: float | None = 2.0
    """None: that of which sizes well apart tell, from 0 to STEEPEST; 0 where there are none."""
    on_gpu: Callable[[str], bool] | None = None
    _known: dict[Shape, dict[int, Mean]] = field(default_factory=dict)
    """By network and N."""
    _settings: dict[Shape, dict[int, Mean]] = field(default_factory=dict)
    """The same by network, settings and N."""
    _timed: set[tuple[Shape, int]] = field(default_factory=set)
    """The networks and N that were timed here."""
    _spent: float = 0.0
    """Seconds that timing took."""

    @classmethod
    def of(cls, rows: Iterable[Row], power: float | None = 2.0, on_gpu: Callable[[str], bool] | None = None) -> Self:
        """From finished runs; those without a step tell nothing."""
        known, settings = dict[Shape, dict[int, list[Mean]]](), dict[Shape, dict[int, list[Mean]]]()
        for row in rows:
            if row["steps"] and is_alike(row, on_gpu):
                run = Mean(row["seconds"], row["steps"])
                shape = _shape(row["decoder"], row["depth"], row["width"], row["encoding"])
                known.setdefault(shape, {}).setdefault(row["N"], []).append(run)
                if "options" in row:  # not of a program
                    setting = *shape, row["precision"], row["batch_size"], frozenset(row["options"].items())
                    settings.setdefault(setting, {}).setdefault(row["N"], []).append(run)
        paces, of_settings = ({key: _paces(sizes) for key, sizes in found.items()} for found in (known, settings))
        return cls(power, on_gpu, paces, of_settings)

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self._known)

    def measure(self, spec: RunSpec, task: Task) -> None:
        """Take some steps of this run here, if nothing is known of its network and size. If all that is known was timed here,
        with other settings, also take some, as long as timing has not been dear."""
        shape, setting = _of(spec), _setting(spec)
        is_known = spec.N in self._known.get(shape, {})
        if is_known and ((shape, spec.N) not in self._timed or self._spent >= DEAR_RUN):
            return
        if spec.N in self._settings.get(setting, {}):
            return
        try:
            self._take(spec, task)
        except UserError:
            if not is_known:
                raise  # else there is a guess without it, and the workers may be able to do it

    def _take(self, spec: RunSpec, task: Task) -> None:
        """Take some steps of this run here."""
        began = time.perf_counter()
        try:
            seconds = step_seconds(spec, task, self._on_gpu(spec.decoder))
        finally:
            self._spent += time.perf_counter() - began
        self._timed.add((_of(spec), spec.N))
        self._note(spec, seconds)

    def _note(self, spec: RunSpec, seconds: float) -> None:
        for known, key in ((self._known, _of(spec)), (self._settings, _setting(spec))):
            known.setdefault(key, {}).setdefault(spec.N, Mean()).add(seconds)

    def measure_sizes(self, specs: Iterable[RunSpec], task: Task) -> None:
        """Measure the smallest of these runs, and one of about twice its size if that is not dear, unless their network and
        size are known: how a step grows with N is the task's own."""
        smallest, *others = sorted(specs, key=lambda spec: spec.N)
        began = time.perf_counter()
        self.measure(smallest, task)
        spent = time.perf_counter() - began
        apart = [spec for spec in others if spec.N >= APART * smallest.N]
        second = next((spec for spec in apart if spec.N >= 2 * smallest.N), apart[0] if apart else None)
        if second is None or self(second) > DEAR_STEP or spent * (second.N / smallest.N) ** (self.power or 0.0) > DEAR_RUN:
            return
        with contextlib.suppress(UntimedError):  # there is a guess without it
            self.measure(second, task)

    def measure_each(self, specs: Mapping[Any, RunSpec], task: Task, scaled: bool) -> None:
        """Measure all of these runs whose settings are not known: a step of one may take hundreds of times as long as that of
        another.

        Args:
            specs: by the value of a setting.
            scaled: whether the values are positive numbers. Then a step that would be dear is guessed from smaller values.
        """
        timed = dict[Any, float]()
        for value, spec in sorted(specs.items()) if scaled else specs.items():
            if spec.N not in self._settings.get(_setting(spec), {}):
                guess, late = _beyond_all(value, timed) if scaled else None, self._spent >= PATIENCE
                if guess is not None and (guess > DEAR_RUN or late):
                    self._note(spec, guess)
                elif scaled and late and len(timed) > 1:
                    self._note(spec, timed[max(timed)])
                elif scaled or not late:
                    self._take_if_possible(spec, task, guess)
            timed[value] = self(spec)

    def _take_if_possible(self, spec: RunSpec, task: Task, guess: float | None) -> None:
        """Take some steps of this run here. Where the memory is too small, the workers may have more, and the guess stands. A
        run that fails for another reason says nothing of the others."""
        try:
            self._take(spec, task)
        except UserError as error:
            if guess is None and (isinstance(error, UntimedError) or not self):
                raise
            if guess is not None:
                self._note(spec, guess)

    def __call__(self, spec: RunSpec) -> float:
        sizes = self._sizes(spec)
        if not sizes:
            return 0.0
        low, high = min(sizes), max(sizes)
        if low < spec.N < high:
            low, high = max(N for N in sizes if N <= spec.N), min(N for N in sizes if N >= spec.N)
        at_low, at_high = sizes[low].value, sizes[high].value
        power = _growth(low, at_low, high, at_high) if self.power is None else self.power
        if low < spec.N < high:
            return _line(spec.N, {low: at_low, high: at_high}, power)
        if self.power is not None and spec.N not in (low, high) and high / low >= APART:
            return _beyond(spec.N, low, at_low, high, at_high, power)
        nearest = low if low >= spec.N else high
        return sizes[nearest].value * (spec.N / nearest) ** power

    def _on_gpu(self, decoder: str) -> bool:
        return self.on_gpu is not None and self.on_gpu(decoder)

    def _of_any_network(self, on_gpu: bool) -> dict[int, Mean]:
        sizes: dict[int, Mean] = {}
        for (decoder, *_), others in self._known.items():
            for N, mean in others.items() if self._on_gpu(decoder) == on_gpu else ():
                sizes.setdefault(N, Mean()).add(mean.total, mean.count)
        return sizes

    def knows(self, spec: RunSpec) -> bool:
        """Whether anything is known of runs on this kind of device."""
        return bool(self._sizes(spec))

    def _sizes(self, spec: RunSpec) -> dict[int, Mean]:
        """What tells most of this run, by N: runs with its settings, unless others of its network tell of more sizes."""
        alike, sizes = self._settings.get(_setting(spec), {}), self._known.get(_of(spec), {})
        if spec.N in alike or len(alike) > 1 or (alike and len(sizes) == 1):
            return alike
        return sizes or self._of_any_network(self._on_gpu(spec.decoder))


def _paces(sizes: Mapping[int, Sequence[Mean]]) -> dict[int, Mean]:
    """The mean over all steps of each size.

    Args:
        sizes: the seconds and steps of each run, by N.

    A short run takes longer for each of its steps than a long one, as it makes its data first. So where a size has only short
    runs, its mean is lowered as much as long runs lower that of the nearest size that has both.
    """
    paces = {N: _mean(runs) for N, runs in sizes.items()}
    longest = {N: max(run.count for run in runs) for N, runs in sizes.items()}
    enough = SHORT * max(longest.values())
    for N in (N for N in sizes if longest[N] < enough):
        steps = paces[N].count / len(sizes[N])
        for other in sorted((other for other in sizes if longest[other] >= enough), key=lambda other: abs(other - N)):
            like = _mean(run for run in sizes[other] if steps / ALIKE <= run.count <= steps * ALIKE)
            if like.total:
                paces[N].total *= min(1.0, paces[other].value / like.value)
                break
    return paces


def _mean(runs: Iterable[Mean]) -> Mean:
    mean = Mean()
    for run in runs:
        mean.add(run.total, run.count)
    return mean


def _line(N: float, at: Mapping[float, float], power: float) -> float:
    """Seconds at N by the line in N to this power through two sizes; of one size, those."""
    (low, at_low), (high, at_high) = min(at.items()), max(at.items())
    if low == high or not power:
        return at_low if N - low <= high - N else at_high
    return at_low + (at_high - at_low) * (N**power - low**power) / (high**power - low**power)


def _growth(low: float, at_low: float, high: float, at_high: float) -> float:
    """The power of N with which seconds grow from one size to another, at most STEEPEST; 0 if the sizes are not well apart."""
    if low * APART > high or at_low <= 0:
        return 0.0
    return min(math.log(max(at_high, at_low) / at_low) / math.log(high / low), STEEPEST)


def _beyond(N: float, low: float, at_low: float, high: float, at_high: float, power: float) -> float:
    """Seconds at N below or above two sizes: by their line. If it falls, those of the nearer size. If it is below zero at 0,
    they grow with a higher power, as the two sizes tell, by at most 1.
    """
    near, at_near = (low, at_low) if low >= N else (high, at_high)
    if at_high <= at_low:
        return at_near
    known = {low: at_low, high: at_high}
    if _line(0, known, power) >= 0:
        return _line(N, known, power)
    return at_near * (N / near) ** min(_growth(low, at_low, high, at_high), power + 1)


def _beyond_all(value: float, known: Mapping[float, float]) -> float | None:
    """Seconds at a value above all that are known, by the largest of these and another one; None unless they are well apart."""
    high = max(known, default=0.0)
    low = max((one for one in known if one * APART <= high), default=None)
    return None if low is None else _beyond(value, low, known[low], high, known[high], 1.0)


@dataclass(slots=True)
class Pace:
    """How many steps a run of the search takes, and how long a step takes."""

    times: StepTimes
    steps_taken: dict[str, dict[int, Mean]]
    """By data set and N."""

    @classmethod
    def of(cls, runs: Sequence[Row], power: float | None = 2.0, on_gpu: Callable[[str], bool] | None = None) -> Pace:
        steps: dict[str, dict[int, Mean]] = {}
        for row in runs:
            steps.setdefault(row["dataset"], {}).setdefault(row["N"], Mean()).add(row["steps"])
        return cls(StepTimes.of(runs, power, on_gpu), steps)

    def steps(self, spec: RunSpec) -> float:
        """The mean of the nearest N of the same data set, or of any. A run at the edge of the target may take ten times the
        steps of another, so a few runs say little: their mean is drawn to that of all sizes."""
        known = self.steps_taken.get(spec.dataset)
        sizes = [(N, mean) for found in ([known] if known else self.steps_taken.values()) for N, mean in found.items()]
        if not sizes:
            return 0.0
        nearest = min(sizes, key=lambda size: abs(size[0] - spec.N))[1]
        return nearest.drawn_to(sum(mean.total for _, mean in sizes) / sum(mean.count for _, mean in sizes))


class Usual(NamedTuple):
    """What a threshold takes of which nothing is known."""

    probes: float
    share_audited: float
    """Share of the thresholds that need an audit where audits are due: not those whose least value passes."""


def usual_of(results: Sequence[ThresholdResult]) -> Mapping[str, Usual]:
    """By data set, from the thresholds that are answered, and what is expected beforehand."""
    found = {}
    for dataset in {r.dataset for r in results}:
        answered = [r for r in results if r.dataset == dataset and r.verdict != "open"]
        runs = Mean(sum(r.runs for r in answered), len(answered))
        audited = Mean(sum(r.verdict != "minimum" for r in answered), len(answered))
        found[dataset] = Usual(runs.drawn_to(GUESSED_PROBES), audited.drawn_to(1.0))
    return found


def runs_left(results: Sequence[ThresholdResult]) -> float:
    """Probes that open thresholds may still ask for."""
    usual = usual_of(results)
    return sum(probes_left(r, usual[r.dataset].probes) for r in results if r.verdict == "open")


def probes_left(result: ThresholdResult, usual: float) -> float:
    """Probes that an open threshold may still ask for: those that its walk expects, else as many as are usual, less those that
    it finds done when it opens, and no more than there are counts that it has not tried."""
    return result.probes_left or min(max(usual - result.runs, LEAST_LEFT), result.values - len(result.tried))


def was_on_gpu(row: Row) -> bool:
    """Whether the run of a row trained on a GPU."""
    return (row.get("device") or "").startswith("cuda")


def is_alike(row: Row, on_gpu: Callable[[str], bool] | None) -> bool:
    """Whether the run of a row trained on the kind of device on which its decoder is trained now, as far as that is known."""
    return on_gpu is None or was_on_gpu(row) == on_gpu(row["decoder"])


def _shape(decoder: str, depth: int, width: int, encoding: str) -> Shape:
    """What the time of a step depends on, besides N, in most studies: the network."""
    return decoder, depth, width, encoding == "ramp"


def _of(spec: RunSpec) -> Shape:
    return _shape(spec.decoder, spec.depth, spec.width, spec.encoding)


def _setting(spec: RunSpec) -> Shape:
    """The network, and what else the time of a step may depend on."""
    return *_of(spec), spec.precision, spec.batch_size, frozenset(spec.options)


def step_seconds(spec: RunSpec, task: Task, on_gpu: bool = False) -> float:
    """Seconds of an optimizer step of this run and of its share of a look, from a few steps and one look done here and now: on
    a GPU, if it trains on one and there is one here, a run for itself.

    A task whose data are dear to read may have a member `timing`: a context in which runs that are only timed have other
    data of the same shapes.

    Raises:
        UntimedError: memory runs out.
        UserError: the run raises another exception.
        UnfitError: as its task says.
    """
    import torch

    from trainables.printed import printed_to_stderr
    from trainables.training.precision import quiet_cpu
    from trainables.training.run import UnfitError

    quiet_cpu()
    with scratch(), printed_to_stderr():  # for the cache of torch, and for what the task prints
        if on_gpu and torch.cuda.is_available():
            with contextlib.suppress(Exception):  # it may be full, and the one of a worker another
                try:
                    return _step_seconds(spec, task, "cuda")
                finally:
                    torch.cuda.empty_cache()  # for the workers
        try:
            return _step_seconds(spec, task, "cpu")
        except UnfitError:
            raise
        except (Exception, SystemExit) as error:
            raise _untimed(spec, error) from error


def _untimed(spec: RunSpec, error: BaseException) -> UserError:
    """What to tell of a run that fails when it is timed."""
    from trainables.check_words import reason_of
    from trainables.training.memory import is_out_of_memory

    run = f"{spec.task} at N = {spec.N}, data_count = {spec.data_count}, batch_size = {spec.batch_size}"
    if is_out_of_memory(error):
        return UntimedError(f"the memory here is too small for a step of {run} ({reason_of(error)})")
    return UserError(f"timing a few steps of {run} fails with {reason_of(error)}: mend the task, or ask for other settings")


def _step_seconds(spec: RunSpec, task: Task, device: str) -> float:
    from trainables.needs import untrained
    from trainables.training.loop import Training
    from trainables.training.packs import Pack

    timing = getattr(task, "timing", contextlib.nullcontext)
    fewest = SAMPLED_STEPS + 2 if device == "cpu" else 10 * (WARM_STEPS + SAMPLED_STEPS)
    spec = replace(spec, max_steps=max(spec.max_steps, fewest))
    if device == "cpu" and spec.precision == "tf32":
        spec = replace(spec, precision="float32")
    with timing():
        training = Training(spec, untrained(task, spec, device), device)
        run = training if device == "cpu" else Pack([training])

        def seconds(steps: int) -> float:
            began = time.perf_counter()
            for _ in range(steps):
                run.advance(0)
            float(training.loss_sum)  # a GPU is asked for it when all is done
            return (time.perf_counter() - began) / steps

        step = seconds(1 if device == "cpu" else WARM_STEPS)
        if step >= DEAR_RUN:
            return step
        step = _sampled(lambda: seconds(1)) if device == "cpu" else seconds(SAMPLED_STEPS)
        if step >= SLOW_STEP:
            return step
        training.train_step()  # a look needs a step since the last one
        began = time.perf_counter()
        training.answer(training.look())
        return step + (time.perf_counter() - began) / training.look_every


def _sampled(seconds: Callable[[], float]) -> float:
    """The median of times: other work on the machine may hold up one step for as long as many take."""
    taken: list[float] = []
    while len(taken) < SAMPLED_STEPS and (len(taken) < FEWEST_SAMPLED or sum(taken) < SAMPLED_SECONDS):
        taken.append(seconds())
    return statistics.median(taken)
