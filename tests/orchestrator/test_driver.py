"""The order in which a launch trains, answers and ends Ray."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.engine import driver
from orchestrator.engine.cluster import Cluster
from orchestrator.engine.execution import Outcome
from orchestrator.store import StoreError

Ended = dict[str, Any]
"""How training ends."""


def order(monkeypatch: pytest.MonkeyPatch, ended: Ended, answer: Exception | None = None) -> tuple[list[str], str]:
    """What happened, one after another, and the error that came out of it."""
    happened: list[str] = []

    @contextmanager
    def connected(cluster: Cluster) -> Iterator[Path]:
        try:
            yield Path()
        finally:
            happened.append("Ray ended")

    def fit(execution: Any, cluster: Cluster, folder: Path) -> None:
        happened.append("trained")
        execution.fatal, execution.outcome.stopped = ended.get("fatal"), ended.get("stopped")

    monkeypatch.setattr(Cluster, "connected", connected)
    monkeypatch.setattr(Cluster, "parts", lambda cluster: [])
    monkeypatch.setattr(driver, "_fit", fit)
    nothing = SimpleNamespace(connected=lambda workers: None, hopeless_after=0.0, stall_seconds=0.0)
    execution: Any = SimpleNamespace(
        is_over=lambda: False, outcome=Outcome(), fatal=None, cpu_workers=0, placement=nothing, observer=nothing, limits=nothing
    )  # fmt: skip
    try:
        with driver.executed(execution, Cluster(workers=1)) as outcome:
            assert outcome is execution.outcome
            happened.append("answered")
            if answer is not None:
                raise answer
    except StoreError as error:
        return happened, str(error)
    return happened, ""


@pytest.mark.parametrize("stopped", [None, "time", "cost", "error"])
def test_the_answer_does_not_wait_for_the_end_of_ray(monkeypatch: pytest.MonkeyPatch, stopped: str | None) -> None:
    assert order(monkeypatch, {"stopped": stopped}) == (["trained", "answered", "Ray ended"], "")


@pytest.mark.parametrize("stopped", ["SIGINT", "SIGTERM"])
def test_after_a_signal_ray_ends_first(monkeypatch: pytest.MonkeyPatch, stopped: str) -> None:
    assert order(monkeypatch, {"stopped": stopped}) == (["trained", "Ray ended", "answered"], "")


def test_ray_ends_also_if_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert order(monkeypatch, {}, StoreError("full")) == (["trained", "answered", "Ray ended"], "full")
    assert order(monkeypatch, {"fatal": StoreError("gone")}) == (["trained", "Ray ended"], "gone")
