"""The README and the pages in docs/ tell the truth: their links lead somewhere and their commands are understood."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from analysis.export import app as export
from analysis.measure import app as measure
from analysis.report.__main__ import app as report
from orchestrator import __main__ as everything
from orchestrator.again import app as again
from orchestrator.command.cli import run
from orchestrator.engine import estimate
from orchestrator.merge import app as merge
from tests.conftest import ROOT
from tests.trainables.generative.made_data import write_celeba, write_clevrer
from trainables.generative.pictures import FOLDER

PAGES = sorted(p for p in ROOT.rglob("*.md") if not any(part.startswith(".") for part in p.relative_to(ROOT).parts))
READ = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STUDIES = {name: study.app for name, study in everything.STUDIES.items()}
READERS = {
    "analysis.measure": measure, "analysis.report": report, "analysis.export": export, "orchestrator.again": again,
    "orchestrator.merge": merge,
}  # fmt: skip
"""Commands about a store that there is."""
OF_STUDIES = r"python -m orchestrator\.(?!again|merge)([a-z]+)( .*|$)"
OF_READERS = rf"python -m ({'|'.join(READERS)})( .*|$)"
TASK = (ROOT / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
OTHER_PROGRAMS = r"(pip|rsync|tensorboard|python train\.py|\.venv/bin/ray) |--for=create$"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def commands(pattern: str) -> list[tuple[str, ...]]:
    """What `pattern` captures in the blocks of code and in `quoted commands` of the README and of docs/, each once."""
    found: dict[tuple[str, ...], None] = {}
    for page in READ:
        text = page.read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
        quoted = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
        found |= dict.fromkeys(match.groups() for line in [*lines, *quoted] if (match := re.match(pattern, line)))
    return list(found)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def options_of(app: typer.Typer) -> set[str]:
    parameters = typer.main.get_command(app).params
    return {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)", page.read_text())
    targets = [(page.parent / link if link else page, heading) for link, heading in links]
    assert [str(target) for target, _ in targets if not target.exists()] == []
    assert [heading for target, heading in targets if heading and heading not in anchors(target)] == []
    assert not re.search(r"@[A-Z_]+@", page.read_text()), "a placeholder was left"


@pytest.mark.parametrize(("study", "command"), commands(OF_STUDIES))
def test_every_command_is_understood(study: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "--task" not in command:  # steps of the README's own task are timed, so it trains
        monkeypatch.setattr(estimate, "step_seconds", lambda *_: 0.01)
    (tmp_path / "sums.py").write_text(TASK)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv(FOLDER, "")  # put back afterwards
    for name, write in (("celeba", write_celeba), ("clevrer", write_clevrer)):
        if f"--data {name}" in command:
            write(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sums", raising=False)
    assert run(STUDIES[study], [*shlex.split(command, comments=True), "--dry-run"]) == 0


@pytest.mark.parametrize(("name", "command"), commands(OF_READERS))
def test_every_command_that_reads_a_store_has_options_that_there_are(name: str, command: str) -> None:
    options = {word for word in shlex.split(command, comments=True) if word.startswith("--")}
    assert options <= options_of(READERS[name])


@pytest.mark.parametrize("words", [words for (words,) in commands(r"sweep ([a-z]+ .*)")])
def test_every_sweep_command_is_understood(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "step_seconds", lambda *_: 0.01)
    monkeypatch.chdir(tmp_path)
    assert run(everything.app, [*shlex.split(words), "--dry-run"]) == 0


@pytest.mark.parametrize("words", [words for (words,) in commands(r"make ([a-z][^#]*)")])
def test_every_make_command_has_its_target(words: str) -> None:
    for command in words.split("&&"):
        arguments = shlex.split(command.strip().removeprefix("make "))
        made = subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30)
        assert made.returncode == 0, made.stderr


def quoted_options(page: Path) -> set[str]:
    """The options in the `quoted` words of a page, but for those of OTHER_PROGRAMS."""
    quoted = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    of_ours = [words for words in quoted if not re.match(OTHER_PROGRAMS, words)]
    return {option for words in of_ours for option in re.findall(r"(?<![\w-])--[a-zA-Z][a-zA-Z-]*", words)}


def options_of_scripts(folder: Path) -> set[str]:
    """The options of the scripts in a folder, by their text: what stands there as one, and the parameters with a default."""
    text = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    parameters = [name.replace("_", "-") for name in re.findall(r"^    (\w+): .* = ", text, re.MULTILINE)]
    return {*re.findall(r'"(--[a-zA-Z-]+)"', text), *(f"--{no}{name}" for name in parameters for no in ("", "no-"))}


def test_every_option_that_a_page_names_exists() -> None:
    tasks = ("examples.own_task:Chords", "examples.pretraining:FineTuning")
    examples = [STUDIES["scaling"].of(["--task", task]) for task in tasks]
    known = {"--help", "--version"}.union(*map(options_of, (*STUDIES.values(), *examples, *READERS.values())))
    for page in (*READ, ROOT / "CONTRIBUTING.md"):
        assert quoted_options(page) - known == set(), page
    for folder in (ROOT / "benchmarks", ROOT / "cluster"):
        assert quoted_options(folder / "README.md") - known - options_of_scripts(folder) == set(), folder


def test_options_are_found_wherever_they_stand_in_quoted_words(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`--seeds 4 --lr=0.1` or `scaling\n--N 8`\n```sh\nls --all\n```\n`rsync --archive`, not `a--b`, not --N8")
    assert quoted_options(page) == {"--seeds", "--lr", "--N"}


def test_there_are_commands_to_check() -> None:
    assert {study for study, _ in commands(OF_STUDIES)} == STUDIES.keys()
    readers = commands(r"python -m (analysis\.[a-z]+|orchestrator\.(?:again|merge))( .*|$)")
    assert {name for name, _ in readers} == READERS.keys()
    assert len(commands(r"make ([a-z][^#]*)")) >= 5


def test_there_is_one_version_and_one_licence() -> None:
    assert re.findall(r"^## \[?([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == PROJECT["version"]
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
    assert "license: Apache-2.0" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("package", ["orchestrator", "trainables", "analysis"])
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").read_bytes() == b""


def test_every_promise_of_security_names_tests_that_there_are() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = re.findall(r"^\| (?!promised|-)(.*) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| ") - 1 > 15
    for promise, named in [*rows, *((words, f"`{words}`") for words in re.findall(r"\(`(tests/[^)]*)`\)", text))]:
        first, *more = re.findall(r"`([^`]+)`", named)
        files = [ROOT / first, *(ROOT / name if "/" in name else (ROOT / first).with_name(name) for name in more)]
        assert [str(file) for file in files if not file.is_file()] == [], promise
