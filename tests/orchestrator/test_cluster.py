"""What can be said of where runs are trained before Ray is there. Studies on clusters are in tests/cluster."""

import contextlib
import os
import platform
import re
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.engine import cluster, heads
from orchestrator.engine.scratch import fits
from orchestrator.errors import UserError
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("address", "user", "used", "allowed", "warned"),
    [
        ("local", 7, 50, 309, True),
        ("local", 7, 50, 310, False),
        ("local", 7, 50, resource.RLIM_INFINITY, False),
        ("local", 0, 50, 10, False),  # root may go beyond
        ("auto", 7, 50, 10, False),
    ],
)
def test_a_limit_on_threads_that_ray_would_reach_is_told(
    address: str, user: int, used: int, allowed: int, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: user)
    limits = {resource.RLIMIT_NPROC: allowed}
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limits.get(what, resource.RLIM_INFINITY),) * 2)
    monkeypatch.setattr(cluster, "_threads_of", lambda who: used)
    told = cluster.Cluster(address, workers=2).shortage()
    if warned:
        assert told is not None
        assert "ulimit -u 570" in told
    else:
        assert told is None


@pytest.mark.parametrize(
    ("address", "allowed", "warned"),
    [
        ("local", 3_600_000 * 1024, True),
        ("local", 4_000_000 * 1024, False),
        ("local", resource.RLIM_INFINITY, False),
        ("auto", 3_200_000 * 1024, False),
    ],
)
def test_a_limit_on_addresses_that_ray_would_reach_is_told(
    address: str, allowed: int, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {resource.RLIMIT_AS: allowed}
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limits.get(what, resource.RLIM_INFINITY),) * 2)
    told = cluster.Cluster(address, workers=2).shortage()
    if warned:
        assert told is not None
        assert told.startswith("a process may have 3.7 GB of address space (ulimit -v)")
        assert told.endswith("raise the limit, ulimit -v unlimited")
    else:
        assert told is None
    if address == "local":
        cluster.Cluster(address, workers=2).check()


def test_a_limit_on_addresses_with_which_ray_crashes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (3_300_000 * 1024,) * 2)
    with pytest.raises(UserError, match=r"^a process may have 3\.4 GB of address space .* ulimit -v unlimited$"):
        cluster.Cluster("local", workers=2).check()


@pytest.mark.parametrize(
    ("address", "soft", "hard", "told"),
    [
        ("local", 64, 64, "a process may have at most 64 open files (ulimit -Hn), and Ray needs about 104; "),
        ("local", 64, 103, "a process may have at most 103 open files (ulimit -Hn), and Ray needs about 104; "),
        ("local", 64, 104, None),  # Ray raises the soft limit
        ("local", 64, resource.RLIM_INFINITY, None),
        ("auto", 64, 64, None),
    ],
)
def test_a_hard_limit_on_open_files_that_ray_would_reach_is_told(
    address: str, soft: int, hard: int, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {resource.RLIMIT_NOFILE: (soft, hard)}
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits.get(what, (resource.RLIM_INFINITY,) * 2))
    says = "with fewer, parts of it may die in the middle of work: take fewer --workers, or raise the limit, ulimit -n 208"
    assert cluster.Cluster(address, workers=2, cpu_workers=1).shortage() == (told and f"{told}{says} in a new shell")


@pytest.mark.parametrize(
    ("allowed", "told"),
    [
        (20 * 2**20, "20 MB"),
        (128 * 2**20, "128 MB"),
        (128 * 2**20 + 7, "128 MB"),
        (128 * 2**20 + 8, None),  # with that a Ray has started, with and without /dev/shm
        (resource.RLIM_INFINITY, None),
    ],
)
def test_a_limit_on_files_below_that_of_the_object_store_is_refused(
    allowed: int, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {resource.RLIMIT_FSIZE: allowed}
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limits.get(what, resource.RLIM_INFINITY),) * 2)
    needs = "and Ray needs one of a little more than 128 MB: raise the limit, ulimit -f unlimited"
    says = re.escape(f"a file may have at most {told} (ulimit -f), {needs}")
    with contextlib.nullcontext() if told is None else pytest.raises(UserError, match=f"^{says}$"):
        cluster.Cluster("local", workers=2).check()


@pytest.mark.parametrize(
    ("platform", "there", "refused"),
    [("linux", "nothing", True), ("linux", "a file", True), ("linux", "a folder", False), ("darwin", "nothing", False)],
)
def test_without_shared_memory_no_ray_is_started(
    platform: str, there: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shm"
    {"nothing": lambda: None, "a file": shared.touch, "a folder": shared.mkdir}[there]()
    monkeypatch.setattr(cluster, "SHARED_MEMORY", shared)
    monkeypatch.setattr(sys, "platform", platform)
    mounted = f"mount a tmpfs there (mkdir {shared} && mount -t tmpfs tmpfs {shared})"
    needs = f"this machine has no folder {shared}, which an embedded Ray needs: {mounted}; "
    with pytest.raises(UserError, match=f"^{re.escape(needs)}") if refused else contextlib.nullcontext():
        cluster.Cluster("local", workers=2).check()


NO_LOOPBACK = (
    "nothing on this machine can be reached at 127.0.0.1 (Network is unreachable), which an embedded Ray needs: bring the "
    "loopback interface up (ip link set lo up)"
)


def test_without_a_loopback_interface_no_ray_is_started() -> None:
    program = "from orchestrator.engine.cluster import Cluster; Cluster('local', workers=2).check()"
    if subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may make no network of its own")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = ["unshare", "-n", sys.executable, "-c", program]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == f"orchestrator.errors.UserError: {NO_LOOPBACK}"


def test_a_loopback_interface_that_does_not_answer_is_waited_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(address: tuple[str, int], timeout: float) -> None:
        assert address[0] == "127.0.0.1"
        assert timeout == 1.0
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", lost)
    with pytest.raises(UserError, match=r"can be reached at 127\.0\.0\.1 \(timed out\), .* \(ip link set lo up\)$"):
        cluster.Cluster("local", workers=2).check()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"\0\0\x06\x04\0\0\0\0\0", None),  # as a server of gRPC begins
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not the head of a Ray cluster, but something else"),
        (b"", "is not the head of a Ray cluster, but something else"),
        (None, None),  # a head that is busy
    ],
)
def test_an_address_where_no_ray_is_is_refused_at_once(
    answer: bytes | None, told: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(heads, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(cluster.Cluster, "connected", lambda self: contextlib.nullcontext())
    monkeypatch.setattr(heads, "_outside", lambda: "127.0.0.1")
    over = threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            if answer is None:
                over.wait()
            else:
                connection.recv(100)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            with contextlib.nullcontext() if told is None else pytest.raises(UserError, match=re.escape(told or "")):
                cluster.Cluster(address, workers=1).check()
        finally:
            over.set()
            thread.join(10)
    busy = f"warning: --address '{address}' has said nothing for 0.5 s: it is busy, or no Ray head; trying to join it\n"
    assert capsys.readouterr().err == (busy if answer is None else "")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("localhost", "has no port: write host:port, for example localhost:6379, or auto, or local"),
        ("10.0.0.1", "has no port: write host:port, for example 10.0.0.1:6379"),
        ("::1", "has no port: write host:port, for example [::1]:6379"),
        ("[::1]", "has no port: write host:port, for example [::1]:6379"),
        ("", "has no port: write host:port, for example localhost:6379"),
        ("ray://host:10001", "give host:port without ray://"),
        ("http://127.0.0.1:8265", "is for `ray job` or a browser: give host:port of the Ray head; the port usually is 6379"),
        ("host:six", "has the port 'six', which is no number from 1 to 65535"),
        ("host:70000", "has the port '70000', which is no number from 1 to 65535"),
        ("host:", "has the port '', which is no number"),
    ],
)
def test_an_address_that_is_none_is_told_in_words(address: str, told: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"--address {address!r} ")) as refused:
        cluster.Cluster(address, workers=1).check()
    assert told in str(refused.value)


def test_an_address_in_brackets_is_asked_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def connect(place: tuple[str, int], timeout: float) -> None:
        asked.append(place)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(UserError, match="Connection refused"):
        cluster.Cluster("[::1]:6379", workers=1).check()
    assert asked == [("::1", 6379)]


@pytest.fixture
def unjoined(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Addresses that were given to Ray, which does nothing with them; and what is in the environment is put back afterwards."""
    joined: list[str | None] = []

    def connected(self: cluster.Cluster) -> contextlib.AbstractContextManager[None]:
        joined.append(self._joined)
        return contextlib.nullcontext()

    of_ray = ("USAGE_STATS_ENABLED", "ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "AIR_NEW_OUTPUT", "CHDIR_TO_TRIAL_DIR", "AUTH_MODE")
    for name in ("PYTHONPATH", cluster.UV_RUN, cluster.OVERRIDE, *(f"RAY_{name}" for name in of_ray)):
        monkeypatch.setenv(name, "0")
    for name in ("RAY_ADDRESS", "RAY_TMPDIR", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cluster.Cluster, "connected", connected)
    return joined


@contextlib.contextmanager
def head() -> Iterator[str]:
    """The address of what begins as a Ray head does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(100)
                        connection.sendall(b"\0\0\x06\x04\0\0\0\0\0")

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def outside(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Other machines know this one by that address."""
    monkeypatch.setattr(heads, "_outside", lambda: host)


ALONE = "127.0.0.9"
"""Of this machine, but nothing listens there."""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("127.0.0.1:1", "does not answer ([Errno 111] Connection refused): give host:port of a Ray head, or unset RAY_ADDRESS"),
        ("http://127.0.0.1:8265", "is for `ray job` or a browser: give host:port of the Ray head; the port usually is 6379"),
        ("ray://127.0.0.1:10001", "is for Ray clients: give host:port without ray://; the port usually is 6379"),
        ("localhost", "has no port: write host:port, for example localhost:6379, or unset RAY_ADDRESS"),
    ],
)
def test_auto_takes_ray_address_which_is_probed_too(
    given: str, told: str, unjoined: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", given)
    with pytest.raises(UserError) as refused:
        cluster.Cluster("auto", workers=1).check()
    assert str(refused.value) == f"RAY_ADDRESS={given!r}, which --address auto takes, {told}"
    assert unjoined == []


def test_auto_does_not_start_a_ray_because_ray_address_says_local(
    unjoined: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(UserError, match="takes RAY_ADDRESS, which is 'local': unset it, or use --address local"):
        cluster.Cluster("auto", workers=1).check()
    assert unjoined == []


def test_ray_address_is_joined_if_a_head_answers(unjoined: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    outside(monkeypatch, "127.0.0.1")
    with head() as address:
        monkeypatch.setenv("RAY_ADDRESS", address)
        cluster.Cluster("auto", workers=1).check()
    assert unjoined == [address]


@pytest.mark.parametrize("given", [None, "", "auto"])
def test_auto_takes_the_first_head_that_can_be_joined(
    given: str | None, unjoined: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is not None:
        monkeypatch.setenv("RAY_ADDRESS", given)
    outside(monkeypatch, "127.0.0.1")
    with head() as address:
        monkeypatch.setattr(heads, "_known_heads", lambda: ["127.0.0.1:1", address, "127.0.0.1:2"])
        cluster.Cluster("auto", workers=1).check()
    assert unjoined == [address]


def test_auto_without_any_ray_says_how_to_start_one(unjoined: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "_running_heads", lambda **_: set())
    monkeypatch.setattr(heads, "_known_heads", list)
    with pytest.raises(UserError, match="--address auto found no Ray on this machine: start one with `ray start --head`"):
        cluster.Cluster("auto", workers=1).check()
    assert unjoined == []


def test_the_ray_of_another_study_is_not_joined(unjoined: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens on 127.0.0.1 only. Ray would ask for it at the address that other machines know this one by, without end."""
    outside(monkeypatch, ALONE)
    monkeypatch.setattr(heads, "_running_heads", lambda **_: set())
    with head() as address:
        monkeypatch.setattr(heads, "_known_heads", lambda: [address, "127.0.0.3:1"])
        with pytest.raises(UserError) as found:
            cluster.Cluster("auto", workers=1).check()
        with pytest.raises(UserError) as given:
            cluster.Cluster(address, workers=1).check()
    assert str(found.value) == (
        f"--address auto found no cluster that this machine can join, only the Ray of another study or program ({address}) and "
        "what does not answer (127.0.0.3:1): start one with `ray start --head`, give host:port of a Ray head, or use local"
    )
    assert str(given.value) == (
        f"--address {address!r} belongs to another program, such as a study, and cannot be joined: give host:port of another, "
        "or auto, or local"
    )
    assert unjoined == []


def test_heads_are_known_by_processes_of_ray_and_by_the_last_ray_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = tmp_path / "ray" / "ray_current_cluster"
    last.parent.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    both = {"127.0.0.3:1", "127.0.0.3:2"}
    words = ["/somewhere/raylet", "-c", "echo; read _", *(f"--gcs-address={address}" for address in sorted(both))]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, executable="/bin/sh", stdin=pipe, stdout=pipe) as raylet:
        assert raylet.stdin is not None
        assert raylet.stdout is not None
        raylet.stdout.readline()
        assert both <= set(heads._known_heads())
        last.write_text("127.0.0.3:2\n")
        assert heads._known_heads()[0] == "127.0.0.3:2", "the one that `ray start` started last"
        last.write_text("127.0.0.3:3\n")
        known = heads._known_heads()
        assert known[-1] == "127.0.0.3:3", "no process of this machine belongs to it"
        assert both <= set(known)
        raylet.stdin.close()
    assert not both & set(heads._known_heads())


def test_what_another_user_of_this_machine_started_is_told_and_not_joined(
    tmp_path: Path, unjoined: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be sent the token."""
    outside(monkeypatch, "127.0.0.1")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    last = tmp_path / "ray" / "ray_current_cluster"
    last.parent.mkdir()
    pipe, another = subprocess.PIPE, os.getuid() + 1
    with head() as address:
        last.write_text(address)
        words = ["/somewhere/raylet", "-c", "echo; read _", f"--gcs-address={address}"]
        with subprocess.Popen(words, executable="/bin/sh", stdin=pipe, stdout=pipe) as raylet:
            assert raylet.stdin is not None
            assert raylet.stdout is not None
            raylet.stdout.readline()
            assert heads._known_heads()[0] == address
            with monkeypatch.context() as patched:
                patched.setattr(os, "getuid", lambda: another)
                assert address not in heads._known_heads()
                patched.setattr(heads, "_known_heads", list)  # this user of the test may have others
                with pytest.raises(UserError) as found:
                    cluster.Cluster("auto", workers=1).check()
                assert unjoined == []
                cluster.Cluster(address, workers=1).check()
            raylet.stdin.close()
    told = "--address auto found no cluster that this machine can join, only the Ray of another user, which is not joined "
    assert str(found.value).startswith(f"{told}unless you name it (")
    assert address in str(found.value)
    assert str(found.value).endswith("): start one with `ray start --head`, give host:port of a Ray head, or use local")
    assert unjoined == [address]


def test_a_file_of_another_user_names_no_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    last = tmp_path / "ray" / "ray_current_cluster"
    last.parent.mkdir()
    last.write_text("127.0.0.3:3")
    assert heads._known_heads()[-1] == "127.0.0.3:3"
    with monkeypatch.context() as patched:
        another = os.getuid() + 1
        patched.setattr(os, "getuid", lambda: another)
        assert "127.0.0.3:3" not in heads._known_heads()
    last.rename(tmp_path / "elsewhere")
    last.symlink_to(tmp_path / "elsewhere")
    assert "127.0.0.3:3" not in heads._known_heads(), "a link, which anyone may have made"
    last.unlink()
    os.mkfifo(last)
    assert "127.0.0.3:3" not in heads._known_heads()


@pytest.mark.parametrize(
    ("address", "mode", "told_by", "expected"),
    [
        ("auto", None, "variable", "token"),
        ("auto", None, "file", "token"),
        ("auto", None, None, None),
        ("auto", "disabled", "file", "disabled"),
        ("127.0.0.1:6379", None, "file", None),
    ],
)
def test_auto_shows_the_token_that_there_is_as_ray_does(
    address: str,
    mode: str | None,
    told_by: str | None,
    expected: str | None,
    unjoined: list[str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE")
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    if told_by == "variable":
        monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    elif told_by == "file":
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("0" * 64)
    cluster.Cluster(address)._set_environment()
    assert os.environ.get("RAY_AUTH_MODE") == expected


@pytest.mark.parametrize("mode", [None, "disabled"])
def test_an_embedded_ray_has_a_token_of_its_own_unless_the_user_says_otherwise(
    mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "RAY_AUTH_TOKEN": "the user's"})
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    tokens = set()
    for _ in range(2):
        if mode is not None:
            monkeypatch.setenv("RAY_AUTH_MODE", mode)
        cluster.Cluster("local")._set_environment()
        assert os.environ["RAY_AUTH_MODE"] == (mode or "token")
        tokens.add(os.environ["RAY_AUTH_TOKEN"])
        monkeypatch.delenv("RAY_AUTH_MODE")
    if mode is None:
        assert len(tokens) == 2, "another launch has another one"
        assert "the user's" not in tokens
        assert {len(token) for token in tokens} == {64}
    else:
        assert tokens == {"the user's"}


@pytest.mark.usefixtures("unjoined")
def test_the_folder_is_put_before_others_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"/a{os.pathsep}/b")
    for _ in range(2):
        cluster.Cluster("127.0.0.1:6379")._set_environment()
        assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), "/a", "/b"]


@pytest.mark.usefixtures("unjoined")
@pytest.mark.parametrize("address", ["local", "127.0.0.1:6379"])
def test_under_uv_run_ray_copies_no_folder_unless_it_is_asked_to(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cluster.UV_RUN, raising=False)
    cluster.Cluster(address)._set_environment()
    assert os.environ[cluster.UV_RUN] == "0"
    monkeypatch.setenv(cluster.UV_RUN, "1")
    cluster.Cluster(address)._set_environment()
    assert os.environ[cluster.UV_RUN] == "1"


@pytest.mark.usefixtures("unjoined")
def test_an_embedded_ray_gets_no_folder_by_a_variable_that_programs_would_get_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/a")
    cluster.Cluster("local")._set_environment()
    assert os.environ["PYTHONPATH"] == "/a"
    monkeypatch.delenv("PYTHONPATH")
    cluster.Cluster("local")._set_environment()
    assert "PYTHONPATH" not in os.environ


@pytest.mark.usefixtures("unjoined")
@pytest.mark.parametrize("verbose", [False, True])
def test_an_embedded_ray_writes_no_log_to_stdout_whatever_the_user_says(verbose: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for address, kept in (("127.0.0.1:6379", "1"), ("local", "0")):
        monkeypatch.setenv("RAY_LOG_TO_STDERR", "1")
        cluster.Cluster(address, verbose=verbose)._set_environment()
        assert os.environ["RAY_LOG_TO_STDERR"] == kept


@pytest.mark.usefixtures("unjoined")
@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ("error", "default"),
        (" e:x", "default:x"),  # Python takes the beginning of a word, too
        ("ignore,error::UserWarning,once:::error", "ignore,default::UserWarning,once:::error"),
        ("ignore", "ignore"),
        (":error", ":error"),
        ("", ""),
        (None, None),
    ],
)
def test_an_embedded_ray_takes_no_warning_for_an_error(
    given: str | None, passed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address, expected in (("127.0.0.1:6379", given), ("local", passed), ("local", passed)):
        if given is None:
            monkeypatch.delenv("PYTHONWARNINGS", raising=False)
        elif address != "local":
            monkeypatch.setenv("PYTHONWARNINGS", given)
        cluster.Cluster(address)._set_environment()
        assert os.environ.get("PYTHONWARNINGS") == expected


@pytest.mark.slow(2)
def test_threads_of_a_user_are_counted() -> None:
    before = cluster._threads_of(os.getuid())
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(500)]
    for thread in threads:
        thread.start()
    counted = cluster._threads_of(os.getuid())
    stop.set()
    assert counted >= 500
    assert before > 0


def test_ray_ends_also_if_nobody_reads_the_output_any_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def flush() -> None:
        raise BrokenPipeError

    import ray

    ended: list[bool] = []
    monkeypatch.setattr(cluster.Cluster, "_set_environment", lambda self: None)
    monkeypatch.setattr(cluster.Cluster, "_start", lambda *_: None)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 1.0})
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    monkeypatch.setattr(sys.stdout, "flush", flush)
    with pytest.raises(BrokenPipeError), cluster.Cluster(workers=1)._connected(tmp_path):
        assert not ended
    assert ended == [True]


def test_a_cluster_that_gives_no_reason_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError

    import ray

    monkeypatch.setattr(cluster.Cluster, "_set_environment", lambda self: None)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(ray, "init", refuse)
    told = pytest.raises(UserError, match=r"cannot be joined \(ConnectionError\): start Ray there")
    with told, cluster.Cluster("1.2.3.4:5")._connected(tmp_path):
        pass


def test_a_launch_that_ray_takes_out_of_its_process_group_returns_to_it() -> None:
    script = (
        "import os; from orchestrator.engine.cluster import _same_group; before = os.getpgrp()\n"
        "with _same_group(): os.setpgrp(); assert os.getpgrp() == os.getpid() != before\n"
        "assert os.getpgrp() == before"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_folder_of_the_last_head_is_where_ray_looks_for_it(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._common.utils import get_default_system_temp_dir

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    for name in ("TMPDIR", "RAY_TMPDIR"):
        monkeypatch.setenv(name, f"/var/{name}")
        assert heads._temporary() == get_default_system_temp_dir() != ""


@pytest.mark.parametrize("variable", ["TMPDIR", "RAY_TMPDIR"])
def test_without_a_folder_whose_path_is_short_enough_for_sockets_it_is_said_how_to_name_one(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray is started all the same"))
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv(variable, "/" + 14 * "d")
    with pytest.raises(UserError) as refused:
        cluster.Cluster("local", workers=2)._start(Path(f"/{14 * 'd'}/sweep-tmp-12345678"), {})
    assert str(refused.value) == (
        f"/dddddddddddddd has too long a path for the sockets of Ray: set {variable} to a folder whose path has at most 14 "
        "characters"
    )
    assert fits(Path(f"/{13 * 'd'}/sweep-tmp-12345678"))


def test_a_ray_that_does_not_come_up_is_started_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    places: list[str | None] = []

    def init(*, _temp_dir: str | None, **_: object) -> None:
        places.append(_temp_dir)
        if len(places) == 1:
            raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", init)
    cluster.Cluster("local", workers=2)._start(Path("/tmp/sweep-tmp-12345678"), {})
    assert places == ["/tmp/sweep-tmp-12345678/ray", "/tmp/sweep-tmp-12345678/ry2"]


def test_a_cluster_of_another_version_is_refused_in_a_line_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray._private.utils import check_version_info

    def init(**_: object) -> None:
        check_version_info({"ray_version": "2.9.1", "python_version": "3.10.4"}, "node 10.0.0.1")

    of_ray = ("USAGE_STATS_ENABLED", "ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "AIR_NEW_OUTPUT", "CHDIR_TO_TRIAL_DIR")
    for name in ("PYTHONPATH", *(f"RAY_{name}" for name in of_ray)):
        monkeypatch.setenv(name, "0")  # put back afterwards
    monkeypatch.setattr(ray, "init", init)
    here = f"Ray {ray.__version__} on Python {platform.python_version()}"
    with pytest.raises(UserError) as refused, cluster.Cluster("auto").connected():
        pass
    assert str(refused.value) == (
        f"--address 'auto' has Ray 2.9.1 on Python 3.10.4, and this command runs with {here}: install the versions of the "
        "cluster here, or start the command in the image of the cluster"
    )

    def broken(**_: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(ray, "init", broken)
    with pytest.raises(RuntimeError, match="something else"), cluster.Cluster("auto").connected():
        pass


NO_MORE = [
    (4, 0.6, 4), (4, 0.4, 8), (3, 2.0, 1), (8, 0.3, 24), (1, 0.25, 4), (4, 1 / 7, 28), (4, 0.3334, 12), (2, 0.1, 20),
]  # fmt: skip
"""GPUs of a machine, what a run takes of them, and how many such runs Ray places there."""


@pytest.mark.parametrize(("gpus", "each", "held"), NO_MORE)
def test_as_many_workers_are_planned_as_the_gpus_hold(
    gpus: int, each: float, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    assert cluster.Cluster(gpus_per_run=each).worker_count() == held


@pytest.mark.parametrize(
    ("groups", "files", "found"),
    [
        ("0::/", {}, 8),
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "250000 100000"}, 3),
        ("0::/", {"cpu.max": "6400000 100000"}, 8),
        ("0::/", {"cpu.max": "?"}, 8),
        ("0::/a.slice/b", {"a.slice/cpu.max": "300000 100000", "a.slice/b/cpu.max": "max 100000"}, 3),
        ("0::/a", {"b/cpu.max": "100000 100000"}, 8),
        ("2:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("2:cpu,cpuacct:/host/x", {"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ("1:cpu:/a\n0::/", {"cpu/a/cpu.cfs_quota_us": "400000", "cpu/a/cpu.cfs_period_us": "100000"}, 4),
        ("3:memory:/a", {"cpu/a/cpu.cfs_quota_us": "400000", "cpu/a/cpu.cfs_period_us": "100000"}, 8),
        (None, {"cpu.max": "400000 100000"}, 4),
    ],
)
def test_there_are_no_more_cores_than_the_control_group_pays_for(
    groups: str | None, files: dict[str, str], found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    for name, text in files.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text + "\n")
    if groups is not None:
        (tmp_path / "own").write_text(groups + "\n")
    assert cluster.cores(tmp_path / "tree", tmp_path / "own") == found


def test_without_a_number_there_is_a_worker_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "cores", lambda: 3)
    assert cluster.Cluster().worker_count() == 3
    assert cluster.Cluster(workers=5).worker_count() == 5


@pytest.mark.parametrize("named", [False, True])
def test_who_has_no_home_has_a_token_only_by_name(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(user: int) -> None:
        raise KeyError(user)

    for name in ("HOME", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    if named:
        monkeypatch.setenv("RAY_AUTH_TOKEN", "t")
    assert cluster._has_token() is named


def machine(alive: bool = True, **resources: float) -> dict[str, object]:
    """As `ray.nodes` tells of one."""
    return {"Alive": alive, "Resources": {"memory": 1e9, **resources}}


@pytest.mark.parametrize(
    ("each", "machines", "held"),
    [
        (2.0, [machine(CPU=8.0, GPU=3.0)] * 4, 4),
        (0.6, [machine(CPU=8.0, GPU=2.0)] * 2, 4),
        (0.25, [machine(CPU=2.0, GPU=1.0)] * 2, 4),
        (1.0, [machine(CPU=8.0), machine(CPU=8.0, GPU=1.0), machine(False, CPU=8.0, GPU=8.0)], 1),
        (0.0, [machine(CPU=3.0), machine(GPU=1.0), machine(CPU=2.0)], 5),
        (1.0, [machine(CPU=8.0)], 1),
    ],
)
def test_as_many_workers_are_planned_as_the_machines_of_a_cluster_hold(
    each: float, machines: list[dict[str, object]], held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.nodes", lambda: machines)
    assert cluster.Cluster("head:6379", gpus_per_run=each).fitting() == held


@pytest.mark.parametrize(
    ("workers", "each", "told"),
    [
        (3, 1.0, None),
        (4, 1.0, "--workers 4 are too many: the 3 GPUs of this machine hold 3 with --gpus-per-run 1; omit --workers, or share"),
        (2, 2.0, "--workers 2 are too many: the 3 GPUs of this machine hold 1 with --gpus-per-run 2"),
        (6, 0.5, None),
        (4, 0.0, None),
    ],
)
def test_more_workers_than_the_gpus_of_this_machine_hold_are_refused(
    workers: int, each: float, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    with contextlib.nullcontext() if told is None else pytest.raises(UserError, match=re.escape(told or "")):
        cluster.Cluster("local", workers, 1.0, each).check()


def test_workers_that_a_cluster_does_not_hold_yet_are_asked_for(
    unjoined: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside(monkeypatch, "127.0.0.1")
    with head() as address:
        asked = cluster.Cluster(address, 4, 1.0, 1.0)
        asked.check()
    assert asked.worker_count() == 4
    assert unjoined == [address]


NODES = [
    {"NodeID": "a", "NodeManagerAddress": "10.0.0.1", "NodeManagerPort": 1},
    {"NodeID": "b", "NodeManagerAddress": "10.0.0.2", "NodeManagerPort": 2},
]
"""As `ray.nodes` tells of them."""


@pytest.mark.parametrize(
    ("address", "watched"),
    [
        ("local", [
            ("gcs_server, a part of the embedded Ray,", "10.0.0.1", 6379, 600.0, True),
            ("raylet, a part of the embedded Ray,", "10.0.0.2", 2, 0.0, False),
        ]),
        ("10.0.0.1:6379", [
            ("the head of the cluster (10.0.0.1)", "10.0.0.1", 6379, 45.0, False),
            ("raylet, the part of Ray on this machine,", "10.0.0.2", 2, 0.0, False),
        ]),
    ],
)  # fmt: skip
def test_of_all_raylets_that_of_this_machine_is_watched(
    address: str, watched: list[tuple[str, str, int, float, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch hangs without it. The others may come and go. A frozen head lets it hang, too."""
    monkeypatch.delenv(cluster.RAY_PATIENCE, raising=False)
    context = SimpleNamespace(gcs_address="10.0.0.1:6379", get_node_id=lambda: "b")
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    monkeypatch.setattr("ray.nodes", lambda: NODES)
    found = cluster.Cluster(address).parts()
    assert [(part.name, part.host, part.port, part.patience, part.is_own) for part in found] == watched
