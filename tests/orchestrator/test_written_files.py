"""How answers become files."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from orchestrator.command import cli
from orchestrator.command.files import write_files


def test_a_file_that_cannot_be_written_leaves_the_former_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, {"a.csv": b"before"})
    whole = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        whole(path, content[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_files(tmp_path, {"a.csv": b"after"})
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_bytes() == b"before"


def test_processes_with_one_number_may_write_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of two containers may have."""
    replace, contents = Path.replace, [b"of the one", b"of the other"]

    def meanwhile(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        write_files(tmp_path, {"a.csv": contents[1]})
        assert path.read_bytes() == contents[0]
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", meanwhile)
    write_files(tmp_path, {"a.csv": contents[0]})
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.csv", contents[0])]


@pytest.mark.parametrize("name", ["analysis.py", "trainables/__init__.py"])
def test_a_file_that_hides_a_package_of_the_project_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    package = file.stem if file.stem != "__init__" else file.parent.name
    spec = importlib.util.spec_from_file_location(package, file)
    monkeypatch.setattr(importlib.util, "find_spec", lambda asked: spec if asked == package else None)
    assert cli.run(cli.App(), []) == 2
    told = f"error: {file} hides a package of this project by its name: rename it, or start in another folder\n"
    assert capsys.readouterr().err == told
