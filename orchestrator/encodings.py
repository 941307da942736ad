"""The encodings study: does any factorized code of (x, y) let a decoder draw bumps in a box it has never seen?

    python -m orchestrator.encodings
"""

from __future__ import annotations

from typing import Annotated

from orchestrator.command import options as opt
from orchestrator.command.cli import App, grouped, main_of, words
from orchestrator.decoders import BOXES, DecoderOptions, depths, train
from orchestrator.launch import LaunchOptions
from trainables.decoders import DECODERS
from trainables.encodings import ENCODINGS
from trainables.spec import LIMITS

NAME = "encodings"

app = App({"decoder": "--decoders", "encoding": "--encodings", "holdout": "--holdouts"})


@app.command()
@grouped
def encodings(
    encodings: Annotated[str, opt.asked(help="Codes of a position, comma-separated.")] = "bump,one-hot,positional,ramp",
    decoders: Annotated[str, opt.asked(help="Comma-separated: `cnn`, `mlp`.")] = "cnn,mlp",
    holdouts: Annotated[str, opt.asked(help="Held-out boxes, comma-separated: `center`, `corner`.")] = "center,corner",
    depth: Annotated[int, opt.asked(min=1, max=LIMITS["depth"][1], help="Hidden layers.")] = 4,
    by_depth: Annotated[
        str, opt.asked(help="Also train CNNs of these depths (bump code, centre held out): 2..10:2, 2,6,10, or `none`.")
    ] = "2..10:2",
    *,
    decoder: DecoderOptions,
    where: LaunchOptions,
) -> int:
    """Does any factorized code of a position let a decoder draw bumps in a box of positions it has never seen?

    Trains the CNN and the MLP on every code, with a box in the centre or the corner held out, and CNNs of other depths, each
    on all bumps outside the box, and keeps their weights. Finished runs are kept in the store: the same command continues
    after any interruption. `python -m analysis.report` then measures and draws what they do in the box: error landscapes,
    images, superposition, kernels (paper figures 1, 8, 10).

    **Examples**

    `python -m orchestrator.encodings --N 16 --max-steps 800 --decoders mlp --by-depth none`  # a small one, a minute

    `python -m orchestrator.encodings`  # at the paper's size, hours on a laptop

    `python -m orchestrator.encodings --dry-run`  # what would be trained, and how long it may take

    **Exit codes**: 0 all trained; 1 not all (a limit, failed runs, a full disk, a bucket that does not answer); 2 a mistake
    in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    codes, boxes = words("--encodings", encodings, ENCODINGS), words("--holdouts", holdouts, BOXES)
    networks = words("--decoders", decoders, DECODERS)
    further = () if by_depth == "none" else depths("--by-depth", by_depth, ", or none")
    decoder.check_runs(len(codes) * len(networks) * len(boxes) + len(further), "--by-depth")
    specs = []
    for code in codes:
        for word in networks:
            for box in boxes:
                specs += decoder.specs(
                    dataset="bumps", decoder=word, depth=depth, encoding=code, holdout=box, data_count=None, where=where
                )
    for layers in further:
        specs += decoder.specs(
            dataset="bumps", decoder="cnn", depth=layers, encoding="bump", holdout="center", data_count=None, where=where
        )
    asked = {"encodings": encodings, "decoders": decoders, "holdouts": holdouts, "depth": depth, "by_depth": by_depth}
    return train(NAME, specs, asked, decoder, where)


main = main_of(app, "python -m orchestrator.encodings")

if __name__ == "__main__":
    main()
