"""Ctrl-C while a command imports what it needs ends it at once, whatever a library makes of an exception meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOSES = """
import os, signal, sys, time

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
            except KeyboardInterrupt:  # as a module in C does that asks for another one
                pass

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.slow(2)
@pytest.mark.parametrize("module", ["orchestrator.scaling", "orchestrator"])
def test_ctrl_c_is_not_lost_in_an_import(module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LOSES)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "RAY_AUTH_MODE": "disabled", "HOME": str(tmp_path)}
    words = ["-m", module, *(["scaling"] if module == "orchestrator" else []), "--N", "8", "--dry-run"]
    ended = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")
