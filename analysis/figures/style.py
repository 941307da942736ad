"""What all figures share: colours, and how a figure becomes a file."""

from __future__ import annotations

import io

import matplotlib
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colour-blind safe palette."""


MOST_LETTERS = 500
"""Of a title or label: to place a text of many thousands takes minutes."""


def literal(text: str, most: int = MOST_LETTERS) -> str:
    """A text as it is, shortened if it is long: matplotlib takes what stands between two dollar signs for a formula."""
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


def image(figure: Figure, kind: str = "png") -> bytes:
    """A figure as `png` (160 dots per inch) or `svg` file, without the date."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "analysis", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()
