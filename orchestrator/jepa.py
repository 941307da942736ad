"""The JEPA study: does an auxiliary loss on the inner layers of a network let a generator of codes compose?

    python -m orchestrator.jepa

Beside its own objective a generator learns to guess, from a part of a picture, what an average of itself makes of the whole.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from orchestrator.command import options as opt
from orchestrator.command.cli import App, grouped, main_of, words
from orchestrator.errors import UserError
from orchestrator.generators import OPTIONS, GeneratorOptions, Tokenizers, train, varied_by
from orchestrator.launch import LaunchOptions
from trainables.generative.settings import HEADS, VARIED
from trainables.generative.tokenizers import KINDS
from trainables.settings import alternatives

NAME = "jepa"
FAMILIES = ("maskgit", "dit")
"""Those that the loss can be added to."""
USUAL = {"jepa": "0,0.6", "jepa_layers": "one,three"}
"""What is varied if the user says nothing."""

app = App(OPTIONS)


def jepa(
    families: Annotated[str, opt.asked(help="Objectives, comma-separated: `maskgit`, `dit`.")] = ",".join(FAMILIES),
    tokenizers: Tokenizers = "vq",
    subject: Any = None,
    *,
    generators: GeneratorOptions,
    where: LaunchOptions,
) -> int:
    """Does an auxiliary loss on the inner layers of a network (JEPA) let a generator of codes compose?

    Pictures of a figure have three factors of two classes each: shape, size and colour. Generators learn four of the eight
    compositions and are asked for all of them along the way. With the auxiliary loss (JEPA) they also guess, at some of their
    layers and from the part of a picture that they see, what an average of themselves makes of the whole picture. Most
    options under "What is trained", and `--steps`, take several values with commas between them: all combinations are
    trained. Finished runs are kept in the store: the same command continues after any interruption, and what
    `python -m orchestrator.objectives` has trained is not trained again.

    **Examples**

    `python -m orchestrator.jepa --tier smoke`  # shows that everything runs, two minutes

    `python -m orchestrator.jepa`  # the question: 18 generators, hours on two cores

    `python -m orchestrator.jepa --families maskgit --jepa 0,0.1,0.6,2`  # how much of it

    `python -m orchestrator.jepa --families maskgit --jepa 0.6 --jepa-layers 1,2,one,4,three`  # at which layers

    `python -m orchestrator.jepa --families maskgit --jepa 0.6 --jepa-teacher ema,same,gradient`  # is the average needed?

    **Exit codes**: 0 all trained; 1 not all (a probe or tokenizer misses its gate, a limit, failed runs, a full disk, a bucket
    that does not answer); 2 a mistake in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    for family in (word.strip() for word in families.split(",")):
        if family in HEADS and family not in FAMILIES:
            raise UserError(f"--families {family!r} cannot be given the JEPA loss: choose {alternatives(FAMILIES)}")
    asked = {"families": words("--families", families, FAMILIES), "tokenizers": words("--tokenizers", tokenizers, KINDS)}
    return train(NAME, asked, dataclasses.asdict(subject), generators, where, USUAL)


app.command()(grouped(jepa, subject=varied_by("jepa", "jepa_layers", "jepa_teacher", *VARIED, usual=USUAL)))
main = main_of(app, "python -m orchestrator.jepa")

if __name__ == "__main__":
    main()
