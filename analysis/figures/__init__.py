"""Figures, one module a family: functions from a table of measured quantities to a figure, without files or state."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

OWN_FILES = (
    "mkdir -p failed for path",
    "%s is not a writable directory",
    "Matplotlib created a temporary",
    "Could not save font_manager cache",
)
"""The beginnings of the warnings of matplotlib if it cannot keep its own files. Figures are the same without them."""

for of in ("matplotlib", "matplotlib.font_manager"):
    logging.getLogger(of).addFilter(lambda record: not str(record.msg).startswith(OWN_FILES))

if "MPLBACKEND" in os.environ and "matplotlib" not in sys.modules:
    # matplotlib cannot be imported where this names a backend that is not installed, and no figure here needs one
    named = os.environ.pop("MPLBACKEND")
    try:
        import matplotlib
    finally:
        os.environ["MPLBACKEND"] = named
    with suppress(ValueError):
        matplotlib.rcParams["backend"] = named


@contextmanager
def usual_style() -> Iterator[None]:
    """In the block, or in a function that this decorates, figures are drawn as if the user had no file `matplotlibrc`."""
    import matplotlib

    usual: dict[Any, Any] = {name: value for name, value in matplotlib.rcParamsDefault.items() if name != "backend"}
    with matplotlib.rc_context(usual):
        yield
