"""The folder of a launch: nobody else enters it, it goes with the launch, and only what is ours goes."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from orchestrator.engine import scratch as module
from orchestrator.engine.cluster import Cluster
from orchestrator.engine.scratch import PREFIX, fits, remove_all, scratch
from orchestrator.errors import UserError
from tests.conftest import ROOT

HOLDER = """
from orchestrator.engine.scratch import scratch
with scratch() as folder:
    (folder / "ray" / "sockets").mkdir(parents=True)
    print(folder, flush=True)
    input()
"""
COMPILES = """
import os, sys
from orchestrator.engine.scratch import scratch
if sys.argv[1] == "within":
    with scratch() as folder:
        import torch._dynamo
        assert (folder / "torch").is_dir(), "torch makes no folder any more"
else:
    import torch._dynamo
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder with a short path, in which everything is made."""
    with TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.setattr(module.tempfile, "gettempdir", lambda: folder)
        yield Path(folder)


def test_a_folder_is_private_and_goes_with_the_block(place: Path) -> None:
    with scratch() as folder:
        assert folder.parent == place
        assert folder.stat().st_mode & 0o777 == 0o700
        assert fits(folder)
        (folder / "ray" / "logs").mkdir(parents=True)
        with scratch() as another:
            assert another != folder
            assert folder.exists(), "one that is in use is left alone"
    assert not list(place.iterdir())
    with scratch() as folder:
        remove_all()
        assert not folder.exists()


def test_what_a_killed_launch_left_is_removed_and_nothing_else(place: Path) -> None:
    command, pipe = [sys.executable, "-c", HOLDER], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        left = Path(holder.stdout.readline().strip())
        with scratch():
            assert left.exists(), "its launch is alive"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert left.exists()
    strangers = [place / name for name in ("sweep-results", f"{PREFIX}results", f"{PREFIX}12345678", f"{PREFIX}abcdefgh")]
    for stranger in strangers:
        stranger.mkdir(mode=0o700)
    (strangers[2] / "notes").write_text("mine")
    strangers[3].chmod(0o755)
    (place / f"{PREFIX}87654321").symlink_to(strangers[0])
    (anew := place / f"{PREFIX}11111111").mkdir(mode=0o755)
    (anew / "ry2").mkdir()
    with scratch():
        assert not left.exists()
        assert not anew.exists(), "a dying process of Ray made it"
    assert set(place.iterdir()) == {*strangers, place / f"{PREFIX}87654321"}
    assert (strangers[2] / "notes").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_folders_of_others_are_left_alone(place: Path) -> None:
    other = place / f"{PREFIX}12345678"
    other.mkdir(mode=0o700)
    os.chown(other, 12345, 12345)
    with scratch():
        pass
    assert other.exists()


def test_a_temporary_folder_with_a_long_path_is_passed_over(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = place / ("d" * 60)
    deep.mkdir()
    assert not fits(deep)
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(deep))
    monkeypatch.delenv("RAY_TMPDIR")
    with scratch() as folder:
        assert fits(folder)
    monkeypatch.setattr(module.os, "access", lambda name, mode: name == str(deep))
    with scratch() as folder:
        assert folder.parent == deep, "only an embedded Ray needs a shorter one"


def test_a_temporary_folder_with_letters_outside_ascii_is_passed_over(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray reads the paths of its sockets as ASCII."""
    named = place / "\u00fc b"
    named.mkdir()
    assert not fits(named)
    assert fits(place / "u b")
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(named))
    for variable in ("RAY_TMPDIR", "TMPDIR"):
        monkeypatch.setenv("RAY_TMPDIR", str(named if variable == "RAY_TMPDIR" else place / "none"))
        with scratch() as folder:
            assert folder.parent == Path("/tmp")
        with monkeypatch.context() as patch:
            patch.setattr(module.os, "access", lambda name, mode: name == str(named))
            with scratch() as folder:
                assert folder.parent == named, "only an embedded Ray needs another one"
                with pytest.raises(UserError) as caught:
                    Cluster()._start(folder, {})
        what = "has letters in its path that Ray cannot take"
        assert str(caught.value) == f"{named} {what}: set {variable} to a folder with letters of ASCII alone in its path"


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "the disk of temporary files is full ({}): make room there, or set {} to a folder elsewhere"),
        (errno.EROFS, "no folder can be made in {} (Read-only file system): set {} to another one"),
    ],
)
@pytest.mark.parametrize("variable", ["RAY_TMPDIR", "TMPDIR"])
def test_a_folder_that_cannot_be_made_is_told_in_a_line_with_the_variable_that_names_its_place(
    number: int, told: str, variable: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable == "TMPDIR":
        monkeypatch.delenv("RAY_TMPDIR")
        monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(place))

    def refused(**_: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module.tempfile, "mkdtemp", refused)
    with pytest.raises(UserError) as caught, scratch():
        pass
    assert str(caught.value) == told.format(place, variable)


@pytest.mark.parametrize("usual", ["/no/such/folder", None])
def test_without_any_folder_for_temporary_files_it_is_said_how_to_name_one(
    usual: str | None, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gettempdir() -> str:
        if usual is None:
            raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")
        return usual

    monkeypatch.setattr(module.os, "access", lambda *_: False)
    monkeypatch.setattr(module.tempfile, "gettempdir", gettempdir)
    with pytest.raises(UserError) as caught, scratch():
        pass
    assert str(caught.value) == "no folder for temporary files can be written: set TMPDIR to one that can"


@pytest.mark.slow(5)
@pytest.mark.parametrize("where", ["within", "without"])
def test_what_torch_makes_for_itself_goes_too(place: Path, where: str) -> None:
    """Without such a folder around it something would stay, or this test showed nothing."""
    environment = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    environment |= {"TMPDIR": str(place), "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", COMPILES, where], env=environment, timeout=120).returncode == 0
    assert bool(list(place.iterdir())) == (where == "without")


def test_a_folder_that_another_launch_removes_before_it_is_locked_is_made_anew(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = module.tempfile.mkdtemp, list[str]()

    def swept(prefix: str, dir: Path) -> str:
        made.append(make(prefix=prefix, dir=dir))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(module.tempfile, "mkdtemp", swept)
    with scratch() as folder:
        assert folder.is_dir()
        assert [str(folder)] == made[1:]
