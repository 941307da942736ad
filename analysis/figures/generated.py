"""Figures of generators and tokenizers of pictures: samples and reconstructions with what is read in them, which real pictures
samples are most like, and how much of what is unseen is made of what is seen (arXiv 2510.03075).

Compositions are ordered by their level, the seen ones first. What is read right has a tick, and a frame if both judges agree on
it, so that no colour is needed to see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from analysis.figures.panels import HATCHES, LEVEL_COLOURS, PAGE, SMALL, array_of, seed_points, values_of
from analysis.figures.style import COLOURS
from analysis.generators import UNSEEN_CODES, UNSEEN_PAIRS
from analysis.measures.tokens import EACH
from trainables.generative.oracle import UNCLEAR
from trainables.generative.settings import CONDITIONINGS
from trainables.generative.shapes import COMPOSITIONS, level_of_each

FAMILY_NAMES: Mapping[tuple[str, str], str] = {
    ("dit", "vae"): "DiT on VAE",
    ("dit", "vq"): "DiT on VQ",
    ("maskgit", "vq"): "MaskGIT on VQ",
    ("givt", "vae"): "GIVT on VAE",
    ("givt", "vq"): "GIVT on VQ",
    ("mar", "vae"): "MAR on VAE",
    ("mar", "vq"): "MAR on VQ",
}
CONDITIONING_NAMES = {
    "full": "values, all factors", "dropout": "values, not always all", "quantised": "classes, all factors",
    "both": "classes, not always all",
}  # fmt: skip
WITHOUT_LOSS = "without JEPA"
TOKENIZER_NAMES = {"vae": "VAE", "vq": "VQ"}
RIGHT, WRONG = COLOURS[0], COLOURS[1]
COLUMNS = 8
"""Pictures in a row, about, without those that show what was asked."""
GAP, BETWEEN, CAPTION, MARGIN, NOTE = 0.1, 0.3, 0.3, 1.0, 0.55
"""Space between pictures, between blocks and levels, under a picture, left of all and right of a block; a picture is 1."""
LEAST_INCH = 0.58
"""A picture's least side in inches, so that what is read under it fits; a figure of many families becomes wider than a page."""


@dataclass(frozen=True, slots=True)
class _Column:
    """Pictures (8, 3, N, N), one of each composition, and what the probe and the oracle read in them (8, 3), where they were
    asked."""

    pictures: np.ndarray
    read: tuple[np.ndarray, np.ndarray] | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class _Block:
    """Columns under a title, and a note beside each row."""

    title: str
    columns: Sequence[_Column]
    notes: Sequence[str] = ()


def draw_samples(table: pd.DataFrame) -> Figure:
    """Samples of every family, a row per composition, beside what was asked; under each what probe and oracle read in it; at
    the end of a row the share of all samples that both read right. Of the lowest seed."""
    families = {name: _of_lowest_seed(part) for name, part in _families(table).items()}
    each = max(2, COLUMNS // len(families))
    blocks = [_Block("", [_Column(array_of(next(iter(families.values())), "asked"), title="asked")])]
    for name, part in families.items():
        shares = [values_of(part, f"both_{word}")[0] for word in COMPOSITIONS]
        columns = list(_columns(part, "pictures", each))
        blocks.append(_Block(name.replace(", ", "\n", 1), columns, [f"{share:.0%}" for share in shares]))
    return _grid(table, blocks)


def draw_reconstructions(table: pd.DataFrame) -> Figure:
    """Pictures, and beside each what a tokenizer makes of it, with what probe and oracle read in the latter; a row per
    composition. At the end of a row the share of all reconstructions that both read right. Of the lowest seed."""
    kinds = [kind for kind in TOKENIZER_NAMES if kind in set(table["encoding"])]
    blocks = []
    for kind in kinds:
        part = _of_lowest_seed(table, encoding=kind)
        each = max(1, COLUMNS // (2 * len(kinds)))
        originals = array_of(part, "originals")
        columns = []
        for i, again in enumerate(_columns(part, "reconstructions", each)):
            columns += [_Column(originals[:, i], title="original"), _Column(again.pictures, again.read, "decoded")]
        shares = [values_of(part, f"both_{word}")[0] for word in COMPOSITIONS]
        blocks.append(_Block(TOKENIZER_NAMES[kind], columns, [f"{share:.0%}" for share in shares]))
    return _grid(table, blocks)


def draw_retrieval(table: pd.DataFrame) -> Figure:
    """Of the samples of each composition, the shares whose nearest real picture, by the features of the probe, shows each
    composition; means over the seeds, a panel per family. Frames hold the compositions of a level."""
    families, (order, level) = _families(table), _order(table)
    figure = Figure(figsize=(max(0.6 + 2.15 * len(families), 3.4), 2.9), layout="constrained")
    words = [COMPOSITIONS[i] for i in order]
    for axes, (name, part) in zip(figure.subplots(1, len(families), squeeze=False)[0], families.items(), strict=True):
        found = part[part["quantity"] == "retrieved"]["array"].dropna()
        matrix = np.mean(np.stack(list(found)), axis=0)[np.ix_(order, order)]
        shown = axes.imshow(matrix, cmap="cividis", vmin=0, vmax=1)
        for (row, column), share in np.ndenumerate(matrix):
            if round(100 * share):
                axes.text(
                    column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=SMALL - 1,
                    color="black" if share > 0.5 else "white",
                )  # fmt: skip
        for first, last in _runs(level[order]):
            side = last - first + 1
            axes.add_patch(Rectangle((first - 0.5, first - 0.5), side, side, fill=False, lw=1.2, edgecolor="white"))
        axes.set_xticks(range(len(words)), words, rotation=90, fontsize=SMALL, family="monospace")
        axes.set_yticks(range(len(words)), words, fontsize=SMALL, family="monospace")
        right = np.diagonal(matrix).mean()
        axes.set_title(f"{name}\n{right:.0%} as asked", fontsize=SMALL + 1)
        axes.set_xlabel("nearest real picture shows", fontsize=SMALL)
    figure.axes[0].set_ylabel("asked", fontsize=SMALL)
    bar = figure.colorbar(shown, ax=figure.axes, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label("share of samples", fontsize=SMALL)
    return figure


def draw_coverage(table: pd.DataFrame) -> Figure:
    """How much of fresh pictures is made of codes, or of codes at a place, that no seen training picture has: medians over the
    seeds (points), by composition, and the largest shares with which claims are judged."""
    order, level = _order(table)
    words = [COMPOSITIONS[i] for i in order]
    panels: Sequence[tuple[str, str, float | None]] = (
        ("unseen_codes", "figure's tokens whose code\nis unseen", UNSEEN_CODES),
        ("unseen_pairs", "figure's tokens whose code\nis unseen at their place", UNSEEN_PAIRS),
        ("unseen_images", "pictures with any such token", None),
    )
    figure = Figure(figsize=(PAGE, 2.6), layout="constrained")
    for axes, (name, title, most) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        by_word = [values_of(table, f"{name}_{word}") for word in words]
        for place, (values, at) in enumerate(zip(by_word, level[order], strict=True)):
            bar = axes.bar(place, np.median(values), width=0.8, color=LEVEL_COLOURS[at], alpha=0.55)
            bar[0].set(hatch=HATCHES[at], edgecolor="0.25", linewidth=0.6)
            seed_points(axes, place, values, "0.15", mean=False, ms=2.5)
        top = max([1e-3, *(value for values in by_word for value in values)])
        if most is not None:
            axes.axhline(most, color="0.2", ls="--", lw=1)
            axes.text(0, most, f" at most {most:g}", fontsize=SMALL, va="bottom")
            top = max(top, 1.15 * most)
        axes.set(ylim=(0, 1.08 * top), title=title)
        axes.title.set_fontsize(SMALL + 1)
        axes.set_xticks(range(len(words)), words, rotation=90, fontsize=SMALL, family="monospace")
        axes.tick_params(labelsize=SMALL)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("share", fontsize=SMALL)
    figure.legend(
        handles=[
            Patch(facecolor=LEVEL_COLOURS[at], alpha=0.55, hatch=HATCHES[at], edgecolor="0.25", label=_level_name(at))
            for at in sorted(set(level.tolist()))
        ],
        loc="outside lower center", ncols=4, fontsize=SMALL, frameon=False,
    )  # fmt: skip
    return figure


def draw_conditioning(table: pd.DataFrame) -> Figure:
    """What is drawn by models that were told values or classes (rows), all factors or not always all (columns): for each level
    the share of pictures that both judges read right, seeds as points. What the table has no runs of has an empty panel."""
    order, level = _order(table)
    told = table["options"].map(told_of)
    figure = Figure(figsize=(0.62 * PAGE, 3.9), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, (word, title) in zip(panels.flat, CONDITIONING_NAMES.items(), strict=True):
        part = table[told == word]
        for at in sorted(set(level)):
            words = [COMPOSITIONS[i] for i in order if level[i] == at]
            shares = np.mean([values_of(part, f"both_{each}") for each in words], axis=0)
            if len(shares):
                axes.bar(at, np.median(shares), color=LEVEL_COLOURS[at], hatch=HATCHES[at], alpha=0.5)
            seed_points(axes, at, shares, LEVEL_COLOURS[at], mean=False)
        if part.empty:
            axes.text(0.5, 0.5, "not compared here", transform=axes.transAxes, ha="center", va="center", fontsize=SMALL)
        axes.set_title(title, fontsize=SMALL + 1)
        axes.set_xticks(sorted(set(level)), [_level_name(at) for at in sorted(set(level))], fontsize=SMALL)
        axes.set_ylim(-0.03, 1.05)
    for axes in panels[:, 0]:
        axes.set_ylabel("share read right", fontsize=SMALL)
    return figure


def _families(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The runs of each objective, tokens and conditioning, known ones first, by name: what all share is left out of it."""
    told, loss = table["options"].map(told_of), table["options"].map(loss_of)
    there = pd.Series(list(zip(table["decoder"], table["encoding"], told, loss, strict=True)), table.index)
    known, words = list(FAMILY_NAMES), list(CONDITIONINGS)

    def place(one: tuple[str, ...]) -> tuple[Any, ...]:
        family = known.index((one[0], one[1])) if one[:2] in known else len(known)
        return family, one[:2], words.index(one[2]), one[3] != WITHOUT_LOSS, one[3]

    ordered = sorted(set(there), key=place)
    parts = [(FAMILY_NAMES.get(one[:2], " on ".join(one[:2])), *one[2:]) for one in ordered]
    differ = [len({part[i] for part in parts}) > 1 for i in range(3)]
    if not any(differ[1:]):
        differ[0] = True
    named = [", ".join(word for word, shown in zip(part, differ, strict=True) if shown) for part in parts]
    return {name: table[there == one] for name, one in zip(named, ordered, strict=True)}


def told_of(options: Mapping[str, Any]) -> str:
    """What a run's generator is told of pictures, a word of CONDITIONINGS."""
    return str(options.get("conditioning", CONDITIONINGS[0]))


def loss_of(options: Mapping[str, Any]) -> str:
    """What a run has of the auxiliary loss, in words."""
    if not options.get("jepa"):
        return WITHOUT_LOSS
    layers, teacher = options.get("jepa_layers", "three"), options.get("jepa_teacher", "ema")
    return f"JEPA {options['jepa']:g}, layers {layers}" + ("" if teacher == "ema" else f", teacher {teacher}")


def _of_lowest_seed(table: pd.DataFrame, **columns: str) -> pd.DataFrame:
    for name, wanted in columns.items():
        table = table[table[name] == wanted]
    return table[table["seed"] == table["seed"].min()]


def _order(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Which compositions come first, by level, and the level (8,) of each, of the table's runs, which share their split."""
    level = np.array([*level_of_each(str(table["holdout"].iloc[0])).values()])
    return np.argsort(level, kind="stable"), level


def _level_name(level: int) -> str:
    return f"level {level}" if level else "seen"


def _runs(values: np.ndarray) -> Iterable[tuple[int, int]]:
    """First and last place of each row of equal values."""
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1), len(values)]
    return [(first, last - 1) for first, last in pairwise(edges)]


def _columns(table: pd.DataFrame, name: str, each: int) -> Iterable[_Column]:
    """The first pictures of each composition, with what is read in them."""
    shown, probe, oracle = (array_of(table, name + part) for part in ("", "_probe", "_oracle"))
    for i in range(min(each, shown.shape[1])):
        yield _Column(shown[:, i], (probe[:, i], oracle[:, i]))


def _grid(table: pd.DataFrame, blocks: Sequence[_Block]) -> Figure:
    """Blocks side by side, a row per composition, on one ruler: a picture is one wide and one high."""
    order, level = _order(table)
    tops, y = {}, 0.0
    for before, at in pairwise([None, *order]):
        assert at is not None
        y += BETWEEN * (before is not None and level[before] != level[at])
        tops[at] = y
        y += 1 + CAPTION
    figure, axes = Figure(), None
    width = MARGIN + sum((1 + GAP) * len(b.columns) + NOTE * bool(b.notes) + BETWEEN for b in blocks)
    lines = max(1 + block.title.count("\n") for block in blocks)
    above, below = 0.3 + 0.32 * lines, 0.6
    inch = max(PAGE / width, LEAST_INCH)
    figure.set_size_inches(width * inch, (y + above + below) * inch)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(y + below, -above), aspect="equal")
    axes.axis("off")
    for i, top in tops.items():
        axes.text(MARGIN - 0.12, top + 0.5, COMPOSITIONS[i], fontsize=SMALL + 1, ha="right", va="center", family="monospace")
    for first, last in _runs(level[order]):
        low, high = tops[order[first]], tops[order[last]] + 1
        axes.plot([0.3, 0.3], [low, high], color=LEVEL_COLOURS[level[order[first]]], lw=2, solid_capstyle="butt")
        name = _level_name(level[order[first]])
        axes.text(0.2, (low + high) / 2, name, fontsize=SMALL, rotation=90, ha="right", va="center")
    x = MARGIN
    for block in blocks:
        end = x + (1 + GAP) * len(block.columns) - GAP
        axes.text((x + end) / 2, -0.36, block.title, fontsize=SMALL + 2, ha="center", va="baseline", weight="bold")
        for column in block.columns:
            axes.text(x + 0.5, -0.08, column.title, fontsize=SMALL, ha="center", va="baseline", color="0.35")
            for i, top in tops.items():
                _draw_cell(axes, x, top, column, i)
            x += 1 + GAP
        for i, note in enumerate(block.notes):
            axes.text(end + 0.08, tops[i] + 0.5, note, fontsize=SMALL, ha="left", va="center")
        x += NOTE * bool(block.notes) + BETWEEN
    key = (
        "Under a picture: what the probe reads, then the oracle (? unclear). ✓ all right, ✗ not; framed: right by both.\n"
        f"Beside a row: the share of all {EACH} pictures that both read right."
    )
    axes.text(width / 2, y + below / 2, key, fontsize=SMALL, ha="center", va="center", color="0.25")
    return figure


def _draw_cell(axes: Axes, x: float, top: float, column: _Column, i: int) -> None:
    """The picture of a composition, and what is read in it."""
    picture = column.pictures[i].transpose(1, 2, 0).clip(0, 1)
    axes.imshow(picture, extent=(x, x + 1, top + 1, top), interpolation="nearest", aspect="auto", zorder=1)
    right = column.read is not None and all((said[i] == _bits(i)).all() for said in column.read)
    edge, line = (RIGHT, 1.6) if right else ("0.75", 0.5)
    axes.add_patch(Rectangle((x, top), 1, 1, fill=False, zorder=2, edgecolor=edge, lw=line))
    for said, at, side in zip(column.read or (), (x, x + 1), ("left", "right"), strict=False):
        good = bool((said[i] == _bits(i)).all())
        word = "".join("?" if factor == UNCLEAR else str(int(factor)) for factor in said[i])
        mark, colour, weight = ("✓", RIGHT, "bold") if good else ("✗", WRONG, "normal")
        axes.text(at, top + 1.04, mark + word, fontsize=SMALL - 1, ha=side, va="top", color=colour, weight=weight)


def _bits(i: int) -> np.ndarray:
    return np.array([int(bit) for bit in COMPOSITIONS[i]])
