"""The commands that train what a claim still lacks, with the settings of the runs that there are; each a list of words."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.fits import LEAST_SIZES
from analysis.generators import LEAST_SEEDS, known_value
from trainables.bumps import BumpTask
from trainables.generative.settings import (
    BELONGING,
    JEPA,
    OF_CONDITIONING,
    OF_WHICH,
    REAL,
    VARIED,
    GeneratorSettings,
    meaningless,
)
from trainables.generative.tiers import TIERS, generator
from trainables.regularization import PUBLISHED
from trainables.rotation import DIGIT
from trainables.settings import settings_of
from trainables.spec import RunSpec, Scalar

BUMPS_BESIDE_STRIPES = 50
"""Where neither the claim nor a run says how many."""

WITH_OPTION: Mapping[str, tuple[str, ...]] = {
    "objectives": VARIED, "conditioning": (*OF_CONDITIONING["both"], *VARIED), "jepa": (*JEPA, *VARIED),
}  # fmt: skip
"""The settings with an option of their own, by the study of generators."""
OF_RUNS = ("data_count", "max_steps", "batch_size", "lr", "schedule", "weight_decay")
"""What such a study can be asked for of the run, beside its precision."""
CALLED = {"data_count": "pool", "max_steps": "steps", "holdout": "split", "pair": "shape"}
"""What options call these."""
JOINED = ("--families", "--tokenizers", "--conditionings")
"""Options of which one command takes several values, if it differs from another one in nothing else."""

Command = list[str]
Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lacks:
    """What trains the missing runs. Without a command all runs are there, and `why` says what is wanting. With some, `why`
    names what had to be guessed, as the rows do not tell it."""

    commands: Sequence[Command]
    why: str = ""


def seeds_beside(lost: Collection[int]) -> int:
    """How many seeds, from 0 on, there are to be, so that enough are left beside those of which a run did not end well."""
    return next(count for count in itertools.count(LEAST_SEEDS) if count - sum(seed < count for seed in lost) >= LEAST_SEEDS)


def of_decoders(settings: Sequence[Fields], study: str, seeds: int) -> Lacks:
    """For runs of the bump task with a box held out: a command for those that one command can train together.

    Args:
        settings: of each group of runs that lacks seeds, the fields of a spec; a `data_count`, `width` or `precision` of None
            leaves them to the study.
        study: the one that trains runs on bumps alone, `geometry` or `encodings`.
    """
    together: dict[tuple[Any, ...], list[Fields]] = {}
    for setting in settings:
        code = "" if setting["dataset"] == "bumps" else setting["encoding"]
        at = (setting["dataset"], code, *(setting[n] for n in ("decoder", "depth", "holdout", "width", "precision")))
        together.setdefault(at, []).append(setting)
    return Lacks([[*_question(some, study), *_training(some[0], seeds)] for some in together.values()])


def of_scaling(settings: Fields, datasets: Sequence[str], least_size: int) -> Lacks:
    """For the thresholds of a scaling study with these settings, at its sizes if they are enough and one is large enough. A
    range of counts is only for the sizes and data sets that it was given for."""
    sizes, names = settings["N"], ("target", "resolution", "stop", "decoder", "depth", "encoding")
    enough = len(sizes) >= LEAST_SIZES and max(sizes) >= least_size
    asked = {"N": ",".join(map(str, sizes)) if enough else "16..64", "datasets": ",".join(datasets)}
    if "between" in settings and enough and set(datasets) <= set(settings["datasets"]):
        asked["between"] = settings["between"]
    asked |= {name: settings[name] for name in names if name in settings}
    options = {name: settings[name] for name in BumpTask.defaults}
    words = _words(asked) + _training({**settings, "options": options})
    return Lacks([_study("scaling", words)], "" if enough else "which further grid sizes to train at")


def of_penalties(run: Fields, seeds: int) -> Lacks | None:
    """For the comparison of the penalties that this is a run of; None if no command can ask for its number of steps."""
    epochs, options = _epochs(run), run["options"]
    if epochs is None:
        return None
    asked = {"N": run["N"], "region": run["holdout"], "seeds": seeds, **PUBLISHED}
    asked |= {name: options[name] for name in ("sigma", "init", "tolerance")}
    asked |= {"rank": options["rank"] or None, "channels": run["width"], "epochs": epochs}
    asked |= {name: run[name] for name in ("depth", "schedule", "batch_size", "lr", "weight_decay")}
    return Lacks([_study("regularization", _words(asked))])


def of_rotation(run: Fields, seeds: int) -> Lacks | None:
    """For the rotation study that this is a run of; None if no command can ask for its steps, or for its digit, which came from
    a file that the row does not name."""
    epochs, options = _epochs(run), run["options"]
    image = str(options.get("image", ""))
    if epochs is None or not image.startswith(DIGIT):
        return None
    gap = f"{_text(options['gap_low'])}..{_text(options['gap_high'])}"
    asked = {"digit": image.removeprefix(DIGIT), "angles": options["angles"], "gap": gap, "seeds": seeds, "N": run["N"]}
    asked |= {"epochs": epochs} | {name: run[name] for name in ("width", "batch_size", "lr", "weight_decay")}
    return Lacks([_study("rotation", _words(asked))])


def of_generators(sides: Sequence[tuple[RunSpec, int]], first: int, study: str) -> Lacks | None:
    """For generators of these settings, each with how many seeds there are to be, from the first one on: a command for those
    that one can train together. None if no command can ask for one of them."""
    together: list[dict[str, str]] = []
    for spec, seeds in sides:
        if (asked := _generator(spec, study)) is None:
            return None
        asked |= {"--seeds": str(seeds)} | ({"--first-seed": str(first)} if first else {})
        for one in together:
            apart = [name for name in {**one, **asked} if one.get(name) != asked.get(name)]
            if len(apart) == 1 and apart[0] in JOINED:
                one[apart[0]] += f",{asked[apart[0]]}"
                break
        else:
            together.append(asked)
    words = [[(n, v) if n.startswith("--") else ("--option", f"{n}={v}") for n, v in asked.items()] for asked in together]
    return Lacks([_study(study, [*itertools.chain(*pairs)]) for pairs in words])


def alike(spec: RunSpec, which: Mapping[str, Scalar]) -> RunSpec | None:
    """A generator like this one but for some of OF_WHICH; None if a tier does not have it."""
    if (found := _nearest(spec)) is None or _has_in_vain(spec, found[1]):
        return None
    tier, apart = found
    which = {**_which(spec), **which}
    others = meaningless(which)
    try:
        made = generator(tier, 0, which | {n: v for n, v in apart.items() if n not in (*others, *OF_RUNS)}, **_fields(spec))
    except ValueError:
        return None
    return dataclasses.replace(made, precision=spec.precision)


def _generator(spec: RunSpec, study: str) -> dict[str, str] | None:
    """What a study of generators is asked for, by option, or by the name of a setting without one; None if it cannot be."""
    if spec.dataset in REAL or (found := _nearest(spec)) is None:
        return None
    tier, apart = found
    if _has_in_vain(spec, apart):
        return None
    asked: dict[str, Any] = {"--families": spec.decoder, "--tokenizers": spec.encoding}
    if study == "conditioning":
        asked["--conditionings"] = known_value(spec, "conditioning")
    asked["--tier"] = tier
    if study == "jepa":  # which varies them if it is asked for nothing
        apart |= {name: known_value(spec, name) for name in JEPA[: 2 if known_value(spec, "jepa") else 1]}
    for name, value in apart.items():
        has_option = name in (*OF_RUNS, *WITH_OPTION[study], "holdout")
        asked[f"--{CALLED.get(name, name).replace('_', '-')}" if has_option else name] = value
    return {name: _text(value) for name, value in {**asked, "--precision": spec.precision}.items()}


def _nearest(spec: RunSpec) -> tuple[str, dict[str, Any]] | None:
    """The tier that has the fewest other settings than a generator, and those which the generator has; None if no command can
    ask for all of them."""
    names = [*OF_RUNS, *(name for name in settings_of(GeneratorSettings) if name not in OF_WHICH)]
    found = []
    for tier in TIERS:
        try:
            usual = generator(tier, 0, _which(spec))
            apart = {name: known_value(spec, name) for name in names if known_value(spec, name) != known_value(usual, name)}
            given = _which(spec) | {name: value for name, value in apart.items() if name not in OF_RUNS}
            made = dataclasses.replace(generator(tier, 0, given, **_fields(spec)), precision=spec.precision)
        except ValueError:
            continue
        if made == dataclasses.replace(spec, seed=0):
            found.append((tier, apart))
    return min(found, key=lambda one: len(one[1]), default=None)


def _has_in_vain(spec: RunSpec, apart: Collection[str]) -> bool:
    """Whether one of these settings means nothing to a generator: it was given beside others, to which it means something, and
    no study takes it for this one alone."""
    settings = _which(spec) | {name: known_value(spec, name) for name in BELONGING}
    return not meaningless(settings).isdisjoint(apart)


def _which(spec: RunSpec) -> dict[str, Any]:
    return {name: known_value(spec, name) for name in OF_WHICH}


def _fields(spec: RunSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in OF_RUNS}


def _question(settings: Sequence[Fields], study: str) -> Command:
    one = settings[0]
    if one["dataset"] != "bumps":
        counts = sorted({BUMPS_BESIDE_STRIPES if s["data_count"] is None else int(s["data_count"]) for s in settings})
        bumps = {"bumps": ",".join(map(str, counts))}
        return _study("tuning", _words(bumps | {name: one[name] for name in ("decoder", "depth", "encoding", "holdout")}))
    asked = {"encodings": ",".join(dict.fromkeys(s["encoding"] for s in settings)), "decoders": one["decoder"]}
    if study == "geometry":
        return _study(study, [*_words(asked | {"depths": one["depth"], "holdout": one["holdout"]}), "--no-stripes"])
    return _study(study, _words(asked | {"depth": one["depth"], "by_depth": "none", "holdouts": one["holdout"]}))


def _training(setting: Fields, seeds: int = LEAST_SEEDS) -> Command:
    """How a decoder of the bump task is trained, and over how many seeds; options of the task that are not the usual ones."""
    names = ("max_steps", "width", "precision", "lr", "batch_size", "weight_decay")
    size = {} if isinstance(setting["N"], list) else {"N": setting["N"]}
    others = {name: value for name, value in setting["options"].items() if BumpTask.defaults.get(name) != value}
    options = [word for name, value in others.items() for word in ("--option", f"{name}={_text(value)}")]
    return _words(size | {"seeds": seeds} | {name: setting[name] for name in names}) + options


def _study(name: str, words: Command) -> Command:
    return ["python", "-m", f"orchestrator.{name}", *words]


def _words(options: Mapping[str, Any]) -> Command:
    """Options by name, without those that are None."""
    given = {f"--{name.replace('_', '-')}": _text(value) for name, value in options.items() if value is not None}
    return [word for pair in given.items() for word in pair]


def _epochs(run: Fields) -> int | None:
    """Passes over the training set; None if they are no whole number."""
    of_epoch = math.ceil(run["data_count"] / run["batch_size"])
    return None if not of_epoch or run["max_steps"] % of_epoch else int(run["max_steps"] // of_epoch)


def _text(value: Any) -> str:
    """A value as a command line takes it, to its last digit."""
    value = value.item() if hasattr(value, "item") else value
    return repr(value) if isinstance(value, float) else str(value)
