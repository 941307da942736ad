"""What launches on several machines promise each other, on objects in memory and clocks that the tests set."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from store_child import row

import orchestrator.store.leases as leases_module
from orchestrator.store.leases import LEASE_SECONDS, Lease
from orchestrator.store.parts import parquet_bytes
from orchestrator.store.place import Stamp
from orchestrator.store.register import Register
from orchestrator.store.remote import Remote, RemoteError
from orchestrator.store.rows import encode
from orchestrator.store.turns import BucketTurns

ONE, TWO = (row(i)["key"] for i in (1, 2))


class Clocks:
    """Stand in for the module `time` of a launch."""

    def __init__(self) -> None:
        self.now = {"monotonic": 1e3, "time": 1e9}

    def monotonic(self) -> float:
        return self.now["monotonic"]

    def time(self) -> float:
        return self.now["time"]

    def sleep(self, seconds: float) -> None:
        for name in self.now:
            self.now[name] += seconds


class Memory:
    """What a lease asks of a `Remote`, without requests. Objects have the times of a clock of its own."""

    def __init__(self) -> None:
        self.objects: dict[str, float] = {}
        self.now = 1e9
        self.is_away = False
        self.uri, self.told, self.lists = "s3://b/s", list[str](), 0

    def tell(self, line: str) -> None:
        self.told.append(line)

    def put(self, name: str, data: bytes, may: Callable[[], bool] = lambda: True) -> bool:
        assert may()
        if self.is_away:
            raise RemoteError("away")
        self.objects[name] = self.now
        return True

    def list(self, folder: str, *, deep: bool) -> dict[str, tuple[int, int]]:
        self.lists += 1
        found = {name.removeprefix(f"{folder}/"): time for name, time in self.objects.items() if name.startswith(f"{folder}/")}
        return {name: (0, int(time * 1e9)) for name, time in found.items()}

    def delete(self, names: Iterable[str]) -> bool:
        for name in names:
            self.objects.pop(name, None)
        return True

    def delete_folder(self, folder: str) -> None:
        self.delete([name for name in self.objects if name.startswith(f"{folder}/")])

    def soon(self, do: Callable[[str], Any], items: Iterable[str]) -> Any:
        return [do(item) for item in items]

    def briefly(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def tidy(lease: Lease) -> None:
    """Have it remove what is to be removed, as it does at the end of a writing."""
    with lease.alone():
        pass


def slow_once(memory: Memory, clocks: Clocks, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the answer to the next put come so late."""
    put, waits = memory.put, iter([seconds])

    def slow(name: str, data: bytes, may: Callable[[], bool] = lambda: True) -> bool:
        at_once = put(name, data, may)
        clocks.sleep(next(waits, 0.0))
        return at_once

    monkeypatch.setattr(memory, "put", slow)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(leases_module, "time", clocks)
    return clocks


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def leases(memory: Memory, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lease, Lease]]:
    """Of a launch on machine `a` and one on machine `b`. They look whenever they may, and do nothing in the background."""
    monkeypatch.setattr(leases_module, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(Lease, "_keep", lambda lease: None)
    leases = Lease(cast(Remote, memory), "a", "1"), Lease(cast(Remote, memory), "b", "2")
    yield leases
    for lease in leases:
        lease.close()


def test_while_a_launch_writes_what_it_has_not_claimed_no_other_machine_claims_anything(leases: tuple[Lease, Lease]) -> None:
    a, b = leases
    with a.alone():
        assert b.take(["k"]) == set()
    assert b.take(["k"]) == {"k"}


def test_who_waits_for_another_machine_to_write_says_so_once_and_asks_less_and_less_often(
    leases: tuple[Lease, Lease], memory: Memory, clocks: Clocks
) -> None:
    a, b = leases
    begun, lists = clocks.monotonic(), memory.lists
    with a.alone(), pytest.raises(RemoteError, match="another machine has been writing"), b.alone():
        pass
    assert 2 * LEASE_SECONDS <= clocks.monotonic() - begun < 2 * LEASE_SECONDS + 5
    told = "another machine is writing to the store s3://b/s, or died lately; waiting for it, up to 3 min"
    assert memory.told == [told]
    assert memory.lists - lists < 300


def test_who_waits_shortly_says_nothing(leases: tuple[Lease, Lease], memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    _, b = leases
    answers = [set[str](), set[str](), {""}]
    monkeypatch.setattr(b, "take", lambda names: answers.pop(0))
    with b.alone():
        assert answers == []
    assert memory.told == []


@pytest.mark.parametrize("clock", ["monotonic", "time"])
def test_a_lease_is_not_relied_on_once_either_clock_says_that_it_has_expired(
    clock: str, leases: tuple[Lease, Lease], clocks: Clocks
) -> None:
    """One may stand still while a laptop sleeps, the other one may be set back."""
    a, _ = leases
    assert a.take(["k"]) == {"k"}
    number = a.number
    assert a.holds(number)
    clocks.now[clock] += LEASE_SECONDS
    assert not a.holds(number)
    assert a.take(["k"]) == {"k"}
    assert a.number == number + 1, "under a new one"


def test_a_lease_counts_from_when_its_request_was_sent(
    leases: tuple[Lease, Lease], memory: Memory, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = leases
    slow_once(memory, clocks, 0.7 * LEASE_SECONDS, monkeypatch)
    a.hold()
    assert a.number == 2, "the first one was no longer certain when its answer came"
    assert a.holds(2)


@pytest.mark.parametrize(
    ("silence", "got", "stays"), [(0.9, set(), True), (1.1, {"k"}, True), (1.9, {"k"}, True), (2.1, {"k"}, False)]
)
def test_a_silent_launch_keeps_its_claims_for_the_time_of_a_lease_and_its_objects_for_twice_that(
    silence: float, got: set[str], stays: bool, leases: tuple[Lease, Lease], memory: Memory
) -> None:
    a, b = leases
    assert a.take(["k"]) == {"k"}
    memory.now += silence * LEASE_SECONDS
    assert b.take(["k"]) == got
    tidy(b)
    assert any(name.startswith("launches/a.1.") for name in memory.objects) is stays


def test_a_claim_given_back_and_taken_again_at_once_stays(leases: tuple[Lease, Lease]) -> None:
    a, b = leases
    assert a.take(["k"]) == {"k"}
    a.free("k")
    assert a.take(["k"]) == {"k"}
    tidy(a)
    assert b.take(["k"]) == set()
    a.free("k")
    tidy(a)
    assert b.take(["k"]) == {"k"}


def test_a_claim_that_was_refused_is_removed_and_one_that_was_granted_is_not(leases: tuple[Lease, Lease]) -> None:
    a, b = leases
    assert a.take(["k"]) == {"k"}
    assert b.take(["k", "l"]) == {"l"}
    tidy(a)
    tidy(b)
    assert b.take(["k"]) == a.take(["l"]) == set()
    a.free("k")
    tidy(a)
    tidy(b)
    assert a.take(["k"]) == {"k"}, "what was asked for in vain stands in nobody's way"


def test_launches_of_one_machine_do_not_see_each_other(leases: tuple[Lease, Lease], memory: Memory) -> None:
    """The locks of its folder decide between them."""
    a, b = leases
    another = Lease(cast(Remote, memory), "a", "3")
    assert a.take(["k"]) == another.take(["k"]) == {"k"}
    assert a.look() == another.look() == set()
    assert b.look() == {"k"}
    assert (a.machines, b.machines) == (set(), {"a"})
    another.close()


def test_the_leases_of_ended_launches_are_swept_up_on_their_own_machine(leases: tuple[Lease, Lease], memory: Memory) -> None:
    a, b = leases
    assert (a.take(["k"]), b.take(["l"])) == ({"k"}, {"l"})
    Lease(cast(Remote, memory), "b", "3").sweep(lambda launch: launch == "1")
    assert b.look() == {"k"}
    Lease(cast(Remote, memory), "b", "3").sweep(lambda launch: True)
    assert (a.look(), b.look()) == (set(), {"k"})


def test_a_launch_that_ends_leaves_nothing_of_a_lease_that_it_had_lost(
    leases: tuple[Lease, Lease], memory: Memory, clocks: Clocks
) -> None:
    a, _ = leases
    assert a.take(["k"]) == {"k"}
    clocks.sleep(LEASE_SECONDS)
    assert a.take(["k"]) == {"k"}
    assert len({name.split("/")[1] for name in memory.objects}) == 2
    a.close()
    assert memory.objects == {}


@pytest.mark.parametrize(("seconds", "holds"), [(0.45, True), (0.55, False)])
def test_a_lease_is_lost_if_its_renewal_may_have_come_when_it_had_expired(
    seconds: float,
    holds: bool,
    leases: tuple[Lease, Lease],
    memory: Memory,
    clocks: Clocks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, _ = leases
    assert a.take(["k"]) == {"k"}
    clocks.sleep(0.5 * LEASE_SECONDS)
    slow_once(memory, clocks, seconds * LEASE_SECONDS, monkeypatch)
    a._renew()
    assert a.holds(a.number) is holds


def test_claims_that_took_too_long_are_made_again_under_a_new_lease(
    leases: tuple[Lease, Lease], memory: Memory, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = leases
    a.hold()
    slow_once(memory, clocks, 0.7 * LEASE_SECONDS, monkeypatch)
    assert a.take(["k"]) == {"k"}
    assert a.number == 2
    assert a.holds(2)


def test_a_new_lease_under_which_claims_are_still_owed_holds_nothing(
    leases: tuple[Lease, Lease], memory: Memory, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise RemoteError("away")

    a, _ = leases
    assert a.take(["k"]) == {"k"}
    clocks.sleep(LEASE_SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "soon", away)
        with pytest.raises(RemoteError):
            a.hold()
    assert a.number == 2
    assert not a.holds(2)
    a.hold()
    assert a.holds(2)
    assert a.held == {"k"}


def test_a_claim_given_back_while_the_bucket_is_away_is_not_made_again(
    leases: tuple[Lease, Lease], memory: Memory, clocks: Clocks
) -> None:
    a, b = leases
    assert a.take(["k", "l"]) == {"k", "l"}
    clocks.sleep(LEASE_SECONDS)
    memory.is_away = True
    with pytest.raises(RemoteError):
        a.hold()
    a.free("k")
    memory.is_away = False
    memory.now += 1.1 * LEASE_SECONDS
    a.hold()
    assert a.held == {"l"}
    assert b.take(["k", "l"]) == {"k"}


class Parts:
    """The turns of a launch, and the parts it has written. Uploads fail while the bucket is away."""

    def __init__(self, lease: Lease, memory: Memory) -> None:
        self.written: dict[str, bytes] = {}
        self.register = Register(1 << 20)
        self._memory = memory
        place = SimpleNamespace(lease=lease, locks=SimpleNamespace(appending=contextlib.nullcontext), write=self._write)
        self.turns = BucketTurns(cast(Any, place), cast(Any, SimpleNamespace(register=self.register)))

    def _write(self, name: str, data: bytes, may: Callable[[], bool]) -> Stamp:
        self._memory.put(name, data, may)
        self.written[name] = data
        return 0, len(data), 0

    def fail(self, name: str, table: pa.Table) -> None:
        """Try in vain to write this part, as rows of runs that this launch has not claimed."""
        with self.turns.appending(table["key"].to_pylist()):
            self._memory.is_away = True
            with pytest.raises(RemoteError):
                self.turns.write(name, table)
            self._memory.is_away = False


def test_who_repeats_an_upload_leaves_rows_to_a_machine_that_has_claimed_their_runs_since(
    leases: tuple[Lease, Lease], memory: Memory
) -> None:
    """Though what it asks for now are runs that it has claimed itself."""
    a, b = leases
    parts = Parts(a, memory)
    parts.fail("runs-a.parquet", encode([row(1)]))
    assert b.take([ONE]) == {ONE}
    assert a.take([TWO]) == {TWO}
    with parts.turns.appending([TWO]) as elsewhere:
        assert set(elsewhere) == {ONE}
        assert parts.turns.repeat(elsewhere)
        assert not parts.turns.repeat(()), "it is given up for good"
    assert parts.written == {}


@pytest.mark.parametrize("known", [True, False])
def test_an_upload_that_failed_is_repeated_unless_its_rows_have_come_by_another_way(
    known: bool, leases: tuple[Lease, Lease], memory: Memory
) -> None:
    a, _ = leases
    parts, table = Parts(a, memory), encode([row(1)])
    parts.fail("runs-a.parquet", table)
    if known:
        parts.register.put("runs-b.parquet", (0, 1, 0), table, came=[ONE])
    with parts.turns.appending([ONE]) as elsewhere:
        assert parts.turns.repeat(elsewhere)
        assert not parts.turns.repeat(elsewhere)
    assert parts.written == ({} if known else {"runs/runs-a.parquet": parquet_bytes(table)})


def test_a_claim_counts_as_long_as_its_launch_renews_its_lease(leases: tuple[Lease, Lease], memory: Memory) -> None:
    a, b = leases
    assert a.take(["k"]) == {"k"}
    for _ in range(3):
        memory.now += 0.9 * LEASE_SECONDS
        a._renew()
    tidy(b)
    assert b.take(["k"]) == set()
