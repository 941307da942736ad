"""The README tells the truth: its links lead somewhere and its commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from orchestrator import encodings, geometry, regularization, rotation, scaling, tuning
from orchestrator.cli import run
from tests.conftest import ROOT

PAGES = sorted(p for p in ROOT.rglob("*.md") if not any(part.startswith(".") for part in p.relative_to(ROOT).parts))
STUDIES = {
    "scaling": scaling.app, "regularization": regularization.app, "encodings": encodings.app, "geometry": geometry.app,
    "tuning": tuning.app, "rotation": rotation.app,
}  # fmt: skip
README = (ROOT / "README.md").read_text().replace("\\\n", "")
COMMANDS = re.findall(r"^python -m orchestrator\.(\w+)(.*)$", README, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert not re.search(r"@[A-Z_]+@", page.read_text()), "a placeholder was left"


@pytest.mark.parametrize(("study", "command"), COMMANDS)
def test_every_command_is_understood(study: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    assert run(STUDIES[study], [*shlex.split(command, comments=True), "--dry-run"]) == 0


def test_there_are_commands_to_check() -> None:
    assert {study for study, _ in COMMANDS} == STUDIES.keys()
