"""The threshold search: the smallest data count at which a run passes, for every bracket (one dataset, N and seed) of a study.

The answer of a bracket is that of a sequential walk (`probing`), replayed through the finished rows. It depends on nothing
but how the runs end: not on their order, on kills, on the number of workers, nor on rows the walk did not ask for. What it
rests on is audited (`audits`).
"""

from __future__ import annotations

import bisect
import copy
import functools
import heapq
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from orchestrator.searches import Curve as ErrorCurve
from orchestrator.searches import Row, Rows
from orchestrator.searches.audits import STOPS, Curve, Family, Record, given_up
from orchestrator.searches.axes import Between
from orchestrator.searches.bracket import FAILED, Bracket, Place, ThresholdResult, Walk, carry_on, follow, result_of
from orchestrator.searches.prediction import start_of
from orchestrator.searches.probing import Ladder, Outcome, Start, float_ladder, ladder
from trainables.spec import RunSpec, family_key

UNLIKELY = 0.05
"""Speculation leaves out probes less likely than this to be asked for."""


_Guess = tuple[float, int, int, RunSpec]
"""Minus its likelihood, priority of the bracket, order in it, and the run."""


@dataclass
class _State:
    """How far a `Rows` carries the brackets, kept up to date by looking at what was added since."""

    additions: int
    walks: list[Walk | None]
    """None while a bracket waits for another."""
    starts: dict[int, Start]
    """Of the open and the answered brackets."""
    awaited: list[int]
    """How many brackets each one still waits for."""
    curves: list[Curve]
    needed: list[tuple[int, int, RunSpec]] = field(default_factory=list)
    """Runs that walks and audits ask for: the priority of their bracket, their order in it, and the run, ascending."""
    settled: set[int] = field(default_factory=set)
    """Brackets that ask for nothing more."""
    guesses: list[_Guess] = field(default_factory=list)
    """Runs that they may ask for next, ascending."""
    guessed: dict[int, list[_Guess]] = field(default_factory=dict)
    """The same by bracket."""
    blocked: set[int] = field(default_factory=set)
    """Brackets whose walk cannot go on, so that no other one waits for them."""
    stale: set[int] = field(default_factory=set)
    """Brackets whose guesses are out of date."""
    results: dict[int, ThresholdResult] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    """What the results of a curve say of the rule."""


class ThresholdSearch:
    """Finds the threshold of every bracket to `resolution`, relative to the upper bound in total images.

    A bracket opens when those that predict it are answered: the lowest seed (pilot) of a grid size waits for the pilots
    of all smaller ones on its curve, the other seeds for these and their own; none waits for one that `is_blocked`. Open
    brackets come first; idle room is filled with the probes they are most likely to ask for next, so that k + 1 workers split
    a bracket in about k + 2 parts.
    With `speculate=False`, or room for no more than the open brackets, the set of runs is that of one worker.

    `stop` says how runs that do not pass end. `early`: when the stopping rule gives them up. `budget`: at the end of their
    budget. `auto`: early, but what the answer rests on is audited, and where the rule errs the answer is that of `budget`, as
    far as more never hurts: where it does, a miss that is not audited may have led the search elsewhere.

    Raises:
        ValueError: a resolution outside (0, 1), an unknown `stop`, no counts to choose from, two brackets with the same runs,
            or one whose template's `stop` is not `early`.
    """

    def __init__(
        self, brackets: Sequence[Bracket], resolution: float = 0.05, speculate: bool = True, stop: str = "auto"
    ) -> None:
        if not 0 < resolution < 1:
            raise ValueError(f"resolution must lie between 0 and 1, not {resolution:g}: 0.05 means 5 %")
        if stop not in STOPS:
            raise ValueError(f"stop must be one of {', '.join(STOPS)}, not {stop!r}")
        self.resolution = resolution
        self.speculate = speculate
        self.stop = stop
        self._places = _plan(brackets, resolution)
        self._curves = _curves(self._places)
        by_rank = sorted(range(len(brackets)), key=lambda i: self._places[i].rank)
        self._priority = {i: priority for priority, i in enumerate(by_rank)}
        self._by_family: dict[str, tuple[int, ...]] = {}
        for i, place in enumerate(self._places):
            for family in itertools.chain(*(place.rung_families or ((place.family, place.full_family),))):
                self._by_family[family] = (*self._by_family.get(family, ()), i)
        self._before: list[list[int]] = [[] for _ in brackets]
        for i, place in enumerate(self._places):
            for j in place.after:
                self._before[j].append(i)
        self._specs: dict[tuple[int, int, bool], RunSpec] = {}
        self._states: WeakKeyDictionary[Rows, _State] = WeakKeyDictionary()
        self.is_blocked: Callable[[Rows, RunSpec], bool] | None = None
        """Whether a run cannot be trained, as far as these rows tell, because one that it needs has not made it. Its bracket
        stays open, and those that would wait for it do without. None: there are no such runs."""

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        with rows.turn:
            state = self._state(rows)
            chosen = [spec for *_, spec in state.needed[:room]]
            fill = room if fill is None else min(fill, room)
            if self.speculate and len(chosen) < fill:
                self._guess(rows, state)
                chosen += [guess[-1] for guess in state.guesses[: fill - len(chosen)]]
            return chosen

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: ErrorCurve) -> int | None:
        """None: a run that will miss ends by itself."""
        return None

    def finished(self, rows: Rows) -> bool:
        with rows.turn:
            return not self._state(rows).needed

    @property
    def families(self) -> Collection[str]:
        """The families of all runs that may be asked for."""
        return self._by_family.keys()

    def rungs(self, i: int) -> Sequence[float]:
        """The values that bracket number `i` may ask for, ascending."""
        return self._places[i].rungs.counts

    def waits_for(self, i: int) -> Sequence[int]:
        """The numbers of the brackets that bracket number `i` waits for. They wait for each other, in this order."""
        return self._places[i].after

    def numbers(self, rows: Rows) -> Sequence[int]:
        """The numbers of the brackets of an answer, in its order."""
        return range(len(self._places))

    def found(self, rows: Rows, i: int) -> Family:
        """The finished runs of bracket number `i`. Where nothing is audited, an audit that crashed is none of them."""
        found = self._places[i].found(rows)
        full = list(found.full.items()) if self.stop == "early" else []  # others may add to them meanwhile
        if any(row["status"] == FAILED for _, row in full):
            kept = {count: row for count, row in full if row["status"] != FAILED or count not in found.early}
            return replace(found, full=kept)
        return found

    def runs(self, rows: Rows) -> list[Row]:
        """The finished runs of the brackets of an answer."""
        runs: dict[str, Row] = {}
        for i in self.numbers(rows):
            found = self.found(rows, i)
            runs |= {row["key"]: row for way in (found.early, found.full) for row in list(way.values())}
        return list(runs.values())

    def answer(self, rows: Rows) -> list[ThresholdResult]:
        """What is known of each bracket, in the order they were given."""
        with rows.turn:
            return self._answer(rows, self._state(rows))

    def _answer(self, rows: Rows, state: _State) -> list[ThresholdResult]:
        for number in {place.curve for i, place in enumerate(self._places) if i not in state.results}:
            if (record := self._record(rows, state, state.curves[number])) != state.records.get(number):
                state.records[number] = record
                for i in state.curves[number].brackets:
                    state.results.pop(i, None)
        for i, place in enumerate(self._places):
            if i not in state.results:
                walk, curve = state.walks[i], state.curves[place.curve]
                audits_left = len(self._asked(state, i)) if walk is not None and walk.over else self._audits(curve, place)
                found, rule = self.found(rows, i), state.records[place.curve]
                state.results[i] = result_of(place, walk, found, self._trusts(curve), audits_left, rule, i in state.blocked)
        return [state.results[i] for i in range(len(self._places))]

    def doubt(self, rows: Rows) -> str | None:
        """Why a complete answer is none."""
        return None

    def may_audit(self, spec: RunSpec) -> bool:
        """Whether this run may have to be trained on where it is given up, as far as is known when it begins: while it is in
        progress, others may end without an audit, so that its bracket is audited in their place."""
        numbers = self._by_family.get(family_key(spec, self._places[0].bracket.task_version), ())
        known = [self._curves, *(state.curves for state in list(self._states.values()))]
        places = [self._places[i] for i in numbers]
        return any(self._audits(curves[place.curve], place) for curves in known for place in places)

    def _audits(self, curve: Curve, place: Place) -> bool:
        """Whether the answer of a bracket is to be audited."""
        return self.stop == "auto" and not curve.off and curve.due(place.number, place.family)

    def _trusts(self, curve: Curve) -> bool:
        """Whether a run that was given up counts as missed."""
        return self.stop == "early" or (self.stop == "auto" and not curve.off)

    def _audited(self, state: _State, i: int) -> int:
        """How many audits of a bracket tell of the rule: flips, and those of runs that its answer rests on. Others, which
        another study has trained to their end, may be far from the threshold, where the rule hardly errs."""
        place, walk = self._places[i], state.walks[i]
        carriers = () if walk is None else [place.rungs.counts[at] for at in walk.carriers]
        return sum(flip or count in carriers for count, flip in state.curves[place.curve].audits.get(i, {}).items())

    def _record(self, rows: Rows, state: _State, curve: Curve) -> Record:
        flips = []
        for i, audits in sorted(curve.audits.items()):
            family, bracket = self.found(rows, i), self._places[i].bracket
            template = bracket.template
            for count in sorted(count for count, flip in audits.items() if flip):
                early, full = family.early[count], family.full[count]
                told = bracket.axes.told(count + bracket.counts.fixed, template.task)
                flips.append(
                    f"{bracket.axes.along} = {bracket.along}, seed {template.seed}, {told}: "
                    f"given up at step {early['steps']}, passed at step {full['steps']}"
                )
        return Record(curve.known, sum(self._audited(state, i) for i in curve.audits), tuple(flips))

    def _spec(self, i: int, at: int, early: bool) -> RunSpec:
        spec = self._specs.get((i, at, early))
        if spec is None:
            place = self._places[i]
            spec = place.bracket.at(place.rungs.counts[at])
            self._specs[i, at, early] = spec = spec if early else spec.to_the_end()
        return spec

    def _state(self, rows: Rows) -> _State:
        """The state of all brackets, after another look at those with new rows and those that waited for them."""
        state = self._states.get(rows)
        if state is None:
            places, curves = self._places, copy.deepcopy(self._curves)
            state = _State(rows.additions, [None] * len(places), {}, [len(p.after) for p in places], curves)
            self._states[rows] = state
            touched = set(range(len(places)))
        elif state.additions == rows.additions:
            return state
        else:
            added = rows.added_since(state.additions)
            touched = {i for family in added for i in self._by_family.get(family, ())}
            if self.is_blocked is not None and not self._by_family.keys() >= set(added):  # others may need these
                touched |= {i for i, walk in enumerate(state.walks) if walk is not None and not walk.over}
            state.additions = rows.additions
        for i in tuple(touched):
            touched.update(self._take_audits(rows, state, i))
        while touched:
            changed = {self._places[i].curve for i in self._look_at(rows, state, touched)}
            audited = functools.partial(self._audited, state)
            touched = {i for c in changed for i in state.curves[c].settle(state.settled.__contains__, audited)}
        return state

    def _take_audits(self, rows: Rows, state: _State, i: int) -> Sequence[int]:
        """Note what audits of a bracket have found. Returns the brackets that have to be looked at since one was a flip."""
        curve, found = state.curves[self._places[i].curve], self.found(rows, i).audited()
        if found == curve.audits.get(i, {}):
            return ()
        was_off = curve.off
        curve.take(i, found)
        state.results.pop(i, None)
        return curve.brackets if curve.off and not was_off else ()

    def _look_at(self, rows: Rows, state: _State, touched: set[int]) -> set[int]:
        """Look at these brackets, and at those that wait for them; all that were looked at."""
        touched = set(touched)
        queue = [(self._places[i].order, i) for i in touched]
        heapq.heapify(queue)
        while queue:
            _, i = heapq.heappop(queue)
            for j in self._look(rows, state, i):
                state.starts.pop(j, None)
                if j not in touched:
                    touched.add(j)
                    heapq.heappush(queue, (self._places[j].order, j))
        return touched

    def _look(self, rows: Rows, state: _State, i: int) -> Sequence[int]:
        """Carry one walk on. Returns the brackets that have to be looked at in turn."""
        place, old = self._places[i], state.walks[i]
        state.results.pop(i, None)
        state.stale.add(i)
        new = None
        family, curve = self.found(rows, i), state.curves[place.curve]
        verdicts = family.verdicts(self._trusts(curve))
        if state.awaited[i] == 0:
            if i not in state.starts:
                answered = [walk for j in place.after if (walk := state.walks[j]) is not None]
                state.starts[i] = start_of(self._places, place, answered)
            new = follow(place, state.starts[i], verdicts, old)
        self._ask(state, i, new, verdicts)
        was_blocked, blocked = i in state.blocked, self._is_blocked(rows, state, i, new)
        if (new, blocked) == (old, was_blocked):
            return ()
        state.walks[i] = new
        (state.blocked.add if blocked else state.blocked.discard)(i)
        had_ended, has_ended = (old is not None and old.over) or was_blocked, (new is not None and new.over) or blocked
        if had_ended != has_ended:
            for j in self._before[i]:
                state.awaited[j] += had_ended - has_ended
        return [j for j in self._before[i] if had_ended or state.awaited[j] == 0] if had_ended or has_ended else ()

    def _is_blocked(self, rows: Rows, state: _State, i: int, walk: Walk | None) -> bool:
        """Whether the next run of a walk cannot be trained."""
        if self.is_blocked is None or walk is None or walk.probe is None:
            return False
        return self.is_blocked(rows, self._spec(i, walk.probe.at, self._trusts(state.curves[self._places[i].curve])))

    def _ask(self, state: _State, i: int, walk: Walk | None, verdicts: Mapping[float, Row]) -> None:
        """Put what a bracket needs in the place of what it needed: the next probe of its walk or, when this is over, audits."""
        curve, asked = state.curves[self._places[i].curve], []
        if walk is not None and walk.probe is not None:
            asked = [self._spec(i, walk.probe.at, self._trusts(curve))]
        elif walk is not None and self._audits(curve, self._places[i]):
            counts, audited = self._places[i].rungs.counts, curve.audits.get(i, {})
            at_stake = [at for at in walk.carriers if given_up(verdicts[counts[at]]) and counts[at] not in audited]
            asked = [self._spec(i, at, False) for at in at_stake]
        priority = self._priority[i]
        state.needed[self._slice(state, i)] = [(priority, n, spec) for n, spec in enumerate(asked)]
        if walk is not None and not asked:
            state.settled.add(i)
        else:
            state.settled.discard(i)

    def _asked(self, state: _State, i: int) -> list[tuple[int, int, RunSpec]]:
        return state.needed[self._slice(state, i)]

    def _slice(self, state: _State, i: int) -> slice:
        priority = self._priority[i]
        return slice(bisect.bisect_left(state.needed, (priority,)), bisect.bisect_left(state.needed, (priority + 1,)))

    def _guess(self, rows: Rows, state: _State) -> None:
        """Bring up to date what open brackets may ask for next."""
        for i in state.stale:
            for guess in state.guessed.pop(i, ()):
                del state.guesses[bisect.bisect_left(state.guesses, guess)]
            walk = state.walks[i]
            if walk is not None and not walk.over:
                state.guessed[i] = self._likely_probes(i, walk, rows, state)
                for guess in state.guessed[i]:
                    bisect.insort(state.guesses, guess)
        state.stale.clear()

    def _likely_probes(self, i: int, walk: Walk, rows: Rows, state: _State) -> list[_Guess]:
        """Unfinished rungs that a walk may ask for after its present probe, by falling probability. An imagined miss has
        no accuracy."""
        assert walk.probe is not None
        place, trusted = self._places[i], self._trusts(state.curves[self._places[i].curve])
        family = self.found(rows, i).verdicts(trusted)
        found: dict[int, float] = {walk.probe.at: -1.0}
        heap: list[tuple[float, int, Walk]] = [(-1.0, 0, walk)]
        pushed = 0
        while heap:
            minus_likely, _, imagined = heapq.heappop(heap)
            assert imagined.probe is not None
            at, likely = imagined.probe.at, imagined.probe.likely
            found.setdefault(at, minus_likely)
            for passes, share in ((True, likely), (False, 1 - likely)):
                if -minus_likely * share >= UNLIKELY:
                    seen, below = dict(imagined.seen), dict(imagined.below)
                    (below if imagined.probe.below else seen)[at] = Outcome(passes)
                    further = carry_on(place, walk.start, family, seen, below)
                    if further.probe is not None:
                        pushed += 1
                        heapq.heappush(heap, (minus_likely * share, pushed, further))
        del found[walk.probe.at]
        guesses = enumerate(found.items())
        return [(likely, self._priority[i], n, self._spec(i, at, trusted)) for n, (at, likely) in guesses]


def _plan(brackets: Sequence[Bracket], resolution: float) -> list[Place]:
    given: set[tuple[str, int]] = set()
    pilots: dict[str, dict[float, int]] = {}
    curves = [b.curve or family_key(replace(b.template, N=1, seed=0), b.task_version) for b in brackets]
    categories = {value: n for n, value in enumerate(dict.fromkeys(b.along for b in brackets if not b.axes.scaled))}
    xs = [float(b.along) if b.axes.scaled else categories[b.along] for b in brackets]
    for i, (b, curve, x) in enumerate(zip(brackets, curves, xs, strict=True)):
        if not 0 <= b.counts.low <= b.counts.high:
            raise ValueError(f"no data counts to choose from at N = {b.template.N}: {b.counts.low} to {b.counts.high}")
        if b.template.stop != "early":
            raise ValueError(f"the template of a bracket has stop = 'early', not {b.template.stop!r}")
        identity = b.family, 0 if b.axes.least == "data_count" else b.template.data_count
        if identity in given:
            where = f"{b.template.dataset}, {b.axes.along} = {b.along}, seed {b.template.seed}"
            raise ValueError(f"the bracket of {where} is given twice")
        given.add(identity)
        of_size = pilots.setdefault(curve, {})
        if (j := of_size.get(x)) is None or b.template.seed < brackets[j].template.seed:
            of_size[x] = i
    places = []
    numbers, counted = {curve: n for n, curve in enumerate(dict.fromkeys(curves))}, dict.fromkeys(curves, 0)
    number = {}
    for i in sorted(range(len(brackets)), key=lambda i: (brackets[i].template.seed, xs[i])):
        number[i] = counted[curves[i]]
        counted[curves[i]] += 1
    for i, (b, curve, x) in enumerate(zip(brackets, curves, xs, strict=True)):
        pilot = pilots[curve][x]
        leads = pilot == i
        smaller = [j for n, j in sorted(pilots[curve].items()) if n < x and b.axes.scaled]
        rungs = rungs_of(b, resolution)
        places.append(
            Place(
                bracket=b,
                family=b.family,
                full_family=b.full_family,
                rung_families=_rung_families(b, rungs),
                x=x,
                curve=numbers[curve],
                number=number[i],
                rungs=rungs,
                leads=leads,
                after=tuple(smaller if leads else [*smaller, pilot]),
                order=(x, not leads),
                rank=(0, x, i) if leads else (1, -x, b.template.seed, i),
            )
        )
    return places


def rungs_of(bracket: Bracket, resolution: float) -> Ladder:
    """The values that a bracket may ask for."""
    low, high = bracket.counts.low, bracket.counts.high
    if isinstance(bracket.counts, Between) and bracket.counts.is_float:
        return float_ladder(low, high, resolution)
    return ladder(int(low), int(high), bracket.counts.fixed, resolution)


def _rung_families(bracket: Bracket, rungs: Ladder) -> tuple[tuple[str, ...], ...]:
    """The families of the runs at each rung, given up and trained to the end; empty where each way has only one."""
    if bracket.axes.least == "data_count":
        return ()
    specs = [bracket.at(value) for value in rungs.counts]
    ways = specs, [spec.to_the_end() for spec in specs]
    return tuple(tuple(family_key(spec, bracket.task_version) for spec in way) for way in ways)


def _curves(places: Sequence[Place]) -> list[Curve]:
    """The curves before any row is seen."""
    brackets: list[list[int]] = [[] for _ in {place.curve for place in places}]
    for i in sorted(range(len(places)), key=lambda i: places[i].number):
        brackets[places[i].curve].append(i)
    return [Curve(of_curve, min(places[i].bracket.audits for i in of_curve)) for of_curve in brackets]
