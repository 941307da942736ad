"""The conditioning study: does a generator of pictures compose only if it is told the factors, all of them and as they are?

    python -m orchestrator.conditioning

Every family is told the factors of the pictures it learns from in several ways, and is asked for compositions in one.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from orchestrator.command import options as opt
from orchestrator.command.cli import App, grouped, main_of, words
from orchestrator.generators import OPTIONS, GeneratorOptions, Tokenizers, train, varied_by
from orchestrator.launch import LaunchOptions
from trainables.generative.settings import CONDITIONINGS, HEADS, VARIED
from trainables.generative.tokenizers import KINDS

NAME = "conditioning"

app = App(OPTIONS)


def conditioning(
    conditionings: Annotated[
        str,
        opt.asked(
            help="What a generator is told of a picture it learns from, comma-separated: size and colour as they are (`full`), "
            "the means of their classes (`quantised`), not always all factors (`dropout`), or both of the latter (`both`)."
        ),
    ] = ",".join(CONDITIONINGS),
    families: Annotated[str, opt.asked(help="Objectives, comma-separated: `dit`, `maskgit`, `givt`, `mar`.")] = "dit",
    tokenizers: Tokenizers = "vq",
    subject: Any = None,
    *,
    generators: GeneratorOptions,
    where: LaunchOptions,
) -> int:
    """Does a generator of pictures compose only if it is told the factors, all of them and as they are?

    Pictures of a figure have three factors of two classes each: shape, size and colour. Generators learn four of the eight
    compositions and are asked for all of them along the way, by the means of their classes and with all factors told, however
    they learned. A probe and a template oracle read what they draw. Most options under "What is trained", and `--steps`, take
    several values with commas between them: all combinations are trained. Finished runs are kept in the store: the same
    command continues after any interruption, and what `python -m orchestrator.objectives` has trained is not trained again.

    **Examples**

    `python -m orchestrator.conditioning --tier smoke`  # shows that everything runs, two minutes

    `python -m orchestrator.conditioning`  # the question: twelve generators, an hour on two cores

    `python -m orchestrator.conditioning --conditionings full,dropout --dropout 0.05,0.1,0.3`  # how often may it be left out?

    `python -m orchestrator.conditioning --conditionings dropout --dropout-mode null_sample,zero_batch`  # and how?

    **Exit codes**: 0 all trained; 1 not all (a probe or tokenizer misses its gate, a limit, failed runs, a full disk, a bucket
    that does not answer); 2 a mistake in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    asked = {
        "families": words("--families", families, HEADS),
        "tokenizers": words("--tokenizers", tokenizers, KINDS),
        "conditionings": words("--conditionings", conditionings, CONDITIONINGS),
    }
    return train(NAME, asked, dataclasses.asdict(subject), generators, where)


app.command()(grouped(conditioning, subject=varied_by("dropout", "dropout_mode", *VARIED)))
main = main_of(app, "python -m orchestrator.conditioning")

if __name__ == "__main__":
    main()
