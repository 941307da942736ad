"""A guard: the process between a worker and its program, which sees to it that nothing of the program outlives the worker.

    python guard.py STATUS_FD PROGRAM [WORD ...]

Standard input is a pipe that only the worker can write to. A byte `t` asks the program to end: SIGTERM to its process group,
SIGKILL after GRACE_SECONDS. When the pipe is closed, as the kernel does whenever the worker dies, all is killed at once. What
the program has left behind is killed when it ends. Lines on STATUS_FD tell what becomes of it: `pid 7`, then `exit 0`,
`signal 9`, or `error TEXT` if it cannot be started.

Imports little, as it starts with every run.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

GRACE_SECONDS = 5.0
KEEP_LOOKING_SECONDS = 0.02
PR_SET_CHILD_SUBREAPER = 36
OWN_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Those that a guard does not heed: it ends when its program has ended."""
RESET = (*OWN_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGQUIT, signal.SIGCHLD)
"""Those that the program heeds as if it had been started from a shell."""


def main() -> None:
    status, words = int(sys.argv[1]), sys.argv[2:]
    child = os.fork()
    if child:
        # What ends a worker may also end its children, so the guard is a grandchild. Its parent only waits for it.
        os.closerange(0, status + 1)
        os.waitpid(child, 0)
        os._exit(0)
    for number in OWN_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    changed, wake = os.pipe()
    os.set_blocking(changed, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    with contextlib.suppress(OSError, AttributeError):  # another system than Linux
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    nothing = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_CLOSE, status)]
    try:
        pid = os.posix_spawnp(words[0], words, os.environ, file_actions=nothing, setpgroup=0, setsigmask=(), setsigdef=RESET)
    except OSError as error:
        _tell(status, f"error {error.strerror}")
        return
    with open(os.devnull, "wb") as sink:  # noqa: PTH123 -- its pipes are the program's alone, so that they end with it
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    _tell(status, f"pid {pid}")
    ended = _watch(pid, changed)
    _signal_group(pid, signal.SIGKILL)  # its number cannot be another's yet: the program has not, or just, been waited for
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1] if ended is None else ended)
    _clear_up()
    _tell(status, f"signal {-code}" if code < 0 else f"exit {code}")


def _watch(pid: int, changed: int) -> int | None:
    """Until the program has ended, do what the worker asks for. Gives its status where Python cannot look at a program that has
    ended without waiting for it, as on macOS before 3.13."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(changed, select.POLLIN)
    deadline: float | None = None
    while True:
        if hasattr(os, "waitid"):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                return None
        elif (found := os.waitpid(pid, os.WNOHANG))[0]:
            return found[1]
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = [number for number, _ in poll.poll(None if left is None else 1000 * left + 1)]
        if changed in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(changed, 4096)
        asked = os.read(0, 1) if 0 in ready else None
        if asked == b"t" and deadline is None:
            deadline = time.monotonic() + GRACE_SECONDS
            _signal_group(pid, signal.SIGTERM)
        elif asked == b"":
            poll.unregister(0)
            _kill(pid)
        if deadline is not None and time.monotonic() >= deadline:
            deadline = None
            _kill(pid)


def _kill(pid: int) -> None:
    _signal_group(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)  # it may have left its group


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, number)


def _clear_up() -> None:
    """Kill what has left the process group. Whoever loses its parent becomes a child of the guard: in the end all are. What
    cannot be killed, as a process of another user, is left if none has ended for GRACE_SECONDS."""
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline:
        try:
            done, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if done:
            deadline = time.monotonic() + GRACE_SECONDS
        else:
            for child in _children():
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(KEEP_LOOKING_SECONDS)


def _children() -> list[int]:
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                    found.append(int(name))
    return found


def _tell(status: int, line: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be left to be told
        os.write(status, line.encode(errors="replace") + b"\n")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main()
