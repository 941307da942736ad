"""Every row, answer and weight of a small study of each kind: what no move of code may change.

    python -m tests.golden.rows --out before.json
    python -m tests.golden.rows --compare before.json after.json

The first command takes a few minutes. Both files must come from the same machine and the same versions of the libraries, as
another processor or another torch rounds otherwise.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import typer

from orchestrator.command.cli import App, check_folder, main_of
from orchestrator.errors import UserError
from orchestrator.store import PROVENANCE

ROOT = Path(__file__).parents[2]
STUDIES = {
    "scaling, mlp": "scaling --N 8,12 --decoder mlp --width 64 --seeds 2 --max-steps 600 --precision float32",
    "scaling, cnn": "scaling --N 8 --decoder cnn --width 8 --depth 1 --seeds 1 --lr 0.01 --max-steps 400 --precision float32",
    "scaling, own task": "scaling --task examples.own_task:Chords --decoder linear --lr 0.01 --N 8,10 --seeds 1 --stop budget",
    "regularization": "regularization --N 8 --trials 16 --epochs 150 --seeds 1 --lr 0.01",
    "encodings": "encodings --N 8 --max-steps 40 --width 8 --seeds 1 --depth 2 --encodings bump,ramp --by-depth 1,3 "
    "--precision float32",
    "geometry": "geometry --N 8 --max-steps 40 --width 8 --seeds 2 --depths 2 --encodings one-hot,positional --bumps 5 "
    "--precision float32",
    "tuning": "tuning --N 8 --max-steps 100 --width 8 --seeds 2 --depth 2 --bumps 0,10 --precision bfloat16",
    "rotation": "rotation --N 12 --width 8 --epochs 10 --angles 100 --seeds 2",
}
"""Studies that train in seconds, as a user writes them."""
WHERE = ("--workers", "1", "--pack-size", "1", "--json")
TIMES_AND_PLACES = ("seconds", "store", "out", "versions")
"""Parts of an answer that may differ between two launches of the same study."""


class FailedError(Exception):
    """A study that did not end as it should."""


def exact(value: Any) -> Any:
    """`value` as JSON holds it to the last bit: floats in hexadecimal."""
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items() if name not in TIMES_AND_PLACES}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return value.hex() if isinstance(value, float) else value


def rows_of(store: Path) -> dict[str, dict[str, Any]]:
    """By key, the rows of a store as its files hold them, without times and places."""
    table = pq.read_table(store / "runs")
    kept = table.select([name for name in table.column_names if name not in PROVENANCE])
    return {row["key"]: exact(row) for row in kept.to_pylist()}


def train(command: str, folder: Path) -> dict[str, Any]:
    """What a study leaves in a new store in `folder`.

    Raises:
        FailedError: it was not answered.
    """
    study, *options = shlex.split(command)
    store = folder / "results"
    names = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TUNE_"))}
    done = subprocess.run(
        [sys.executable, "-m", f"orchestrator.{study}", *options, *WHERE, "--store", str(store)],
        cwd=folder,
        env=names | {"HOME": str(folder), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise FailedError(f"`{command}` ended with exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    weights = sorted((store / "weights").glob("*.safetensors"))
    return {
        "answer": exact(json.loads(done.stdout)),
        "rows": rows_of(store),
        "weights": {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in weights},
    }


def values(found: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every single value in nested mappings and lists, with the way to it; an empty one counts as a value."""
    parts = found if isinstance(found, dict) else dict(enumerate(found)) if isinstance(found, list) else {}
    if not parts:
        yield path, found
    for name, part in parts.items():
        yield from values(part, *path, str(name))


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """A line for every value that is not the same in both."""
    before, after = dict(values(old)), dict(values(new))
    lines = []
    for path in sorted(before.keys() | after.keys()):
        was, now = (json.dumps(found[path]) if path in found else "nothing" for found in (before, after))
        if was != now:
            lines.append(f"{' / '.join(path)}: {was} became {now}")
    return lines


app = App()


@app.command(help=__doc__)
def command(
    out: Annotated[Path | None, typer.Option(help="Train the studies, and write what they leave to this file.")] = None,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="OLD NEW", help="Compare two such files; exit code 1 if they differ.")
    ] = None,
) -> int:
    if compare is not None and out is None:
        old, new = map(read, compare)
        lines = differences(old, new)
        print("\n".join([*lines, f"compared: {told(old)}; different: {len(lines)} values"]))
        return bool(lines)
    if out is None or compare is not None:
        raise UserError("there is one thing to do at a time: give either --out FILE or --compare OLD NEW")
    check_folder("--out", out.parent)
    found = {}
    for name, study in STUDIES.items():
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            try:
                found[name] = train(study, Path(folder))
            except FailedError as error:
                print(f"{error}\n{out} is not written", file=sys.stderr)
                return 1
        print(f"{name}: {told({name: found[name]})}, {time.monotonic() - began:.0f} s", flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"wrote {out}: {told(found)}")
    return 0


def read(file: Path) -> dict[str, Any]:
    """What `--out` wrote.

    Raises:
        UserError: there is no such file, or it holds something else.
    """
    try:
        found = json.loads(file.read_text())
        told(found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{str(file)!r} cannot be compared: name a file that --out wrote") from None
    return found


def told(found: dict[str, Any]) -> str:
    """How much there is to compare."""
    rows, weights = (sum(len(study[kind]) for study in found.values()) for kind in ("rows", "weights"))
    return f"{rows} rows, {weights} weights, {len(found)} answers, {sum(1 for _ in values(found))} values"


main = main_of(app, "python -m tests.golden.rows")

if __name__ == "__main__":
    main()
