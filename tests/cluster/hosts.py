"""Machines for tests of real clusters, made of namespaces: on one bridge, each with processes, a /tmp, a home and a name of its
own, reached by ssh. Nothing leads out of their network. They end with the process that made them, however that ends."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import IO

from tests.conftest import ROOT

HOME = pwd.getpwuid(os.getuid()).pw_dir
TOOLS = ("ip", "nc", "nsenter", "rsync", "ssh", "ssh-keygen", "sshd", "unshare")
PATH = f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON = dict.fromkeys(os.path.realpath(path) for path in (sys.prefix, sys.base_prefix))
"""What every machine has installed: this environment, and the Python it is made of."""
SSH = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
SPACES = ("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc")

SCRIPT = str(Path(__file__).with_suffix(".sh"))


@cache
def missing() -> str | None:
    """Why there can be no such machines here."""
    if os.getuid() != 0:
        return "not root: only root may make network namespaces"
    if lacking := [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]:
        return f"not installed: {', '.join(lacking)} (openssh-server, rsync, netcat-openbsd, iproute2 and util-linux have them)"
    tried = subprocess.run([*SPACES, "--net", "ip", "link", "add", "lab", "type", "bridge"], capture_output=True, text=True)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else None


class Lab:
    """A network with a user's machine on it, which sees this checkout, and as many hosts as are added, which do not.

    Every host knows the others by name and lets in the user's key, `~/.ssh/id_ed25519`; all have this Python environment.
    """

    def __init__(self, folder: Path, *installed: Path) -> None:
        """The user's machine sees `folder` too, and all of them what is `installed`."""
        self._hosts: dict[str, subprocess.Popen[str]] = {}
        self._started: list[subprocess.Popen[str]] = []
        self._used = 1
        self._installed = [*PYTHON, *map(str, installed)]
        self._client = _machine(*SPACES, "--net", "bash", SCRIPT, "client", HOME, str(ROOT), str(folder), *self._installed)
        spaces = f"/proc/{self._client.pid}/ns"
        inside = {"net": "net", "mount": "mnt", "uts": "uts", "pid": "pid_for_children"}
        self._enter = ["nsenter", *(f"--{option}={spaces}/{space}" for option, space in inside.items()), "--"]

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._client)
        for host in self._hosts.values():
            _end(host)
        for process in self._started:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def add(self, *names: str) -> None:
        """Switch on new machines."""
        for name in names:
            self._used += 1
            address = f"10.77.0.{self._used}"
            self._hosts[name] = _machine(*self._enter, "bash", SCRIPT, "plug", name, address, str(ROOT), HOME, *self._installed)

    def lose(self, name: str) -> None:
        """End all processes of a machine at once. (With its link down first Ray would take a minute to notice.)"""
        _end(self._hosts.pop(name))

    def start(self, *words: str, output: IO[str] | int = subprocess.PIPE, **more: str) -> subprocess.Popen[str]:
        """Start a command on the user's machine, with `more` in its environment."""
        environment = [f"{name}={value}" for name, value in {"HOME": HOME, "PATH": PATH, "TERM": "dumb", **more}.items()]
        process = subprocess.Popen(
            [*self._enter, "env", "--ignore-environment", f"--chdir={ROOT}", *environment, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def run(self, *words: str, timeout: float = 300, code: int = 0, **more: str) -> str:
        """What a command on the user's machine printed; it must end with this exit code."""
        process = self.start(*words, **more)
        try:
            printed, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"still running after {timeout} s: {words}\n{process.communicate()[0]}") from None
        assert process.returncode == code, f"{words} ended with {process.returncode}:\n{printed}"
        return printed

    def ssh(self, name: str, command: str, timeout: float = 300, code: int = 0) -> str:
        """What a command on a host printed."""
        return self.run("ssh", *SSH, name, command, timeout=timeout, code=code)


def _machine(*words: str) -> subprocess.Popen[str]:
    """A machine that is up; it ends when its standard input does."""
    environment, pipe = {"PATH": PATH, "LC_ALL": "C"}, subprocess.PIPE
    process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if line == "ready\n":
            return process
    raise AssertionError(f"no machine: exit code {process.wait()}")


def _end(machine: subprocess.Popen[str]) -> None:
    machine.communicate()
