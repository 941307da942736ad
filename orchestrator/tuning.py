"""The tuning study: from plus to bump, and from striped to localised units, as bumps are added to stripes.

    python -m orchestrator.tuning
"""

from __future__ import annotations

from typing import Annotated

from orchestrator.command import options as opt
from orchestrator.command.cli import App, grouped, main_of, one_of
from orchestrator.command.ranges import parse_grid, warn_of_short
from orchestrator.decoders import BOXES, DecoderOptions, train
from orchestrator.errors import UserError
from orchestrator.launch import LaunchOptions
from trainables.decoders import DECODERS
from trainables.encodings import ENCODINGS
from trainables.spec import LIMITS

NAME = "tuning"
MOST_BUMPS = 100_000

app = App()


@app.command()
@grouped
def tuning(
    bumps: Annotated[str, opt.asked(help="Numbers of bumps added to the stripes, comma-separated.")] = "0,10,50,100",
    decoder_: Annotated[str, opt.asked("--decoder", help="`cnn` or `mlp`.")] = "cnn",
    depth: Annotated[int, opt.asked(min=1, max=LIMITS["depth"][1], help="Hidden layers.")] = 4,
    encoding: Annotated[str, opt.asked(help="`bump`, `one-hot`, `positional` or `ramp`.")] = "bump",
    holdout: Annotated[str, opt.asked(help="Held-out box: `center` or `corner`.")] = "corner",
    *,
    decoder: DecoderOptions,
    where: LaunchOptions,
) -> int:
    """How do images and units change as bumps are added to stripes?

    Trains decoders on all 2N stripes and some bumps from outside a box, and keeps their weights. Finished runs are kept in the
    store: the same command continues after any interruption. `python -m analysis.report` then draws what they make of
    positions in the box, from plus to bump, and measures how each layer's units are tuned to x and y (paper figures 4b, 4e,
    4f, 7, 15).

    **Examples**

    `python -m orchestrator.tuning --N 16 --max-steps 800 --decoder mlp`  # a small one, a minute

    `python -m orchestrator.tuning`  # at the paper's size, an hour on a laptop

    `python -m orchestrator.tuning --dry-run`  # what would be trained, and how long it may take

    **Exit codes**: 0 all trained; 1 not all (a limit, failed runs, a full disk, a bucket that does not answer); 2 a mistake
    in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    try:
        counts = parse_grid(bumps, 0, MOST_BUMPS, 10, "numbers of bumps", ("0..50", "0..100:50", "0,10,50,100"))
    except ValueError as error:
        raise UserError(f"--bumps {error}") from None
    warn_of_short("--bumps ", bumps, 10)
    decoder.check_runs(len(counts), "--bumps")
    word, code = one_of("--decoder", decoder_, DECODERS), one_of("--encoding", encoding, ENCODINGS)
    box = one_of("--holdout", holdout, BOXES)
    specs = []
    for count in counts:
        specs += decoder.specs(
            dataset="stripes+bumps",
            decoder=word,
            depth=depth,
            encoding=code,
            holdout=box,
            data_count=count,
            where=where,
        )
    given = {"bumps": bumps, "decoder": decoder_, "depth": depth, "encoding": encoding, "holdout": holdout}
    return train(NAME, specs, given, decoder, where)


main = main_of(app, "python -m orchestrator.tuning")

if __name__ == "__main__":
    main()
