"""Thresholds as tables and lines: brackets as they narrow, and what is still to be done for them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rich.text import Text

from orchestrator.command.progress import Running, format_seconds
from orchestrator.command.tables import FittingTable, accuracy_text
from orchestrator.engine.estimate import probes_left
from orchestrator.searches.audits import UNAUDITED
from orchestrator.searches.axes import BUMPS, Axes
from orchestrator.searches.bracket import ThresholdResult
from trainables.program import COMMAND, FILES
from trainables.program import PATH as PROGRAM_TASK
from trainables.settings import value_of
from trainables.spec import RunSpec, Scalar

At = tuple[str, Scalar]
"""A data set, and a value of the axis along."""
MOST_COLUMNS, MOST_OPEN = 12, 2
"""Seeds that have columns of their own, and open brackets that a line names."""


def at(spec: RunSpec, along: str) -> At:
    """Where a run belongs."""
    return spec.dataset, value_of(spec, along)


def brackets_table(title: str, results: Sequence[ThresholdResult], running: Mapping[str, Running], task: str) -> FittingTable:
    """One line per data set and place along: each seed's bracket as it narrows, in images on top of the fixed ones. With
    more than MOST_COLUMNS seeds, or where places have not the same ones: how many are answered, and the brackets still open."""
    axes = results[0].axes
    probing: dict[tuple[At, int], list[Running]] = {}
    for run in running.values():
        probing.setdefault((at(run.spec, axes.along), run.spec.seed), []).append(run)
    by_place: dict[At, dict[int, ThresholdResult]] = {}
    for r in results:
        by_place.setdefault((r.dataset, r.along), {})[r.seed] = r
    seeds = sorted({r.seed for r in results})
    fixed = any(r.fixed for r in results)
    each = len(seeds) <= MOST_COLUMNS and all(len(of_seeds) == len(seeds) for of_seeds in by_place.values())
    of_seed = [f"seed {seed}" for seed in seeds] if each else ["answered", "thresholds", "open"]
    table = FittingTable(title)
    table.add_column("data set")
    always = "+ stripes" if task == BUMPS else "+ fixed"
    for name in (axes.along, *of_seed, *([always] if fixed else []), "runs"):
        table.add_column(name, justify="right")
    for place, of_seeds in by_place.items():
        row = [of_seeds[seed] for seed in sorted(of_seeds)]
        cells = [bracket_text(r, probing.get((place, r.seed), [])) for r in row] if each else _in_brief(place, row, probing)
        extra = [str(row[0].fixed) if row[0].fixed else ""] if fixed else []
        table.add_row(place[0], str(place[1]), *cells, *extra, str(sum(r.runs for r in row)))
    return table


def _in_brief(place: At, row: Sequence[ThresholdResult], probing: Mapping[tuple[At, int], list[Running]]) -> list[Text]:
    """How many of a place's thresholds are answered, from where to where they lie, those of which only a bound is known or
    that failed, with their numbers, and some of those that are open."""
    still = [r for r in row if r.verdict == "open"]
    found = sorted((r for r in row if r.threshold is not None), key=lambda r: (r.threshold, not r.is_cut))
    shown = [bracket_text(r, probing.get((place, r.seed), [])) for r in still[:MOST_OPEN]]
    more = [Text(f"and {len(still) - MOST_OPEN} more")] if len(still) > MOST_OPEN else []
    ends = dict.fromkeys(str(r.threshold) for r in (*found[:1], *found[-1:]))
    signs = " ?" * any(r.verdict == "non-monotone" for r in found) + " *" * any(r.lower_ended == UNAUDITED for r in found)
    span = ["<= " * found[0].is_cut + " to ".join(ends) + signs] if found else []
    others = Counter(bracket_text(r, []).plain for r in row if r.threshold is None and r.verdict != "open")
    told = "; ".join([*span, *[f"{count} {text}" for text, count in others.items()]])
    unknown = others or (found and found[0].is_cut)
    answered = Text(f"{len(row) - len(still)} of {len(row)}")
    return [answered, Text(told, style="yellow" if unknown else ""), Text(", ").join([*shown, *more])]


def plan_table(results: Sequence[ThresholdResult], seconds: Mapping[At, float], guessed: Mapping[str, int]) -> FittingTable:
    """Runs done and to do at each place.

    Args:
        seconds: the time that they may take; empty if nobody knows.
        guessed: by data set, the probes of a threshold of which nothing is known.
    """
    table = FittingTable("plan: open thresholds; the number of runs to do is an estimate")
    for name in ("data set", results[0].axes.along, "open", "runs done", "runs to do", "audits", "time"):
        table.add_column(name, justify="left" if name == "data set" else "right")
    for place in dict.fromkeys((r.dataset, r.along) for r in results):
        row = [r for r in results if (r.dataset, r.along) == place]
        still = [r for r in row if r.verdict == "open"]
        probes, audits = sum(round(probes_left(r, guessed[r.dataset])) for r in still), sum(r.audits_left for r in still)
        counted = (len(still), sum(r.runs for r in row), probes, audits)
        table.add_row(place[0], str(place[1]), *map(str, counted), format_seconds(seconds[place]) if seconds else "unknown")
    return table


def what_is_trained(specs: Sequence[RunSpec], axes: Axes, declared: Collection[str]) -> str:
    """The network as far as it is the same for all specs, or the program with its files.

    Args:
        specs: one of each threshold.
        declared: the settings of the task; what a spec holds in the place of others means nothing.
    """
    if specs[0].task == PROGRAM_TASK:
        files = ", ".join(json.loads(str(specs[0].option(FILES)))) or "none"
        return f"{specs[0].option(COMMAND)}\nfiles that are its version: {files}"

    def told(spec: RunSpec) -> dict[str, str]:
        depth, encoding = f"depth {spec.depth}" if spec.depth else "", f"{spec.encoding} encoding" if spec.encoding else ""
        shape = {"decoder": spec.decoder, "depth": depth, "width": f"width {spec.width}", "encoding": encoding}
        known = {name: text for name, text in shape.items() if name in declared and name not in (axes.least, axes.along)}
        return known | {"precision": spec.precision}

    of_each = [told(spec) for spec in specs]
    return ", ".join(text for name, text in of_each[0].items() if text and all(one[name] == text for one in of_each))


def outlier_text(result: ThresholdResult, task: str) -> str:
    """Runs that the search did not ask for and that speak against its answer, in words."""
    place = f"{result.dataset}, {result.axes.along} = {result.along}, seed {result.seed}"
    known = [value + result.fixed for value in result.outliers]
    if result.threshold is not None:
        return f"{place}: other runs, with {result.axes.told(', '.join(map(str, known)), task)}, contradict the threshold"
    *most, last = known
    values = result.axes.told(f"{', '.join(map(str, most))} and {last}" if most else last, task)
    who, passes, them = ("other runs", "pass", "them") if most else ("another run", "passes", "it")
    option = "--between or --counts" if task == PROGRAM_TASK and result.axes.least == "data_count" else "--between"
    return (
        f"{place}: {who}, with {values}, {passes} although {result.tried[-1][0] + result.fixed} misses. More may make runs "
        f"worse, or passing is a matter of luck: ask a range that ends near {them} ({option})"
    )


def bracket_text(result: ThresholdResult, probing: Sequence[Running]) -> Text:
    """The state of one threshold in a table cell."""
    styles = {"open": "red" * result.blocked, "failed": "red", "none reached": "yellow", "non-monotone": "yellow"}
    style = styles.get(result.verdict, "bold green")
    if result.verdict == "none reached":
        text = f"> {result.lower}"
    elif result.verdict == "failed":
        text = "failed"
    elif result.verdict == "open":
        low = "" if result.lower is None else str(result.lower)
        high = "" if result.upper is None else str(result.upper)
        text = f"{low}..{high}" if low or high else "waiting" if not probing and not result.blocked else ""
        text += " not trained" * result.blocked
    else:
        text = f"> {result.tried[-1][0]}" if result.threshold is None else str(result.threshold)
        text = "<= " * result.is_cut + text + " ?" * (result.verdict == "non-monotone")
    if result.lower_ended == UNAUDITED:
        text += " *"
    for run in probing:
        accuracy = "" if run.accuracy is None or run.accuracy != run.accuracy else f" {accuracy_text(run.accuracy, 2)}"
        audited = run.spec.stop == "target" and run.spec.task != PROGRAM_TASK
        text += f" [{value_of(run.spec, result.axes.least)}{' to the end' * audited}:{accuracy or ' ...'}]"
    return Text(text.strip(), style="yellow" if result.is_cut else style)
