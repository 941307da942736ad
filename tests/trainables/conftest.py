"""What the tests of trainings share."""

from __future__ import annotations

import pytest

from trainables.training.precision import quiet_cpu


@pytest.fixture(autouse=True)
def quiet() -> None:
    """As in a worker."""
    quiet_cpu()
