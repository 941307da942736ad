"""The objectives study: which training objective, and which tokenizer, let a generator of pictures compose?

    python -m orchestrator.objectives

Every family is trained on every tokenizer that it can use.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from orchestrator.command import options as opt
from orchestrator.command.cli import App, grouped, main_of, words
from orchestrator.generators import OPTIONS, GeneratorOptions, Tokenizers, train, varied_by
from orchestrator.launch import LaunchOptions
from trainables.generative.settings import HEADS, VARIED
from trainables.generative.tokenizers import KINDS

NAME = "objectives"

app = App(OPTIONS)


def objectives(
    families: Annotated[
        str,
        opt.asked(
            help="Objectives, comma-separated: `dit` (diffusion), `maskgit` (masked codes), `givt` and `mar` (masked latents, "
            "as mixtures of Gaussians or diffused one by one)."
        ),
    ] = "dit,maskgit",
    tokenizers: Tokenizers = "vae,vq",
    subject: Any = None,
    *,
    generators: GeneratorOptions,
    where: LaunchOptions,
) -> int:
    """Which training objective, and which tokenizer, let a generator of pictures compose what it has only seen apart?

    Pictures of a figure have three factors of two classes each: shape, size and colour. Generators learn four of the eight
    compositions and are asked for all of them along the way. A probe and a template oracle read what they draw. Most options
    under "What is trained", and `--steps`, take several values with commas between them: all combinations are trained.
    Finished runs are kept in the store: the same command continues after any interruption.

    **Examples**

    `python -m orchestrator.objectives --tier smoke`  # shows that everything runs, two minutes

    `python -m orchestrator.objectives`  # the core question: nine generators with their tokenizers, about an hour on two cores

    `python -m orchestrator.objectives --families dit,maskgit,givt,mar --tokenizers vq --rounds 36`  # is it masking, or
    guessing codes?

    `python -m orchestrator.objectives --families maskgit --smoothing 0,0.1 --steps 4000,20000`  # when does it forget?

    `python -m orchestrator.objectives --network linear,conv --fit all --first-seed 100`  # try settings on other seeds

    `python -m orchestrator.objectives --dataset celeba --data celeba --tier smoke`  # faces, from files in the folder celeba

    **Exit codes**: 0 all trained; 1 not all (a probe or tokenizer misses its gate, a limit, failed runs, a full disk, a bucket
    that does not answer); 2 a mistake in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    asked = {"families": words("--families", families, HEADS), "tokenizers": words("--tokenizers", tokenizers, KINDS)}
    return train(NAME, asked, dataclasses.asdict(subject), generators, where)


app.command()(grouped(objectives, subject=varied_by(*VARIED)))
main = main_of(app, "python -m orchestrator.objectives")

if __name__ == "__main__":
    main()
