"""The files of an answer: its tables, its JSON and its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from analysis.figures import usual_style
from orchestrator.command.files import csv_bytes, json_bytes, write_files
from orchestrator.store import Artifacts, UnreadableError

if TYPE_CHECKING:  # and when it is needed: one study need not wait for what another draws with
    from matplotlib.figure import Figure

    from analysis import objectives, regularization, scaling, signal, tune

MOST_PICTURED = 1 << 30
"""Bytes of the weights of a network that is drawn."""


@usual_style()
def write_scaling(answer: scaling.Answer, out: Path, told: Mapping[str, Any] = MappingProxyType({})) -> list[Path]:
    """Write `scaling.csv`, `.json`, `.png` and `.svg` into `out`, each replaced in one step.

    Args:
        told: what the JSON has beside the answer.
    """
    from analysis.figures.scaling import draw

    tables = {"scaling.csv": csv_bytes(answer.shown, answer.counts), "scaling.json": json_bytes({**answer.to_json(), **told})}
    files = write_files(out, tables)  # first: a figure may fail
    return files + write_files(out, _pictures([("scaling", draw(answer))]))


def weights_of(store: str) -> Callable[[str], bytes]:
    """Reads the weights of a run, by its key; OSError if there are none that can be read."""
    artifacts = Artifacts(store)

    def read(key: str) -> bytes:
        try:
            return artifacts.load_weights(key, MOST_PICTURED)
        except UnreadableError as error:
            raise OSError(str(error)) from error

    return read


@usual_style()
def write_regularization(answer: regularization.Answer, out: Path, read: Callable[[str], bytes]) -> list[Path]:
    """Write tables, `regularization.json` and all figures for which there is data into `out`, each replaced in one step.

    Args:
        read: the weights of a run, by its key; OSError if there are none.

    Returns:
        The files written.
    """
    from analysis.figures import tune
    from analysis.figures.regularization import drawings
    from analysis.regularization import COUNTS, load_decoders

    tables = {"trials.csv": answer.trials, "regularization.csv": answer.finals}
    contents = {name: csv_bytes(table, COUNTS) for name, table in tables.items() if len(table)}
    contents["regularization.json"] = json_bytes(answer.to_json())
    files = write_files(out, contents)  # first: a figure may fail
    pictures = _pictures(((name, draw()) for name, draw in drawings(answer, load_decoders(answer, read)).items()), "png")
    if answer.search is not None and answer.search.names and len(answer.trials):
        searched = [("search", tune.draw(answer.search)), ("settings", tune.draw_settings(answer.search))]
        pictures |= _pictures(searched, "png")
    return files + write_files(out, pictures)


@usual_style()
def write_tune(answer: tune.Answer, out: Path) -> list[Path]:
    """Write `tune.csv`, a line per trial, `tune-confirmed.csv`, `tune.json`, and the figures `tune.png`, `.svg` and
    `tune-settings.png`, into `out`, each replaced in one step."""
    from analysis.figures.tune import draw, draw_settings

    tables = {
        "tune.csv": csv_bytes(answer.trials, answer.counts),
        "tune-confirmed.csv": csv_bytes(answer.confirmed, answer.counts),
        "tune.json": json_bytes(answer.to_json()),
    }
    files = write_files(out, tables)  # first: a figure may fail
    pictures = _pictures([("tune", draw(answer))]) | _pictures([("tune-settings", draw_settings(answer))], "png")
    return files + write_files(out, pictures)


@usual_style()
def write_signal(answer: signal.Answer, out: Path, told: Mapping[str, Any] = MappingProxyType({})) -> list[Path]:
    """Write `signal.csv`, a line per generator, `signal-thresholds.csv`, `signal.json`, `.png` and `.svg` into `out`, each
    replaced in one step.

    Args:
        told: as in `write_scaling`.
    """
    from analysis.figures.signal import draw

    tables = {
        "signal.csv": csv_bytes(answer.runs, ("seed", "steps")),
        "signal-thresholds.csv": csv_bytes(answer.thresholds.shown, answer.thresholds.counts),
        "signal.json": json_bytes({**answer.to_json(), **told}),
    }
    files = write_files(out, tables)  # first: a figure may fail
    return files + write_files(out, _pictures([("signal", draw(answer))]))


@usual_style()
def write_generators(answer: objectives.Answer, name: str, out: Path) -> list[Path]:
    """Write `NAME.csv`, a line per run, `NAME.json`, and the figures `NAME-curves` and `NAME-levels` as `.png` and `.svg`, into
    `out`, each replaced in one step."""
    from analysis.figures.objectives import draw_curves, draw_levels
    from analysis.objectives import COUNTS

    tables = {f"{name}.csv": csv_bytes(answer.table, COUNTS), f"{name}.json": json_bytes(answer.to_json())}
    files = write_files(out, tables)  # first: a figure may fail
    figures = (f"{name}-curves", draw_curves(answer)), (f"{name}-levels", draw_levels(answer))
    return files + write_files(out, _pictures(figures))


def _pictures(figures: Iterable[tuple[str, Figure | None]], *kinds: str) -> dict[str, bytes]:
    """The files of figures with names: of these kinds, or of both. None: it has not been drawn."""
    from analysis.figures.style import image

    drawn = ((name, figure) for name, figure in figures if figure is not None)
    return {f"{name}.{kind}": image(figure, kind) for name, figure in drawn for kind in kinds or ("png", "svg")}
