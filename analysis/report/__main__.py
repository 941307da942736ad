"""The report as a command.

python -m analysis.report --store results --out report
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.command import options as opt
from orchestrator.command.cli import App, Exit, check_folder, ends_on_interrupt, main_of
from orchestrator.errors import UserError
from orchestrator.store import StoreError

app = App()


@app.command()
def report(
    store: opt.Store = "results",
    out: Annotated[Path, typer.Option(help="Folder for the page and its figures.")] = Path("report"),
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="First measure the trained networks that have not been measured.")
    ] = True,
    address: opt.Address = "local",
    workers: opt.Workers = None,
    task: opt.TaskPaths = None,
    verbose: opt.Verbose = False,
) -> int:
    """Which claims of the papers do the runs in a store reproduce?

    Measures the trained networks, judges every claim by the rule printed next to it, and writes one HTML page. The figures are
    also written as files, and the numbers to `claims.json`. Trains nothing: if a claim has too few runs, the page shows the
    command that trains them. Runs of your own tasks are only counted; no code that only the store names is loaded.

    **Examples**

    `python -m analysis.report`   the store in `results`, the page in `report/index.html`

    `python -m analysis.report --store results --out report --no-measure`   faster, only from what is already measured

    **Exit codes**: 0 written, whatever the verdicts; 1 a measure failed, or a figure, named on the page, or the bucket
    does not answer; 2 a mistake in the command; 130 after Ctrl-C.
    """
    if "://" not in store and not (Path(store) / "runs").is_dir():
        raise UserError(f"--store {store!r} has no runs: give the folder that a study wrote to")
    check_folder("--out", out)
    from analysis.measure import measure_missing
    from analysis.report.page import Report
    from analysis.report.papers import PAPERS
    from analysis.results import Results

    try:
        with ends_on_interrupt():
            unmeasured = measure_missing(store, address, workers, verbose, tasks=task or ()).failed if measure else []
        results = Results.of(store, task or ())
    except StoreError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return Exit.NOT_ANSWERED
    for notice in results.notices:
        print(f"warning: {notice}", file=sys.stderr)
    page = Report.of(PAPERS, results)
    for claim, finding, _ in page.sections:
        seeds = f"{finding.seeds} seed{'' if finding.seeds == 1 else 's'}"
        print(f"{finding.verdict:<16}{claim.id:<30}{seeds:<10}{f'figures {claim.figures}' if claim.figures else ''}".rstrip())
    for path in page.write(out):
        print(path)
    for line in page.errors:
        print(f"warning: a figure could not be drawn: {line}", file=sys.stderr)
    return Exit.NOT_ANSWERED if unmeasured or page.errors else Exit.ANSWERED


main = main_of(app, "python -m analysis.report")

if __name__ == "__main__":
    main()
