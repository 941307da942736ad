"""What a worker asks of a run, whatever carries it out: a training here, or a program."""

from __future__ import annotations

from typing import Any, Protocol

from trainables.training.result import Progress, RunResult


class RunError(Exception):
    """Why a run has failed, where the message says all there is to know and a traceback would add nothing."""


class UnfitError(Exception):
    """What a run needs and its machine does not have, such as the files of a data set: one line that says what to do. The run
    has not failed: nothing is stored of it."""


class Run(Protocol):
    """A run in progress. `advance` it until it returns True, then ask for its `result`. It has an attribute for each of
    `result.CURVES`."""

    @property
    def reason(self) -> str:
        """Why it ended; empty while it goes on."""

    @property
    def device(self) -> object: ...

    @property
    def curve_summary(self) -> dict[str, list[float]] | None:
        """Further curves, by name; None if it keeps none."""

    @property
    def error_is_mse(self) -> bool:
        """Whether the curve of the error holds mean squared errors."""

    @property
    def progress(self) -> Progress: ...

    def advance(self, seconds: float | None = None) -> bool:
        """Go on until the run is finished or about `seconds` are over; True if finished.

        Raises:
            RunError: it has failed. Any other exception means the same.
        """

    def result(self) -> RunResult:
        """The run as it ended."""

    def state_dict(self) -> dict[str, Any] | None:
        """All that it takes to go on from here; None if it can only begin anew."""

    def close(self) -> None:
        """End what still goes on, and leave nothing behind. A run that is finished has nothing to end."""
