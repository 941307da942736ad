"""How far the stopping rule is to be believed: audits.

The rule gives up a run that looks as if it would stay below its target. An *audit* trains such a run on, to its target or to
the end of its budget. If it passes, the rule was wrong about it: a *flip*.

Brackets of one curve (everything alike but grid size, seed and data count) share their audits. Under `auto`, the lower bound of
every threshold of a curve is audited, until NEEDED audits of the curve, those known of the task included, have not found a
flip; then the rule is supported, and of the further lower bounds about one in EVERY is audited. One flip, and the rule is off
for the curve: nothing counts as missed any more but what was trained to its budget. Under `early` nothing is audited; under
`budget` no run is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.searches import Row
from trainables.spec import GIVEN_UP

STOPS = ("auto", "early", "budget")

NEEDED = 299
"""The least number of audits without a flip after which a flip is under 1 % likely: see `flip_bound`."""
EVERY = 50
"""Of a supported curve, about one bracket in so many is audited. An audit costs about as much as a whole bracket of bumps, so
this adds 2 % to the steps."""

BUDGET, DIVERGED, AUDITED, UNAUDITED = "budget", "diverged", "audited rule", "unaudited rule"
"""What a lower bound may rest on: a run trained to its budget, one whose loss was not finite, or one that the rule gave up."""
_FIRMNESS = (BUDGET, DIVERGED, AUDITED, UNAUDITED)


def flip_bound(audits: int) -> float:
    """How likely a flip is at most, after so many audits without one: the one-sided 95 % bound of Clopper and Pearson (1934).

    0.05 ** (1 / n) is the probability per audit at which n audits without a flip have a chance of 5 %.
    """
    return 1 - 0.05 ** (1 / audits) if audits else 1.0


def is_drawn(family: str) -> bool:
    """Whether the bracket whose runs are this family is one of those that are audited of a supported curve, too. What else is
    asked does not matter, so further sizes and seeds move none."""
    return int(family, 16) % EVERY == 0


def given_up(row: Row) -> bool:
    """A run that the rule may not give up was not, whatever its row says: an audit of it would be the run itself."""
    return row.get("reason") == GIVEN_UP and row.get("stop", "early") == "early"


@dataclass(frozen=True)
class Family:
    """The finished runs of one bracket: those that the rule may give up, and those trained to the end, by data count, or by the
    value of another setting that is searched."""

    early: Mapping[float, Row]
    full: Mapping[float, Row]

    def verdicts(self, trusted: bool) -> Mapping[float, Row]:
        """The row that speaks for each data count.

        A run trained to the end speaks for its count. While the rule is `trusted`, a run that was given up does, too, also
        after an audit that confirmed it, which may also diverge: the walk goes by the accuracies that it has seen.
        """
        if trusted and not self.full:
            return self.early
        found = {count: row for count, row in self.early.items() if trusted or not given_up(row)}
        for count, row in self.full.items():
            known = found.get(count)
            if known is None or known["status"] != "missed" or row["status"] not in ("missed", "diverged"):
                found[count] = row
        return found

    def audited(self) -> dict[float, bool]:
        """Data counts at which a run was given up and trained on: whether that was a flip."""
        return {
            count: row["status"] == "passed"
            for count, row in self.full.items()
            if row["status"] != "failed" and (known := self.early.get(count)) is not None and given_up(known)
        }

    def rests_on(self, count: float, supported: bool) -> str:
        """What the verdict that `count` misses rests on."""
        row = self.full.get(count) or self.early[count]
        if given_up(row):
            return AUDITED if supported else UNAUDITED
        return DIVERGED if row["status"] == "diverged" else BUDGET

    @property
    def runs(self) -> int:
        return len(self.early) + len(self.full)

    @property
    def steps(self) -> int:
        """Steps trained: a run trained to the end goes on where it was given up."""
        return sum(int((self.full.get(count) or self.early[count])["steps"]) for count in {*self.early, *self.full})


def weakest(grounds: Sequence[str]) -> str:
    """Of several things that an answer rests on, the least firm; empty if it rests on nothing."""
    return max(grounds, key=_FIRMNESS.index, default="")


@dataclass(frozen=True)
class Record:
    """What is known of the rule on one curve."""

    known: int
    """Audits without a flip that are known of the task."""
    audits: int = 0
    """Audits of runs that answers rest on, and flips."""
    flips: tuple[str, ...] = ()
    """The flips, in words."""

    @property
    def supported(self) -> bool:
        return not self.flips and self.known + self.audits >= NEEDED

    @property
    def bound(self) -> float | None:
        """How likely a flip is at most (95 %); None after one."""
        return None if self.flips else flip_bound(self.known + self.audits)

    def to_dict(self) -> dict[str, Any]:
        """For a file: `known`, `audits`, `flips`, and the `bound`."""
        return {"known": self.known, "audits": self.audits, "flips": list(self.flips), "bound": self.bound}


def merged(records: Sequence[Record]) -> Record:
    """What is known of the rule on several curves. Audits known of the task may be the same on each curve, so only those of
    the curve with the most are counted."""
    flips = tuple(flip for record in records for flip in record.flips)
    return Record(max(r.known for r in records), sum(r.audits for r in records), flips)


@dataclass
class Curve:
    """The audits of one curve, as rows come in.

    `limit`: the brackets numbered under it are audited whatever the others find. It grows past a bracket that is settled and
    has brought no audit, so that it depends on nothing but how runs end.
    """

    brackets: Sequence[int]
    """By seed, then grid size: a bracket's place in this order is its number. So further seeds come after those before."""
    known: int
    limit: int = field(init=False)
    audits: dict[int, dict[float, bool]] = field(default_factory=dict)
    """By bracket: data count to whether it was a flip."""
    off: bool = False
    """Whether the rule has erred on this curve."""
    _passed: int = 0
    """Brackets, from the first on, that are settled."""

    def __post_init__(self) -> None:
        self.limit = max(0, NEEDED - self.known)

    def take(self, bracket: int, found: dict[float, bool]) -> None:
        """Note what the audits of a bracket have found."""
        self.audits[bracket] = found
        self.off = self.off or any(found.values())

    def due(self, number: int, family: str) -> bool:
        """Whether the lower bound of this bracket is to be audited."""
        return number < self.limit or is_drawn(family)

    def settle(self, is_settled: Callable[[int], bool], audited: Callable[[int], int]) -> Sequence[int]:
        """Learn which brackets are settled; the brackets that are now to be audited besides. Whether these are settled is to be
        looked at first.

        Args:
            audited: how many audits of a bracket tell of the rule.
        """
        before = self.limit
        while self._passed < min(before, len(self.brackets)) and is_settled(self.brackets[self._passed]):
            if not audited(self.brackets[self._passed]):
                self.limit += 1
            self._passed += 1
        return self.brackets[before : self.limit]
