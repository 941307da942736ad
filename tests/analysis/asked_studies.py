"""Studies that commands ask for, and what the page tells of them: for tests of the report."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from analysis.report.studies import studies_of
from analysis.report.told import Around, Told
from analysis.results import Results
from orchestrator import __main__ as everything
from orchestrator import decoders, regularization, scaling, tune
from orchestrator.command.cli import run
from orchestrator.study import Study
from trainables.bumps import BumpTask
from trainables.spec import RunSpec
from trainables.task import DRAWN

Ask = Callable[[str], Study]
TOY = "--task tests.toy:Toy"
QUESTIONS = {
    "thresholds": f"scaling {TOY} --N 8,16,24 --resolution 0.05",
    "until a width": f"scaling {TOY} --N 8,16,24,32 --resolution 0.1 --seeds 3 --until-width 0.15",
    "least width": "scaling --decoder mlp --least width --between 4..64 --data-count 40 --N 8,12 --seeds 2 --datasets bumps",
    "one seed a trial": f"tune {TOY} --search lr=1e-4..1e-1:log,batch_size=16|32 --N 8 --trials 9 --confirm 2 --seeds 3",
    "three seeds a trial": f"tune {TOY} --search weight_decay=0|1e-4..1:log --trials 8 --seeds-per-trial 3 --N 8",
    "a program": "tune --program 'echo {data_count} {seed} {kind} {noise}' --counts 1..9 --vary kind=a --vary noise=0.5 "
    "--objective accuracy --search kind=a|b,noise=0.1|0.5 --sampler grid --trials 4 --confirm 2 --seeds 2",
    "a script": "tune --program 'python3 -u /elsewhere/tr.py {l} {data_count} {seed}' --counts 1..9 --vary l=0.1 "
    "--objective accuracy --search l=0.1|0.5 --sampler grid --trials 2 --confirm 1 --seeds 2",
    "derived settings": "tune --search width=16|64,decoder=cnn|mlp --N 8 --trials 4 --confirm 2 --seeds 2",
    "never so narrow": f"scaling {TOY} --N 8,16,24 --resolution 0.3 --seeds 3 --until-width 0.001",
    "two objectives": "tune --decoder mlp --search width=16|64,depth=1|2 --objective mse,id_mse --N 8 --trials 8 --confirm 2 "
    "--seeds 2",
    "along encodings": "scaling --decoder mlp --along encoding=bump,positional --N 12 --seeds 2 --datasets bumps",
    "penalties": "regularization --N 8 --epochs 2 --trials 7 --seeds 2 --confirm 2 --confirm-seeds 2",
    "the whole decoder": "regularization --N 8 --epochs 2 --search decoder --trials 6 --seeds 2 --confirm 1 --confirm-seeds 2",
    "a grid": "encodings --N 8 --seeds 2",
}


def asking(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Gives the study that a command would launch."""
    found: list[Study] = []
    for module in (scaling, regularization, tune, decoders):
        monkeypatch.setattr(module, "launch", lambda study, *_: found.append(study) or 0)

    def study_of(command: str) -> Study:
        assert run(everything.app, shlex.split(command)) == 0
        return found.pop()

    return study_of


def no_weights(key: str) -> bytes:
    raise OSError(key)


AROUND = Around(dict, no_weights)


def told_of(store: Path, tasks: tuple[str, ...] = ()) -> list[Told]:
    told, notices = studies_of(Results.of(store, tasks), AROUND)
    assert notices == []
    return told


class Drawing(BumpTask):
    """Bumps that are drawn."""

    def draw(self, spec: RunSpec, outputs: torch.Tensor) -> Figure:
        assert 1 <= len(outputs) <= DRAWN
        assert outputs.shape[1:] == (1, spec.N, spec.N)
        figure = Figure(figsize=(2, 2))
        figure.subplots().imshow(outputs[0, 0].numpy())
        return figure


MINE = "tests.analysis.asked_studies:Drawing"
