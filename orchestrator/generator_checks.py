"""What a plan of generators is checked for, and what its user is told of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

from orchestrator.command.cli import checked
from orchestrator.command.subject import option_of
from orchestrator.errors import UserError
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.jepa import TWELFTHS, layers_of
from trainables.generative.settings import AS_CLASSES, BELONGING, OF_JEPA, OF_WHICH, RENDERED, meaningless
from trainables.generative.shapes import SPLITS, seen_of
from trainables.generative.tokenizers import STAGES
from trainables.settings import alternatives, listed, value_of
from trainables.spec import RunSpec, Scalar
from trainables.task import load_task

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


def flag(name: str) -> str:
    """What users call a setting, in an option."""
    return SHORT.get(name, name)


def named_as(name: str) -> str:
    """The same in a table."""
    return flag(name).replace("_", " ")


def named_split(split: str) -> tuple[str, list[str]]:
    """A split by its name, if it lists what one means; and a note if it does so in another order.

    Raises:
        UserError: it names no seen compositions.
    """
    try:
        seen = seen_of(split)
    except ValueError as error:
        raise UserError(str(error).replace("holdout", "--split", 1)) from None
    name = next((name for name, words in SPLITS.items() if {*words} == {*seen}), split)
    if seen_of(name) == seen:
        return name, []
    why = f"--split {split} is {name} in another order, and its runs are trained beside those of the name"
    return split, [f"{why}: type {name} to share them"]


def distinct_conditionings(
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


def never_seen(split: str, dataset: str, specs: Sequence[RunSpec]) -> list[str]:
    """A note if a class of a factor is in no seen composition."""
    pairs = alternatives(list(dict.fromkeys(f"a {value_of(spec, 'pair')}" for spec in specs)))
    told = []
    for place, classes, bits in zip(PLACES, CLASSES[dataset], zip(*seen_of(split), strict=True), strict=True):
        told += [f"{classes[int(bit)] or pairs} (the {place} bit is {bit})" for bit in sorted({"0", "1"} - {*bits})]
    so = "no model can learn what it never sees, so add such compositions to --split"
    return [f"no seen composition has {alternatives(told)}: {so}"] if told else []


def layers_twice(words: Sequence[str], depth: int, asks_for: Callable[[str, str], str]) -> list[str]:
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
            notes.append(f"three means {are} in a network of depth {depth}, which has fewer than three")
    return notes


def spare_channels(templates: Sequence[RunSpec], asks_for: Callable[[str, str], str]) -> list[str]:
    """Notes of linear tokenizers whose tokens have more numbers than a patch."""
    notes: dict[str, None] = {}
    for spec in templates:
        stride, channels = (int(value_of(spec, name)) for name in ("stride", "channels"))
        if value_of(spec, "network") == "linear" and channels > (most := 3 * stride**2):
            told = f"{asks_for('channels', str(channels))} is more than a linear tokenizer can use"
            notes[f"{told}: a patch of {stride} x {stride} pixels has {most} numbers"] = None
    return [*notes]


def check_used(
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
        told = option_of(flag(name))
        for which, belonging in BELONGING.items():
            words = [word for word, names in belonging.items() if name in names]
            found = [*dict.fromkeys(str(value_of(spec, which)) for spec in templates)]
            if words and not {*words} & {*found}:
                told_of = f"{told} is for {named_as(which)} {alternatives(words)}, not {alternatives(found)}"
                raise UserError(f"{told_of}: omit it, or choose {asks_for(which, words[0])}")
        if name in OF_JEPA:
            raise UserError(f"{told} is for runs with the loss, and jepa is 0: omit it, or give --jepa a weight, as 0.6")


def without_effect(more: Collection[str], templates: Sequence[RunSpec], asks_for: Callable[[str, str], str]) -> list[str]:
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
        told = f"--option {name} is for {named_as(which)} {alternatives(words)}"
        if len(others) == len(found):
            raise UserError(f"{told}, not {alternatives(others)}: omit it, or choose {asks_for(which, words[0])}")
        notes.append(f"{told}: it does nothing for {alternatives(others)}")
    return notes


def check_strides(templates: Sequence[RunSpec], tier: str, asks_for: Callable[[str, str], str]) -> None:
    """
    Raises:
        UserError: tokens would not fill the pictures, whose size the tier decides.
    """
    for spec in templates:
        if spec.N % int(stride := value_of(spec, "stride")):
            told = f"{asks_for('stride', str(stride))} does not divide the {spec.N} pixels of --tier {tier}"
            raise UserError(f"{told}: choose {alternatives([each for each in STAGES if spec.N % each == 0])}")


def check_counts(templates: Sequence[RunSpec]) -> None:
    """
    Raises:
        UserError: more or fewer pictures than a run, or one that it needs, may learn from.
    """
    for spec in templates:
        for run in (spec, *GeneratorTask().needs(spec).values()):
            counts = checked(load_task(run.task).counts, run)
            if not counts.low <= run.data_count <= counts.high:
                told = f"of {run.N} x {run.N} pixels it may learn from {counts.low} to {counts.high}"
                raise UserError(f"a run would learn from {run.data_count} pictures: {told}")
