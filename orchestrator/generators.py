"""What the studies of generators have in common: their options, and the specs made of them.

Generators of pictures are trained over seeds, and asked for all compositions along the way. The probe that judges, and the
tokenizers, are runs that these need: they come first, by themselves.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any

from orchestrator.command import options as opt
from orchestrator.command.cli import checked, invocation, one_of
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.real_pictures import DataFolder, Dataset, pictures_of
from orchestrator.command.subject import option_of, read_pairs
from orchestrator.errors import UserError
from orchestrator.generator_study import GeneratorStudy
from orchestrator.launch import LaunchOptions, launch, versions
from trainables.generative.chain import GENERATOR
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.jepa import TWELFTHS, layers_of
from trainables.generative.settings import AS_CLASSES, BELONGING, OF_JEPA, OF_WHICH, RENDERED, GeneratorSettings, meaningless
from trainables.generative.shapes import COMPOSITIONS, ShapeSettings, bits_of, levels, seen_of
from trainables.generative.tiers import CHOOSING, FIGURES, TIERS, generator
from trainables.settings import RUN_SETTINGS, Setting, alternatives, listed, settings_of, value_of
from trainables.spec import LIMITS, SCHEDULES, RunSpec, Scalar
from trainables.task import load_task

KNOWN = settings_of(GeneratorSettings)
SHORT = {"pair": "shape", "holdout": "split", "decoder": "family", "encoding": "tokenizer", "max_steps": "steps"}
"""What users call settings that have another name elsewhere."""
PLACES = ("first", "second", "third")
CLASSES = {
    RENDERED: (("a disc", ""), ("a large figure", "a small figure"), ("a red figure", "a blue figure")),
    "celeba": (("a woman", "a man"), ("a face that smiles", "a face that does not smile"), ("black hair", "blond hair")),
    "clevrer": (
        ("a cube", "a sphere"), ("an object of rubber", "an object of metal"),
        ("a motion towards negative x", "a motion towards positive x"),
    ),
}  # fmt: skip
"""What each bit of a composition says, by the data set; empty: the shape that --shape names."""
OPTIONS = {
    "decoder": "--families", "encoding": "--tokenizers", "conditioning": "--conditionings", "holdout": "--split",
    "dataset": "--dataset", "content": "--data", "max_steps": "--steps", "data_count": "--pool",
}  # fmt: skip
VARIED = (
    "network", "codes", "fit", "stride", "channels", "embedding", "predicts", "noise", "input_scale", "smoothing",
    "temperature", "rounds", "pair", "radius_large", "radius_small", "radius_jitter", "colour_separation", "colour_jitter",
    "centre_jitter", "background",
)  # fmt: skip
"""Settings with an option of their own, which takes several values."""
OF_FIGURES = settings_of(ShapeSettings)
MOST_PICTURES = 1_000_000


def _flag(name: str) -> str:
    """What users call a setting, in an option."""
    return SHORT.get(name, name)


def _named(name: str) -> str:
    """The same in a table."""
    return _flag(name).replace("_", " ")


def _option(each: Setting, usual: str | None) -> Any:
    usual = usual or each.shown or str(FIGURES.get(each.name, each.default))
    allowed = ", ".join(f"`{word}`" for word in each.words) or _span(each)
    help = f"{each.help} Comma-separated{': ' * bool(allowed)}{allowed}."
    return Annotated[str | None, opt.subject(option_of(_flag(each.name)), help=help, show_default=usual)]


def _span(each: Setting) -> str:
    """The numbers that a setting may have, in words; empty of others."""
    if each.low is None or each.high is None:
        return ""
    return f"{each.low:g} to {each.high:g}"


Tokenizers = Annotated[
    str, opt.asked(help="Comma-separated: `vae` (continuous latents), `vq` (codes). `maskgit` needs codes.")
]


def varied_by(*names: str, usual: Mapping[str, str] = MappingProxyType({})) -> type:
    """A group of options, one for each of these settings, whose values are separated by commas.

    Args:
        usual: what the help says of values that a study varies by itself.
    """
    fields: list[tuple[str, Any, Any]] = [(name, _option(KNOWN[name], usual.get(name)), field(default=None)) for name in names]
    return make_dataclass("Varied", fields, frozen=True, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """What is trained, and how, besides the families and what is varied."""

    tier: Annotated[
        str,
        opt.asked(
            help="Size of pictures, networks and training: `smoke` (seconds; shows that it runs), `coarse`, `toy`, `long`, "
            "`gpu` or `paper`."
        ),
    ] = "toy"
    split: Annotated[
        str, opt.asked(help="Seen compositions: `train1`, `fail1`, or a list such as 000,100 (shape, size, colour).")
    ] = "train1"
    dataset: Dataset = RENDERED
    data: DataFolder = None
    seeds: Annotated[
        int,
        opt.asked(
            min=1,
            max=1000,
            help="Seeds per setting; claims need three. With gates, one whose probe or tokenizer misses gives way to the next.",
        ),
    ] = 3
    first_seed: Annotated[
        int, opt.asked(min=0, max=1_000_000, help="The first seed. No claim counts those from 100 on: choose settings by them.")
    ] = 0
    option: opt.TaskOption = None
    pool: Annotated[
        int | None,
        opt.subject(min=8, max=MOST_PICTURES, help="Pictures that a generator learns from.", show_default="of the tier"),
    ] = None
    steps: Annotated[
        str | None, opt.trained(help="Optimizer steps of a run, comma-separated.", show_default="of the tier")
    ] = None
    batch_size: Annotated[
        int | None,
        opt.trained(min=1, max=LIMITS["batch_size"][1], help="Pictures per step.", show_default="of the tier"),
    ] = None
    lr: Annotated[float | None, opt.trained("--lr", help="Learning rate, above 0.", show_default="of the tier")] = None
    schedule: Annotated[
        str | None, opt.trained(help="Learning rate: `constant`, or `cosine`, falling to 0.", show_default="of the tier")
    ] = None
    weight_decay: Annotated[
        float | None, opt.trained(min=0, help="Weight decay of AdamW.", show_default="of the tier")
    ] = None
    precision: opt.Precision = "auto"


@dataclass(frozen=True, slots=True)
class Planned:
    """What the options of a study of generators ask for."""

    templates: Sequence[RunSpec]
    """A run for each setting, of seed 0."""
    seeds: range
    settings: Mapping[str, Any]
    """Those of the answer, but for where it is written."""
    values: Mapping[str, Sequence[Scalar]]
    """The values of each setting that was given some."""
    notes: Sequence[str]
    """What is left out, and which options do nothing for some runs."""


def planned(
    asked: Mapping[str, Sequence[str]],
    varied: Mapping[str, str | None],
    options: GeneratorOptions,
    where: LaunchOptions,
    named: Mapping[str, str] = OPTIONS,
    usual: Mapping[str, str] = MappingProxyType({}),
) -> Planned:
    """All combinations of what was asked.

    Args:
        asked: the words of `families`, `tokenizers` and perhaps `conditionings`.
        varied: what the user gave of the settings that have an option of their own, by their names.
        named: what users call options of these settings.
        usual: the values, with commas between them, of those that a study varies by itself if the user gives none.

    Raises:
        UserError: what cannot be trained.
    """
    one_of("--tier", options.tier, tuple(TIERS))
    _check_split(options.split)
    if options.schedule is not None:
        one_of("--schedule", options.schedule, SCHEDULES)
    texts = {each: usual.get(each) if text is None else text for each, text in varied.items()}
    values = {each: _values(KNOWN[each], text) for each, text in texts.items() if text is not None}
    own = {each: given for each, given in values.items() if varied[each] is not None}
    lengths = (None,) if options.steps is None else _values(RUN_SETTINGS["max_steps"], options.steps)
    always = OF_WHICH[: len(asked)]
    with_option = {*varied, *always, "holdout", "dataset", "content"}
    more = _more(options.option or [], with_option, named)

    def asks_for(name: str, word: str) -> str:
        """What asks for a word of a setting."""
        return f"{named.get(name) or option_of(_flag(name))} {word}" if name in with_option else f"--option {name}={word}"

    of_figures = [*(option_of(_flag(each)) for each in values if each in OF_FIGURES)]
    of_figures += [f"--option {each}" for each in more if each in (*OF_FIGURES, "probe_lessons", "probe_torn")]
    shown = pictures_of(options.dataset, options.data, of_figures)
    typed = {each: getattr(options, each) for each in ("batch_size", "lr", "schedule", "weight_decay")}
    fields: dict[str, Any] = {each: value for each, value in {"data_count": options.pool, **typed}.items() if value is not None}
    task = load_task(GENERATOR)

    @cache
    def precision_of(family: str) -> str:
        return opt.resolve_precision(options.precision, family, where.on_gpu(task, family))

    most = math.prod(map(len, (*asked.values(), *values.values(), lengths))) * options.seeds
    if most > MOST_PLANNED:
        raise UserError(f"{most} runs are too many (at most {MOST_PLANNED}): ask for fewer values, or fewer --seeds")
    given_ways = asked.get("conditionings") or (str(more.get("conditioning", "full")),)
    conditionings, notes = _conditionings(given_ways, options.dataset, asks_for)
    templates: list[RunSpec] = []
    for family, tokenizer in itertools.product(asked["families"], asked["tokenizers"]):
        if family == "maskgit" and tokenizer != "vq":
            notes.append(f"left out: maskgit on {tokenizer}, as maskgit guesses codes, and a {tokenizer} has none")
            continue
        for conditioning in conditionings:
            given: dict[str, Scalar] = {**more, "decoder": family, "encoding": tokenizer, "conditioning": conditioning}
            given |= {"holdout": options.split, **shown}
            for chosen in _combinations(values, {"jepa": 0.0, **given}):
                for length in lengths:
                    of_run = fields | ({} if length is None else {"max_steps": length}) | {"precision": precision_of(family)}
                    templates.append(checked(generator, options.tier, 0, {**given, **chosen}, **of_run))
    if not templates:
        raise UserError(f"{named['decoder']} maskgit needs codes, and a vae has none: choose {named['encoding']} vq")
    _check_counts(templates)
    _check_used(own, templates, asks_for)
    notes += _without_effect(more, templates, asks_for)
    if any(value_of(spec, "jepa") for spec in templates):
        layers = values.get("jepa_layers") or [str(more.get("jepa_layers", "three"))]
        notes += _layers_twice([str(word) for word in layers], templates[0].depth, asks_for)
    notes += _spare_channels(templates, asks_for)
    notes += _never_seen(options.split, options.dataset, templates)
    if far := [word for word, level in _levels_of(options.split).items() if level > 2]:
        notes.append(f"{', '.join(far)} is of level 3: tables and claims are of levels 1 and 2, figures of all")
    settings = {
        **{"tier": options.tier, **asked, "split": options.split, **shown},
        **{"seeds": options.seeds, "first_seed": options.first_seed},
        **{_flag(each): list(given) for each, given in values.items()},
        **{"steps": None if options.steps is None else list(lengths), **fields, "options": more},
        **{"precision": options.precision, "task_version": task.version, "store": where.store},
    }
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    return Planned(templates, seeds, settings, values, notes)


def _spares(seeds: range) -> int:
    """How many further seeds each setting may take: as many as were asked for, but where claims count the last of these, none
    that they do not count."""
    last = seeds[-1]
    return len(seeds) if last >= CHOOSING else min(len(seeds), CHOOSING - 1 - last)


def train(
    name: str, asked: Mapping[str, Sequence[str]], varied: Mapping[str, str | None], options: GeneratorOptions,
    where: LaunchOptions, usual: Mapping[str, str] = MappingProxyType({}),
) -> int:  # fmt: skip
    """Train what is missing of all combinations, and table it; the exit code. See `planned`.

    Raises:
        UserError: what cannot be trained.
    """
    from analysis.generator_claims import outside

    plan = planned(asked, varied, options, where, usual=usual)
    specs = [dataclasses.replace(template, seed=seed) for seed in plan.seeds for template in plan.templates]
    always = OF_WHICH[: len(asked)]
    about = {each: _named(each) for each in (*always, *varied, "max_steps")}
    if "channels" not in plan.values:
        del about["channels"]  # it follows from the network
    spares = _spares(plan.seeds) if where.gates else 0
    notes = [*plan.notes, *outside(name, plan.templates, plan.settings["options"])]
    settings = {**plan.settings, "spares": spares, "out": where.folder(name), "versions": versions()}
    study = GeneratorStudy(name, load_task(GENERATOR), specs, settings, about, always, notes)
    return launch(study, where, invocation())


def _check_split(split: str) -> None:
    """
    Raises:
        UserError: it names no seen compositions.
    """
    try:
        seen_of(split)
    except ValueError as error:
        raise UserError(str(error).replace("holdout", "--split", 1)) from None


def _levels_of(split: str) -> dict[str, int]:
    """The level of each composition."""
    found = levels(bits_of(COMPOSITIONS), bits_of(seen_of(split))).tolist()
    return dict(zip(COMPOSITIONS, found, strict=True))


def _more(pairs: Sequence[str], with_option: Collection[str], named: Mapping[str, str]) -> dict[str, Scalar]:
    """The settings given by `--option`.

    Raises:
        UserError: one that has an option of its own, or as `read_pairs`.
    """
    for name in (pair.partition("=")[0] for pair in pairs):
        if name in with_option:
            raise UserError(f"--option {name} has an option of its own: use {named.get(name) or option_of(_flag(name))}")
    return read_pairs({name: each for name, each in KNOWN.items() if name not in with_option}, pairs)


def _conditionings(
    words: Sequence[str], dataset: str, asks_for: Callable[[str, str], str]
) -> tuple[list[str], list[str]]:
    """What models are told of pictures, and notes of what is left out: of real ones, what is the same as another that is told.

    Raises:
        UserError: it is the same as one that was not.
    """
    same = {} if dataset == RENDERED else {word: AS_CLASSES[word] for word in words if word in AS_CLASSES}
    why = f"as of pictures of {dataset} a model is told the means of classes in any case"
    for word, other in same.items():
        if other not in words:
            raise UserError(f"{asks_for('conditioning', word)} is the same as {other} here, {why}: choose {other}")
    notes = [f"left out: {word}, which is the same as {other}, {why}" for word, other in same.items()]
    return [word for word in words if word not in same], notes


def _never_seen(split: str, dataset: str, specs: Sequence[RunSpec]) -> list[str]:
    """A note if a class of a factor is in no seen composition."""
    pairs = alternatives(list(dict.fromkeys(f"a {value_of(spec, 'pair')}" for spec in specs)))
    told = []
    for place, classes, bits in zip(PLACES, CLASSES[dataset], zip(*seen_of(split), strict=True), strict=True):
        told += [f"{classes[int(bit)] or pairs} (the {place} bit is {bit})" for bit in sorted({"0", "1"} - {*bits})]
    so = "no model can learn what it never sees, so add such compositions to --split"
    return [f"no seen composition has {alternatives(told)}: {so}"] if told else []


def _layers_twice(words: Sequence[str], depth: int, asks_for: Callable[[str, str], str]) -> list[str]:
    """Notes of lists of layers that a word means, whose runs have keys of their own.

    Raises:
        UserError: a list means the same as another value that was given.
    """
    meant: dict[tuple[int, ...], list[str]] = {}
    for word in words:
        meant.setdefault(checked(layers_of, word, depth), []).append(word)
    notes = []
    for layers, same in meant.items():
        usual = next((word for word in TWELFTHS if layers_of(word, depth) == layers), same[0])
        told = asks_for("jepa_layers", " and ".join(same))
        if len(same) > 1:
            why = f"{told} are the same layers in a network of depth {depth}"
            if not TWELFTHS.keys() >= {*same}:
                raise UserError(f"{why}: keep {usual!r} alone")
            notes.append(f"{why}, and either is trained")
        elif usual != same[0] and same[0] not in TWELFTHS:
            means = f"{told} is what {usual!r} means in a network of depth {depth}"
            notes.append(f"{means}, and its runs are trained beside those of the word: type {usual!r} to share them")
        if "three" in same and len(layers) < 3:
            are = listed([f"layer {layer}" for layer in layers])
            notes.append(f"three means {are} in a network of depth {depth}: claim 10 counts runs with three layers only")
    return notes


def _spare_channels(templates: Sequence[RunSpec], asks_for: Callable[[str, str], str]) -> list[str]:
    """Notes of linear tokenizers whose tokens have more numbers than a patch."""
    notes: dict[str, None] = {}
    for spec in templates:
        stride, channels = (int(value_of(spec, name)) for name in ("stride", "channels"))
        if value_of(spec, "network") == "linear" and channels > (most := 3 * stride**2):
            told = f"{asks_for('channels', str(channels))} is more than a linear tokenizer can use"
            notes[f"{told}: a patch of {stride} x {stride} pixels has {most} numbers"] = None
    return [*notes]


def _check_used(
    given: Mapping[str, Sequence[Scalar]], templates: Sequence[RunSpec], asks_for: Callable[[str, str], str]
) -> None:
    """
    Raises:
        UserError: an option of its own has other values than the usual one, and is for none of the runs.
    """
    others = [meaningless({name: value_of(spec, name) for name in OF_WHICH}) for spec in templates]
    for name in (name for name in given if all(name in of for of in others)):
        if {*given[name]} <= {value_of(templates[0], name)}:
            continue
        told = option_of(_flag(name))
        for which, belonging in BELONGING.items():
            words = [word for word, names in belonging.items() if name in names]
            found = [*dict.fromkeys(str(value_of(spec, which)) for spec in templates)]
            if words and not {*words} & {*found}:
                told_of = f"{told} is for {_named(which)} {alternatives(words)}, not {alternatives(found)}"
                raise UserError(f"{told_of}: omit it, or choose {asks_for(which, words[0])}")
        if name in OF_JEPA:
            raise UserError(f"{told} is for runs with the loss, and jepa is 0: omit it, or give --jepa a weight, as 0.6")


def _without_effect(more: Collection[str], templates: Sequence[RunSpec], asks_for: Callable[[str, str], str]) -> list[str]:
    """For which runs settings that were given by `--option` do nothing.

    Raises:
        UserError: one does nothing for all of them.
    """
    notes = []
    for name, (which, belonging) in itertools.product(more, BELONGING.items()):
        words = [word for word, names in belonging.items() if name in names]
        found = dict.fromkeys(str(value_of(spec, which)) for spec in templates)
        others = [word for word in found if word not in words]
        if not (words and others):
            continue
        told = f"--option {name} is for {_named(which)} {alternatives(words)}"
        if len(others) == len(found):
            raise UserError(f"{told}, not {alternatives(others)}: omit it, or choose {asks_for(which, words[0])}")
        notes.append(f"{told}: it does nothing for {alternatives(others)}")
    return notes


def _values(setting: Setting, text: str) -> tuple[Scalar, ...]:
    """The values of an option, each once.

    Raises:
        UserError: one that the setting may not have.
    """
    setting = dataclasses.replace(setting, name=_flag(setting.name))
    return tuple(dict.fromkeys(checked(setting.check, checked(setting.read, word.strip())) for word in text.split(",")))


def _combinations(varied: Mapping[str, Sequence[Scalar]], given: Mapping[str, Scalar]) -> list[dict[str, Scalar]]:
    """All combinations, without the settings that mean nothing in them, each once. `given` has all OF_WHICH."""
    found = {}
    for values in itertools.product(*varied.values()):
        chosen = dict(zip(varied, values, strict=True))
        others = meaningless({**given, **chosen})
        meant = {name: value for name, value in chosen.items() if name not in others}
        found[tuple(meant.items())] = meant
    return [*found.values()]


def _check_counts(templates: Sequence[RunSpec]) -> None:
    """
    Raises:
        UserError: more or fewer pictures than a run, or one that it needs, may learn from.
    """
    for spec in templates:
        for run in (spec, *GeneratorTask().needs(spec).values()):
            counts = checked(load_task(run.task).counts, run)
            if not counts.low <= run.data_count <= counts.high:
                told = f"from {counts.low} to {counts.high} pictures of {run.N} x {run.N} pixels"
                raise UserError(f"a run would learn from {run.data_count} pictures: give {told}")
