"""How answers become files."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.command import beginning, cli
from orchestrator.command.files import write_files
from orchestrator.store import Artifacts, ResultStore
from tests.conftest import ROOT


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


@pytest.mark.parametrize("how", ["moved", "unmounted", "turned"])
def test_nothing_is_made_where_a_store_was(how: str, tmp_path: Path) -> None:
    """Else the store would be moved back into what was made."""
    place, real, other = (tmp_path / name for name in ("s", "real", "other"))
    if how == "turned":
        real.mkdir()
        place.symlink_to(real)
        ResultStore(other).close()
    ResultStore(place).close()
    write_files(place / "a" / "b", {"a.csv": b"before"})
    if how == "turned":
        place.unlink()
        place.symlink_to(other)
    else:
        place.rename(real)
    if how == "unmounted":
        place.mkdir()
    Artifacts(place).with_weights()
    ResultStore(other if how == "turned" else tmp_path / "another").close()
    before = sorted(other.rglob("*"))
    for out in (place / "a" / "b", place / "new" / "one", place / "new" / ".." / "other", place):
        with pytest.raises(FileNotFoundError, match="the store was moved or removed while in use"):
            write_files(out, {"a.csv": b"after"})
    assert sorted(other.rglob("*")) == before
    if how != "turned":
        assert how == "unmounted" or not place.exists()
        assert how == "moved" or list(place.iterdir()) == []
    write_files(tmp_path / "s-beside" / "a", {"a.csv": b"after"})
    if place.is_symlink():
        place.unlink()
    elif place.exists():
        place.rmdir()
    real.rename(place)
    assert (place / "a" / "b" / "a.csv").read_bytes() == b"before"
    write_files(place / "a" / "b", {"a.csv": b"after"})
    assert (place / "a" / "b" / "a.csv").read_bytes() == b"after"


def test_a_store_that_is_made_anew_by_a_launch_takes_files_again(tmp_path: Path) -> None:
    ResultStore(tmp_path / "s").close()
    (tmp_path / "s").rename(tmp_path / "old")
    with pytest.raises(FileNotFoundError):
        write_files(tmp_path / "s" / "a", {"a.csv": b"x"})
    ResultStore(tmp_path / "s", read_only=True).close()
    with pytest.raises(FileNotFoundError):
        write_files(tmp_path / "s" / "a", {"a.csv": b"x"})
    ResultStore(tmp_path / "s").close()
    write_files(tmp_path / "s" / "a", {"a.csv": b"x"})
    assert (tmp_path / "s" / "a" / "a.csv").read_bytes() == b"x"


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


def test_what_a_killed_process_left_goes_at_the_next_write(tmp_path: Path) -> None:
    """And nothing that may be another's: what is written just now, and files with other names."""
    killed = "import os, sys; from pathlib import Path; from orchestrator.command.files import write_files; "
    killed += "Path.replace = lambda *_: os.kill(os.getpid(), 9); write_files(Path(sys.argv[1]), {'a.png': b'x'})"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", killed, str(tmp_path)], cwd=ROOT, timeout=60).returncode == -9
    old, new = sorted(path.name for path in tmp_path.iterdir())
    others = [".b.png.0123456789abcdef", "a.png.0123456789abcdef", *(f".a.png.0123456789abcde{end}" for end in ("", "g"))]
    for name in others:
        (tmp_path / name).touch()
    folder = tmp_path / ".a.png.fedcba9876543210"
    folder.mkdir()
    for path in [tmp_path / old, folder, *(tmp_path / name for name in others)]:
        os.utime(path, (time.time() - 3700,) * 2)
    os.utime(tmp_path / new, (time.time() - 3500,) * 2)
    write_files(tmp_path, {"a.png": b"y"})
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", new, folder.name, *others}
    assert (tmp_path / "a.png").read_bytes() == b"y"


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


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("random.py", "Python"),
        ("calendar.py", "Python"),
        ("signal/__init__.py", "Python"),
        ("ray.py", "a library that is needed"),
        ("numpy/__init__.py", "a library that is needed"),
    ],
)
def test_a_file_that_hides_a_module_that_is_needed_is_named(
    name: str, whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    monkeypatch.chdir(tmp_path)
    assert cli.run(cli.App(), []) == 2
    module = Path(name).parts[0].removesuffix(".py")
    told = f"error: {file} hides the module {module} of {whose}: rename it, or start in another folder\n"
    assert capsys.readouterr().err == told


def test_files_that_hide_nothing_are_none_of_its_concern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train.py", "time.py", "random.csv", "ray.sh", "boto4.py", "pytest.py"):  # Python has `time` built in
        (tmp_path / name).touch()
    (tmp_path / "torch").mkdir()  # a folder of data, say
    monkeypatch.chdir(tmp_path)
    assert beginning.mistake() is None


def test_libraries_in_the_folder_are_no_files_that_hide_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no others, or where they are the same by another name."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").symlink_to("here")
    (tmp_path / "here" / "ray.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    for others in ([], [str(tmp_path / "there")]):
        monkeypatch.setattr(sys, "path", [str(tmp_path / "here"), *others])
        assert beginning.mistake() is None


@pytest.mark.parametrize(
    "typed",
    ["-m orchestrator.scaling", "-m orchestrator", "-m analysis.report", "-um analysis.report", "-P -m orchestrator.scaling"],
)
def test_a_file_that_hides_a_module_is_named_before_any_is_imported(typed: str, tmp_path: Path) -> None:
    """With -P Python does not look for modules in the folder, but the workers of Ray still do."""
    for name in ("re", "typer", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemError")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, *typed.split(), "--help"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    told = f"error: {tmp_path / 're.py'} hides the module re of Python: rename it, or start in another folder\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def test_a_folder_that_is_gone_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.run(cli.App(), []) == 2
    told = "error: the folder in which this was started does not exist any more: change to one that does\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("started", "typed", "is_ours"),
    [
        ("-m", "python -X dev -m orchestrator.scaling", True),
        ("-m", "python -m analysis.report", True),
        ("-m", "python -W ignore -um orchestrator.scaling", True),
        ("-m", "python -Wmodule -bXdev --check-hash-based-pycs never -Bmanalysis.report", True),
        ("-m", "python -m mypackage", False),
        ("-m", "python -um mypackage -m orchestrator.scaling", False),
        (str(Path(sys.executable).with_name("sweep")), "sweep scaling", True),
        (os.path.relpath(Path(sys.executable).with_name("sweep"), ROOT), "sweep scaling", True),
        ("/my/sweep", "sweep scaling", False),
    ],
)
def test_an_interrupt_while_a_command_is_imported_ends_it_in_a_line(started: str, typed: str, is_ours: bool) -> None:
    said = f"sys.argv[0], sys.orig_argv = {started!r}, {typed.split()!r}"
    program = f"import sys; {said}; import orchestrator; raise KeyboardInterrupt"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ((done.returncode, done.stderr) == (130, "interrupted\n")) == is_ours


@pytest.mark.parametrize("name", ["stat.py", "site.py", "io.py", "time.py", "turtle.py", "test/__init__.py"])
def test_what_python_holds_in_itself_or_never_needs_is_hidden_by_no_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert beginning.mistake() is None


def test_a_program_that_imports_this_project_has_its_own_errors(tmp_path: Path) -> None:
    (tmp_path / "random.py").touch()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = "import sys, orchestrator; print(sys.excepthook is sys.__excepthook__)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True, cwd=tmp_path, env=environment) == "True\n"
