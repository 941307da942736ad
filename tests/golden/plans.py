"""What each study asks for first, in `keys.json`: of every run its spec, its key, and that of its family.

    python -m tests.golden.plans

adds the plans of COMMANDS that are not in the file yet, for a study that is new. What is there stays: a key that changes makes
every row with it useless.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from unittest import mock

import typer

from orchestrator import __main__ as everything
from orchestrator import launch
from orchestrator.command.cli import run
from orchestrator.engine.cluster import Cluster
from orchestrator.searches import Rows
from trainables.spec import RunSpec, family_key, run_key
from trainables.task import load_task

FILE = Path(__file__).with_name("keys.json")
STUDIES: dict[str, typer.Typer] = {name: study.app for name, study in everything.STUDIES.items()}
ROOM = 12
"""Runs of each plan that are kept."""
GENERATORS = (
    "objectives --precision float32",
    "objectives --steps 4000 --option ema=0.999 --option probe_torn=0 --option probe_steps=2500 --precision float32",
    "objectives --tier gpu --families maskgit --tokenizers vq --codes 32,64 --smoothing 0,0.1 --network conv --fit all "
    "--seeds 1 --first-seed 100 --split fail1 --shape square --precision bfloat16",
    "objectives --tier gpu --families maskgit --tokenizers vq --codes 32,64 --smoothing 0,0.1 --network conv --fit all "
    "--seeds 1 --first-seed 100 --split fail1 --shape square --option probe_torn=0 --option probe_steps=2500 --precision "
    "bfloat16",
    "objectives --tier smoke --families dit --steps 40,80 --predicts x0,eps --noise linear --pool 32 --batch-size 8 --lr 0.01 "
    "--seeds 1 --option width=16 --option heads=2 --radius-small 0.4 --colour-jitter 0.1 --precision float32",
    "objectives --tier smoke --families givt,mar --seeds 1 --rounds 2,4 --option mixture=4 --precision float32",
    "conditioning --precision float32",
    "conditioning --steps 4000 --option ema=0.999 --option probe_torn=0 --option probe_steps=2500 --precision float32",
    "conditioning --tier smoke --conditionings dropout,both --dropout 0.2,0.5 --dropout-mode zero_batch --families maskgit "
    "--seeds 1 --precision float32",
    "jepa --precision float32",
    "jepa --steps 4000 --option ema=0.999 --option probe_torn=0 --option probe_steps=2500 --precision float32",
    "jepa --tier smoke --families dit --tokenizers vae --jepa 1 --jepa-layers 2 --jepa-teacher same,gradient --seeds 1 "
    "--precision float32",
    "signal --share 0.5 --option probe_lessons=coded --precision float32",
    "signal --share 0.5 --option probe_lessons=coded --steps 4000 --option ema=0.999 --option probe_torn=0 --option "
    "probe_steps=2500 --precision float32",
    "signal --tier smoke --factors colour --between 0.2..0.9 --share 0.6 --family maskgit --seeds 1 "
    "--option probe_lessons=coded --precision float32",
)
"""Of the tiers, and of the toy tier as it was before."""
COMMANDS = (
    "scaling --N 16..64 --precision float32",
    "scaling --N 8,12 --datasets bumps --decoder mlp --seeds 5 --stop early --precision bfloat16 --resolution 0.1",
    "scaling --N 9 --datasets stripes+bumps --depth 4 --width 32 --encoding one-hot --holdout corner --stop budget "
    "--precision float32",
    "scaling --N 12 --decoder mlp --encoding ramp --absent minus-one --centres real --sigma 1.5 --tolerance 0 --target 1 "
    "--batch-size 64 --lr 3e-4 --weight-decay 0 --max-steps 500 --precision float32",
    "scaling --N 16 --datasets bumps --encoding positional --holdout center --option polarity=dark --precision tf32 "
    "--gpus-per-run 1",
    "scaling --least width --between 4..512 --N 12,16 --data-count 100 --decoder mlp --datasets bumps --precision float32",
    "scaling --least sigma --between 0.5..2 --along depth=1,2 --N 12 --data-count 30 --precision float32",
    "scaling --along encoding=one-hot,bump --N 12 --decoder mlp --stop early --precision float32",
    "scaling --task examples.own_task:Chords --decoder linear --lr 0.01 --N 8..32",
    "scaling --task examples.own_task:Chords --decoder mlp --N 12 --option error=0.05 --stop budget --precision float32",
    "scaling --task benchmarks.subjects:ModularAddition --N 11 --weight-decay 1 --lr 0.003 --batch-size 64 --max-steps 3000 "
    "--precision float32",
    "scaling --task benchmarks.subjects:SparseParity --N 20 --option bits=4 --precision float32",
    "scaling --task benchmarks.subjects:DelayedXor --N 30 --option agrees=0.8 --precision float32",
    "scaling --task benchmarks.subjects:NoisyLinear --N 10 --stop budget --precision float32",
    "scaling --task benchmarks.subjects:FallsThenRises --N 20 --option margin=1 --precision float32",
    "scaling --task benchmarks.subjects:LabelNoise --N 30 --target 0.96 --width 256 --precision float32",
    "tune --search lr=1e-4..1e-2:log,width=32|64|128,decoder=cnn|mlp --precision float32",
    "tune --search weight_decay=0|1e-4..1:log,max_steps=100..400:100,data_count=20..90,dataset=bumps|stripes+bumps --N 12 "
    "--objective accuracy --sampler random --search-seed 3 --seeds-per-trial 2 --schedule cosine --decoder mlp "
    "--holdout center --precision float32",
    "tune --search depth=1..3,tolerance=0|1,lr=1e-3..1e-2 --N 8 --sampler grid --trials 30 --objective min:steps --decoder mlp "
    "--precision float32",
    "regularization --trials 3",
    "regularization --N 16 --region center --trials 8 --sampler random --search-seed 7 --rank 4 --init positive --no-ablation",
    "regularization --N 8 --trials 9 --sampler grid --lambda-entropy 0.01..1 --lambda-variance 0 --schedule constant "
    "--seeds 2 --depth 3 --channels 4",
    "regularization --N 12 --trials 12 --sampler nsga2 --objectives id,validation --sigma 2 --tolerance 0 --epochs 30 "
    "--batch-size 16 --lr 0.01 --weight-decay 0",
    "regularization --search decoder --epochs 400 --beta2 0.999 --trials 12 --seeds 2 --region center --rank 1",
    "regularization --N 16 --lambda-entropy 0 --lambda-variance 0.01 --padding 3 --ema 0.99 --confirm-seeds 0 --no-ablation",
    "encodings --precision float32 --seeds 1 --by-depth none",
    "encodings --N 16 --encodings ramp,bump --decoders mlp --holdouts corner --depth 6 --by-depth 2..10:4 --seeds 2 "
    "--precision bfloat16",
    "geometry --depths 2,4 --seeds 1 --precision float32",
    "geometry --N 12 --depths 3 --decoders mlp --encodings one-hot,positional --holdout corner --no-stripes --width 48 "
    "--option centres=real --precision bfloat16",
    "tuning --precision float32",
    "tuning --N 20 --decoder mlp --encoding ramp --absent minus-one --holdout center --bumps 5,40 --depth 2 --sigma 0.8 "
    "--tolerance 2 --batch-size 8 --lr 0.01 --weight-decay 0 --max-steps 77 --seeds 2 --precision float32",
    *GENERATORS,
    *(f"{command} --option look_noise=same" for command in GENERATORS),
    "rotation",
    "rotation --digit 7 --angles 90 --gap 90..180 --N 16 --width 32 --epochs 50 --seeds 9 --batch-size 8 --lr 0.002",
)
"""Every study, data set, decoder, code, held-out region, stop word, schedule and precision, and every task. The precision is
named where `auto` would ask the machine. Studies of generators are asked for with the same noise at all looks, too."""


def planned(command: str) -> list[tuple[RunSpec, str]]:
    """The first runs that a study asks for with nothing in its store, each with the version of its task."""
    name, *arguments = shlex.split(command)
    with mock.patch.object(launch, "_launch", return_value=0) as begun, mock.patch.object(Cluster, "check"):
        assert run(STUDIES[name], arguments) == 0, command
    study = begun.call_args.args[0]
    return [(spec, study.task.version) for spec in study.search.propose(Rows(), ROOM)]


def main() -> None:
    record = json.loads(FILE.read_text()) if FILE.exists() else {"plans": {}, "runs": {}}
    for command in COMMANDS:
        if command in record["plans"]:
            continue
        runs = planned(command)
        record["plans"][command] = [run_key(spec, version) for spec, version in runs]
        for spec, version in runs:
            assert load_task(spec.task).version == version
            of_run = {"family": family_key(spec, version), "task_version": version, "spec": spec.to_dict()}
            record["runs"].setdefault(run_key(spec, version), of_run)
    lines = [f"  {json.dumps(key)}: {json.dumps(of_run)}" for key, of_run in record["runs"].items()]
    plans = json.dumps(record["plans"], indent=1)
    FILE.write_text(f'{{"plans": {plans},\n"runs": {{\n' + ",\n".join(lines) + "\n}}\n")
    print(f"{FILE}: {len(record['plans'])} plans, {len(record['runs'])} runs")


if __name__ == "__main__":
    main()
