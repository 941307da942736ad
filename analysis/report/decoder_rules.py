"""What trained decoders say of the claims about them: one function a claim, from the store's measures to its conditions.

The rules in words are in `claims`; all numbers are those of `analysis.measures`.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Mapping
from operator import sub
from typing import Any

import pandas as pd

from analysis.generators import LEAST_SEEDS
from analysis.report.findings import (
    UNMEASURED,
    Beside,
    BySeed,
    Choice,
    Condition,
    Finding,
    Picture,
    Where,
    also,
    choose,
    choose_depth,
    in_words,
    matching,
    number,
    paired,
    ratio,
    share,
)
from analysis.report.missing import of_rotation, seeds_beside
from analysis.report.pictures import pictures
from analysis.results import Results
from orchestrator.searches.axes import BUMPS as BUMP_TASK
from trainables.encodings import ENCODINGS
from trainables.rotation import TASK as ROTATION

LEAST_RATIO: Mapping[str, float] = {"bump": 10, "one-hot": 5, "positional": 5, "ramp": 5}
"""OOD over ID error from which on a decoder counts as failing in the box."""
DEPTH = 4
BUMPS: Where = {"task": BUMP_TASK, "dataset": "bumps", "holdout": "center"}
CNN: Where = {**BUMPS, "decoder": "cnn"}
STRIPES: Where = {**BUMPS, "dataset": "stripes+bumps"}
BESIDE_STRIPES: Mapping[str, Where] = {
    "bumps": {**CNN, "encoding": "bump"},
    "stripes": {**STRIPES, "decoder": "cnn", "encoding": "bump"},
}
STRIPED_CORNER: Where = {**STRIPES, "decoder": "cnn", "encoding": "bump", "depth": DEPTH, "holdout": "corner"}


def fails_in_box(results: Results) -> Finding:
    """Errors and successes of the CNN on each code; the MLP and the corner beside them."""
    choice = choose(results.table, {code: {**CNN, "encoding": code, "depth": DEPTH} for code in ENCODINGS})
    conditions, seen, aligned = [], [], []
    for code in ENCODINGS:
        id_mse, ood_mse, core, blank, ood_accuracy = (
            choice.values(code, "images", name) for name in ("id_mse", "ood_mse", "core_mse", "blank_core_mse", "ood_accuracy")
        )
        conditions += [
            Condition(f"{code}: OOD MSE / ID MSE", paired(ratio, ood_mse, id_mse), ">=", LEAST_RATIO[code]),
            Condition(f"{code}: MSE in the core of the box / that of a blank image", paired(ratio, core, blank), ">=", 0.75),
            _has_learned(choice, code, code),
            Condition(f"{code}: OOD accuracy", ood_accuracy, "<", 0.5),
        ]
        if len(ood_accuracy):
            seen.append(f"{code} {share(conditions[-1].judged)}")
        shares = (choice.values(code, "misplaced", name).values() for name in ("aligned_ood", "aligned_chance"))
        medians = [number(statistics.median(values)) for values in shares if values]
        if len(medians) == 2:
            aligned.append(f"{code} {medians[0]} (any other pixel {medians[1]})")
    told = f"; misplaced bumps at the right x or y: {', '.join(aligned)}" if aligned else ""
    others = {
        f"{decoder}, {code}, {box}": {**BUMPS, "decoder": decoder, "encoding": code, "holdout": box, "depth": DEPTH}
        for decoder in ("cnn", "mlp")
        for code in ENCODINGS
        for box in ("center", "corner")
        if (decoder, box) != ("cnn", "center")
    }
    return Finding(
        conditions,
        f"accuracy in the box: {', '.join(seen)}{told}{choice.lost(results)}" if seen else "",
        choice.settings,
        choice.others,
        pictures("fail-in-box", choice.table, "errors", "generated"),
        _errors_beside(also(results.table, choice, others)),
        choice.lacks("encodings", results),
    )


def _errors_beside(choice: Choice) -> Beside | None:
    names = ("id_mse", "ood_mse", "id_accuracy", "ood_accuracy")
    rows = []
    for group in choice.groups:
        values = [pd.Series(choice.values(group, "images", name), dtype=float) for name in names]
        if len(values[0]):
            medians = [v.median() for v in values]
            rows.append((group, str(len(values[0])), *map(number, medians[:2]), *map(share, medians[2:])))
    columns = ("decoder, code, box", "seeds", "ID MSE", "OOD MSE", "ID accuracy", "OOD accuracy")
    return Beside("Medians of the other decoders and boxes, which do not affect the verdict.", columns, rows) if rows else None


def superposes(results: Results) -> Finding:
    """How well the sum of the responses to x alone and to y alone predicts the image."""
    choice = choose(results.table, {"bump": {**CNN, "encoding": "bump", "depth": DEPTH}})
    correlation, shuffled = (choice.values("bump", "superposition", name) for name in ("correlation", "shuffled"))
    conditions = [
        Condition("correlation of the image with the sum", correlation, ">", 0.6),
        Condition("the same minus that with the sum of another position", paired(sub, correlation, shuffled), ">", 0.1),
    ]
    every: dict[str, Where] = {code: {**CNN, "encoding": code, "depth": DEPTH} for code in ENCODINGS}
    return _finding("superposition", conditions, results, choice, also(results.table, choice, every).table, "superposition")


def kernel_is_binary(results: Results) -> Finding:
    """Agreement of output similarities with the binary factorized kernel."""
    choice = choose(results.table, {code: {**CNN, "encoding": code, "depth": DEPTH} for code in ("bump", "ramp")})
    agreement, permuted, right, in_id = (
        choice.values("bump", "kernel", f"cosine_{name}")
        for name in ("agreement_ood", "permuted_ood", "truth_ood", "agreement_id")
    )
    of_ramp = choice.values("ramp", "kernel", "cosine_agreement_id")
    conditions = [
        *(_has_learned(choice, code, code) for code in choice.groups),
        Condition("bump: agreement of OOD images with the binary kernel", agreement, ">", 0.1),
        Condition("bump: the same minus that with permuted labels", paired(sub, agreement, permuted), ">", 0.05),
        Condition("bump: the same minus that of correct images", paired(sub, agreement, right), ">", 0.02),
        Condition("agreement of ID images, bump minus ramp", paired(sub, in_id, of_ramp), ">", 0),
    ]
    return _finding("binary-kernel", conditions, results, choice, choice.table, "kernel-corner", "kernels", "kernel-numbers")


def volume_contracts(results: Results) -> Finding:
    """Log volume in the box less that outside, at the first and the last hidden layer."""
    depth, choice = choose_depth(results.table, {"bump": {**CNN, "encoding": "bump"}})
    first, last = _volume_gap(choice, "bump", 0), _volume_gap(choice, "bump", depth)
    more = paired(lambda at_last, at_first: -at_last - abs(at_first), last, first)
    conditions = [
        _has_learned(choice, "bump", "bump"),
        Condition("log10 volume in the box minus outside, last hidden layer", last, "<=", -0.1),
        Condition("contraction at the last hidden layer minus the size of the difference at layer 0", more, ">", 0),
    ]
    codes = _of_depths(results.table, choice, {code: {**CNN, "encoding": code} for code in ("bump", "ramp")}, ("bump",))
    finding = _finding("volume", conditions, results, choice, codes, "volumes", depth=depth)
    striped = _of_depths(_with_bumps(results.table), choice, BESIDE_STRIPES, ("bumps",))
    finding.pictures.extend(pictures("volume", striped, "volume-gap"))
    return dataclasses.replace(finding, beside=_volumes_beside(choice, {"bump": depth}))


def factorization_falls(results: Results) -> Finding:
    """Factorization metric and linear probes at the first and the last hidden layer, for the bump and the ramp code."""
    groups: dict[str, Where] = {code: {**CNN, "encoding": code} for code in ("bump", "ramp")}
    depth, choice = choose_depth(results.table, groups)
    conditions, last = [_has_learned(choice, code, code) for code in groups], {}
    for code in groups:
        by_layer = [choice.values(code, "geometry", "factorization", layer) for layer in range(depth + 1)]
        probes = [choice.values(code, "probe", "r2_ood", layer) for layer in (0, depth)]
        last[code] = by_layer[-1]
        change = paired(sub, by_layer[-1], by_layer[0])
        conditions.append(Condition(f"{code}: factorization, last hidden layer minus layer 0", change, "<", 0))
        if code == "bump":
            by_grid = [choice.values(code, "geometry", "factorization_differences", layer) for layer in range(depth + 1)]
            text = "bump: least factorization of a hidden layer, by differences on the grid"
            conditions.append(Condition(text, paired(min, *by_grid), ">=", 0.95))
        change = paired(sub, probes[1], probes[0])
        conditions.append(Condition(f"{code}: R2 of linear probes OOD, last hidden layer minus layer 0", change, "<=", -0.01))
    lower = paired(sub, last["ramp"], last["bump"])
    conditions.append(Condition("factorization of the last hidden layer, ramp minus bump", lower, "<", 0))
    shown = _of_depths(results.table, choice, groups)
    return _finding("factorization", conditions, results, choice, shown, "by-layer", depth=depth)


def depth_does_not_help(results: Results) -> Finding:
    """Accuracy in the box at every depth that has enough seeds. A decoder that draws nothing fails there, too: so each must
    have learned to draw outside."""
    bump = {**CNN, "encoding": "bump"}
    of_bump = results.table[matching(results.table, bump)]
    groups = {str(depth): {**bump, "depth": depth} for depth in _depths(of_bump)}
    choice = choose(results.table, groups, lambda seeds: sum(count >= LEAST_SEEDS for count in seeds))
    by_depth = {where["depth"]: choice.values(name, "images", "ood_accuracy") for name, where in groups.items()}
    enough = {depth: values for depth, values in by_depth.items() if len(values) >= LEAST_SEEDS}
    shown = enough if len(enough) > 1 else by_depth | ({} if len(by_depth) > 1 else {"another": {}})
    conditions = []
    for depth, values in shown.items():
        conditions += [
            _has_learned(choice, str(depth), f"depth {depth}"),
            Condition(f"depth {depth}: OOD accuracy", values, "<", 0.5),
        ]
    tables = [choice.groups[name] for name, where in groups.items() if where["depth"] in shown]
    table = pd.concat(tables) if any(len(t) for t in tables) else pd.DataFrame()
    finding = _finding("depth", conditions, results, choice, table, "by-depth")
    return dataclasses.replace(finding, lacks=_two_depths(results.table, choice).lacks("encodings", results))


def _two_depths(table: pd.DataFrame, choice: Choice) -> Choice:
    """The two depths with most seeds, the smaller ones first; where there is but one, beside one of the study's."""
    seeds = {where["depth"]: choice.groups[name]["seed"].nunique() for name, where in choice.asked.items()}
    seeds = {DEPTH: 0, DEPTH - 2: 0} | seeds
    two = sorted(sorted(seeds, key=lambda depth: (-seeds[depth], depth))[:2])
    return also(table, choice, {str(depth): {**CNN, "encoding": "bump", "depth": depth} for depth in two})


def mlp_is_opposite(results: Results) -> Finding:
    """Volume and factorization of the MLP beside those of the CNN."""
    groups: dict[str, Where] = {name: {**BUMPS, "decoder": name, "encoding": "bump"} for name in ("cnn", "mlp")}
    depth, choice = choose_depth(results.table, groups)
    last = {"cnn": depth, "mlp": depth - 1}
    gap = {name: _volume_gap(choice, name, layer) for name, layer in last.items()}
    factorization = {name: choice.values(name, "geometry", "factorization", layer) for name, layer in last.items()}
    less = paired(sub, factorization["mlp"], factorization["cnn"])
    conditions = [
        *(_has_learned(choice, name, name.upper()) for name in groups),
        Condition("CNN: log10 volume in the box minus outside, last hidden layer", gap["cnn"], "<", 0),
        Condition("MLP: log10 volume in the box minus outside, last hidden layer", gap["mlp"], ">=", 0),
        Condition("factorization of the last hidden layer, MLP minus CNN", less, "<", 0),
    ]
    mlp: dict[str, Where] = {code: {**BUMPS, "decoder": "mlp", "encoding": code} for code in ("bump", "ramp")}
    shown = _of_depths(results.table, choice, mlp, ("bump",))
    both = {f"{name}, {n}": {**where, "decoder": name} for n, where in BESIDE_STRIPES.items() for name in groups}
    striped = _of_depths(_with_bumps(results.table), choice, both, [f"{name}, bumps" for name in groups])
    finding = _finding("mlp", conditions, results, choice, shown, "volumes", "by-layer", depth=depth)
    finding.pictures.extend(pictures("mlp", striped, "volume-gap"))
    return dataclasses.replace(finding, beside=_volumes_beside(choice, last))


def stripes_compose(results: Results) -> Finding:
    """What stripes alone teach: the right place, not the right image."""
    choice = choose(results.table, {"0": {**STRIPED_CORNER, "data_count": 0}})
    accuracy, mse, blank = (choice.values("0", "images", name) for name in ("ood_accuracy", "ood_mse", "blank_mse"))
    conditions = [
        Condition("stripes alone: OOD accuracy", accuracy, ">=", 0.95),
        Condition("stripes alone: OOD MSE / that of a blank image", paired(ratio, mse, blank), ">=", 1),
    ]
    return _finding("stripes-compose", conditions, results, choice, choice.table, "errors")


def plus_becomes_bump(results: Results) -> Finding:
    """What stripes alone draw, and what a hundred bumps change."""
    choice = choose(results.table, _by_bumps(0, 100))
    mse, proper = (
        {count: choice.values(count, "images", name) for count in ("0", "100")} for name in ("ood_mse", "ood_proper")
    )
    blank = choice.values("100", "images", "blank_mse")
    conditions = [
        Condition("no bumps: share of proper bumps OOD (a plus is none)", proper["0"], "<", 0.5),
        Condition("100 bumps: share of proper bumps OOD", proper["100"], ">", 0.5),
        Condition("OOD MSE, 100 bumps / none", paired(ratio, mse["100"], mse["0"]), "<=", 0.5),
        Condition("100 bumps: OOD MSE / that of a blank image", paired(ratio, mse["100"], blank), "<", 1),
    ]
    shown = also(results.table, choice, _by_bumps(0, 10, 50, 100)).table
    return _finding("plus-to-bump", conditions, results, choice, shown, "by-bumps")


def stripes_flatten_volume(results: Results) -> Finding:
    """How far the volume inside the box differs from that outside, with and without stripes. A decoder of one layer has no
    hidden layer 2. Stripes alone are another question."""
    table = _with_bumps(results.table)
    depth, choice = choose_depth(table[table["depth"] >= 2], BESIDE_STRIPES)
    conditions = [_has_learned(choice, name, name) for name in BESIDE_STRIPES]
    conditions += [
        Condition(
            f"|log10 volume in the box minus outside|, layer {layer}, stripes + bumps minus bumps",
            paired(sub, _size(_volume_gap(choice, "stripes", layer)), _size(_volume_gap(choice, "bumps", layer))),
            "<",
            0,
        )
        for layer in range(2, max(depth, 2) + 1)
    ]
    shown = _of_depths(table, choice, BESIDE_STRIPES)
    finding = _finding("stripes-volume", conditions, results, choice, shown, "volume-gap", "volumes", depth=depth)
    return dataclasses.replace(finding, beside=_volumes_beside(choice, dict.fromkeys(BESIDE_STRIPES, depth)))


def stripes_come_early(results: Results) -> Finding:
    """Tuning of the first and the last hidden layer with 0, 50 and 100 bumps."""
    choice = choose(results.table, _by_bumps(0, 50, 100))
    conditions = [_has_learned(choice, count, f"{count} bumps") for count in choice.groups]
    for count in ("50", "100"):
        first, last = (choice.values(count, "tuning", "interaction", layer) for layer in (0, DEPTH))
        striped = choice.values(count, "tuning", "striped", 0)
        conditions += [
            Condition(f"{count} bumps: share of striped units in layer 0", striped, ">", 0.5),
            Condition(f"{count} bumps: interaction, last hidden layer minus layer 0", paired(sub, last, first), ">", 0),
        ]
    with_, without = (choice.values(count, "tuning", "interaction", DEPTH) for count in ("100", "0"))
    more = paired(sub, with_, without)
    conditions.append(Condition("interaction in the last hidden layer, 100 bumps minus none", more, ">", 0))
    shown = also(results.table, choice, _by_bumps(0, 50, 100)).table
    return _finding("early-stripes", conditions, results, choice, shown, "striped", "tuning")


def rotation_mixes(results: Results) -> Finding:
    """What a decoder of rotated digits draws in the gap of angles it has not seen."""
    choice = choose(results.table, {"rotation": {"task": ROTATION}})
    gap, id_, mix = (choice.values("rotation", "rotation", name) for name in ("gap_mse", "id_mse", "closer_to_mix"))
    conditions = [
        Condition("MSE in the gap / outside", paired(ratio, gap, id_), ">=", 10),
        Condition("share of outputs in the gap nearer to a mix of its edges than to the truth", mix, ">=", 0.9),
    ]
    finding = _finding("rotation", conditions, results, choice, choice.table, "rotation")
    if not choice.seeds:
        return dataclasses.replace(finding, lacks=None)
    run = choice.table.to_dict("records")[0]
    few = choice.seeds < LEAST_SEEDS
    return dataclasses.replace(finding, lacks=of_rotation(run, seeds_beside(choice.lost_seeds(results))) if few else UNMEASURED)


def _finding(
    claim: str,
    conditions: list[Condition],
    results: Results,
    choice: Choice,
    shown: pd.DataFrame,
    *names: str,
    depth: int | None = None,
) -> Finding:
    at = f"at depth {depth}, " if depth else ""
    drawn = [one for name in names for one in _drawn(claim, shown, name, depth)]
    lacks = choice.lacks("encodings" if depth is None else "geometry", results)
    seen = at + in_words(conditions) + choice.lost(results) if choice.settings else ""
    return Finding(conditions, seen, choice.settings, choice.others, drawn, lacks=lacks)


def _has_learned(choice: Choice, group: str, name: str) -> Condition:
    """Without it an untrained network could meet what is asked of similarities, or of failures."""
    values = choice.values(group, "images", "id_accuracy") if group in choice.groups else {}
    return Condition(f"{name}: ID accuracy", values, ">", 0.9)


def _by_bumps(*counts: int) -> dict[str, Where]:
    return {str(count): {**STRIPED_CORNER, "data_count": count} for count in counts}


def _with_bumps(table: pd.DataFrame) -> pd.DataFrame:
    """Without the runs on stripes alone."""
    return table[(table["dataset"] == "bumps") | (table["data_count"] > 0)]


def _depths(table: pd.DataFrame) -> list[int]:
    return sorted({int(depth) for depth in table["depth"]})


def _of_depths(
    table: pd.DataFrame, choice: Choice, groups: Mapping[str, Where], judged: Collection[str] = ()
) -> pd.DataFrame:
    """Runs of these groups, of the setting that was chosen, at every depth at which there are runs of all of them; where some
    are named as judged, at every depth at which there are runs of these."""
    alike = {name: {**_made_alike(choice, where), **where} for name, where in groups.items()}
    by_depth = [
        also(table, choice, {name: {**where, "depth": depth} for name, where in alike.items()}) for depth in _depths(table)
    ]
    tables = [found.table for found in by_depth if all(len(found.groups[name]) for name in judged or groups)]
    return pd.concat(tables) if tables else table.iloc[:0]


def _made_alike(choice: Choice, where: Where) -> Where:
    """Width and precision of the chosen runs of the same decoder, and the number of images of those of the same data set, so
    that no further group brings runs of others in their place."""
    alike: dict[str, Any] = {}
    for group in choice.groups.values():
        if len(group) and group["decoder"].iloc[0] == where["decoder"]:
            is_same = group["dataset"].iloc[0] == where["dataset"]
            alike |= dict(group[["width", "precision", *["data_count"] * is_same]].iloc[0])
    return alike


def _drawn(claim: str, shown: pd.DataFrame, name: str, depth: int | None) -> list[Picture]:
    """The figure of this name. Volumes are drawn at the depth that is judged, which the caption names; none where the geometry
    was not measured there."""
    if name != "volumes" or depth is None:
        return pictures(claim, shown, name)
    measured = shown[matching(shown, {"depth": depth, "measure": "geometry"})]
    return [dataclasses.replace(one, alt=f"{one.alt}; at depth {depth}") for one in pictures(claim, measured, name)]


def _volume_gap(choice: Choice, group: str, layer: int, derivatives: str = "") -> BySeed:
    inside, outside = (choice.values(group, "geometry", f"volume_{side}{derivatives}", layer) for side in ("ood", "id"))
    return paired(sub, inside, outside)


def _volumes_beside(choice: Choice, layers: Mapping[str, int]) -> Beside | None:
    """Volumes of each group at a layer, by both kinds of derivatives."""
    rows = []
    for group, layer in layers.items():
        exact, differences = (_volume_gap(choice, group, layer, kind) for kind in ("", "_differences"))
        if exact:
            of_both = (number(statistics.median(gap.values())) if gap else "not measured" for gap in (exact, differences))
            rows.append((group, str(layer), str(len(exact)), *of_both))
    title = (
        "Medians of log10 volume in the box minus outside, by exact derivatives, which decide, and by differences between "
        "neighbours on the grid, as the authors took them."
    )
    return Beside(title, ("runs", "layer", "seeds", "exact", "differences"), rows) if rows else None


def _size(values: BySeed) -> BySeed:
    return paired(abs, values)
