"""The geometry study: where, between code and image, does a decoder lose the factorization it was given?

    python -m orchestrator.geometry
"""

from __future__ import annotations

from typing import Annotated

from orchestrator.command import options as opt
from orchestrator.command.cli import App, grouped, main_of, one_of, words
from orchestrator.decoders import BOXES, DecoderOptions, depths, train
from orchestrator.launch import LaunchOptions
from trainables.decoders import DECODERS
from trainables.encodings import ENCODINGS

NAME = "geometry"

app = App({"decoder": "--decoders", "encoding": "--encodings", "depth": "--depths"})


@app.command()
@grouped
def geometry(
    depths_: Annotated[str, opt.asked("--depths", help="Hidden layers: 2..6, 2..10:2, or 2,4,6.")] = "2..6",
    decoders: Annotated[str, opt.asked(help="Comma-separated: `cnn`, `mlp`.")] = "cnn,mlp",
    encodings: Annotated[str, opt.asked(help="Codes of a position, comma-separated.")] = "bump,ramp",
    holdout: Annotated[str, opt.asked(help="Held-out box: `center` or `corner`.")] = "center",
    bumps: Annotated[int, opt.asked(min=0, help="Number of bumps in addition to the stripes, in the runs on stripes.")] = 50,
    stripes: Annotated[bool, opt.asked(help="Also train on stripes and bumps (bump code).")] = True,
    *,
    decoder: DecoderOptions,
    where: LaunchOptions,
) -> int:
    """Where, between code and image, does a decoder lose the factorization that it was given?

    Trains decoders of several depths on all bumps outside a box and, for comparison, on stripes and some bumps, and keeps
    their weights. Finished runs are kept in the store: the same command continues after any interruption, and runs shared with
    the encodings study are trained once. `python -m analysis.report` then measures every layer at every position: volume
    metric, factorization metric, linear probes (paper figures 2, 4d, 11 to 14).

    **Examples**

    `python -m orchestrator.geometry --N 16 --max-steps 800 --depths 2,4 --decoders mlp`  # a small one, a minute

    `python -m orchestrator.geometry`  # at the paper's size, hours on a laptop

    `python -m orchestrator.geometry --dry-run`  # what would be trained, and how long it may take

    **Exit codes**: 0 all trained; 1 not all (a limit, failed runs, a full disk, a bucket that does not answer); 2 a mistake
    in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    box, layers = one_of("--holdout", holdout, BOXES), depths("--depths", depths_)
    networks, codes = words("--decoders", decoders, DECODERS), words("--encodings", encodings, ENCODINGS)
    decoder.check_runs(len(networks) * len(layers) * (len(codes) + stripes), "--depths")
    specs = []
    for word in networks:
        for depth in layers:
            for code in codes:
                specs += decoder.specs(
                    dataset="bumps", decoder=word, depth=depth, encoding=code, holdout=box, data_count=None, where=where
                )
            if stripes:
                specs += decoder.specs(
                    dataset="stripes+bumps",
                    decoder=word,
                    depth=depth,
                    encoding="bump",
                    holdout=box,
                    data_count=bumps,
                    where=where,
                )
    asked = {
        **{"depths": depths_, "decoders": decoders, "encodings": encodings},
        **{"holdout": holdout, "bumps": bumps, "stripes": stripes},
    }
    return train(NAME, specs, asked, decoder, where)


main = main_of(app, "python -m orchestrator.geometry")

if __name__ == "__main__":
    main()
