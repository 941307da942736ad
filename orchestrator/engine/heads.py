"""The head of a cluster that a launch shall join: found on this machine, or given, and asked whether it answers.

Ray itself waits for minutes for one that does not, and obeys no signal meanwhile.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.errors import UserError, printable

CONNECT_SECONDS = 5.0
"""So long the head of a cluster may take to answer."""
OF_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
"""Hosts in whose place Ray takes the address that other machines know this one by."""


def answering(address: str) -> str:
    """The address that Ray shall join. For `auto` it is RAY_ADDRESS, as in Ray, or that of a head which this machine knows.

    Raises:
        UserError: nothing answers there, or what does is no head that this machine can join.
    """
    if address != "auto":
        _probe(f"--address {address!r}", address, "or auto, or local")
        return address
    if not (given := from_environment()):
        return _found()
    if given == "local":
        raise UserError("--address auto takes RAY_ADDRESS, which is 'local': unset it, or use --address local")
    _probe(f"RAY_ADDRESS={given!r}, which --address auto takes,", given, "or unset RAY_ADDRESS")
    return given


def from_environment() -> str:
    """What RAY_ADDRESS says, if anything; in it, too, `auto` means that Ray is to be found."""
    given = os.environ.get("RAY_ADDRESS", "")
    return "" if given == "auto" else given


def _probe(told: str, address: str, instead: str) -> None:
    """Whether a Ray head answers at an address.

    Args:
        told: how messages name the address.
        instead: what else the user can do than give another one.

    Raises:
        UserError: none does, or it is no address.
    """
    host, port = _parts_of(told, address, instead)
    try:
        is_head = _is_head(host, port)
    except (OSError, ValueError) as error:  # the latter of a name that is none
        raise UserError(f"{told} does not answer ({error}): give host:port of a Ray head, {instead}") from None
    if is_head is False:
        raise UserError(f"{told} is not the head of a Ray cluster, but something else: its port usually is 6379")
    if host in OF_THIS_MACHINE and (outside := _outside()) not in OF_THIS_MACHINE:
        try:
            is_head = _is_head(outside, port)
        except OSError:
            is_head = False
        if is_head is False:
            raise UserError(
                f"{told} belongs to another program, such as a study, and cannot be joined: give host:port of another, "
                f"{instead}"
            )
    if is_head is None:
        told += f" has said nothing for {CONNECT_SECONDS:g} s"
        print(f"warning: {told}: it is busy, or no Ray head; trying to join it", file=sys.stderr)


def _is_head(host: str, port: int) -> bool | None:
    with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
        return is_like_ray(connection)


def _found() -> str:
    """The address of a head that this machine knows, and that answers. It is that of the last `ray start`, if it still runs.

    Raises:
        UserError: there is none.
    """
    alone, silent = list[str](), list[str]()
    for address in _known_heads():
        try:
            _probe(f"--address 'auto' ({address})", address, "or local")
        except UserError:
            is_local = address.rpartition(":")[0].strip("[]") in OF_THIS_MACHINE
            (alone if is_local else silent).append(address)
        else:
            return address
    what_to_do = "start one with `ray start --head`, give host:port of a Ray head, or use local"
    kinds = {
        "the Ray of another study or program": alone,
        "what does not answer": silent,
        "the Ray of another user, which is not joined unless you name it": sorted(_running_heads(of_this_user=False)),
    }
    if not any(kinds.values()):
        raise UserError(f"--address auto found no Ray on this machine: {what_to_do}")
    only = " and ".join(f"{kind} ({', '.join(map(printable, some))})" for kind, some in kinds.items() if some)
    raise UserError(f"--address auto found no cluster that this machine can join, only {only}: {what_to_do}")


def _known_heads() -> list[str]:
    """Addresses of heads, by what the processes of Ray on this machine were given, and what the last `ray start` left. Ray
    itself looks there for "auto", and takes one that nobody else can join as well, or that another user has put there."""
    running, last = _running_heads(of_this_user=True), ""
    with suppress(OSError, UnicodeDecodeError):
        file = Path(_temporary()) / "ray" / "ray_current_cluster"
        found = file.lstat()
        if found.st_uid == os.getuid() and stat.S_ISREG(found.st_mode):
            last = file.read_text().strip()
    heads = [*([last] if last in running else []), *sorted(running), last]
    return list(dict.fromkeys(filter(None, heads)))


def _temporary() -> str:
    """Where Ray keeps its files by default, which is not TMPDIR on macOS."""
    return os.environ.get("RAY_TMPDIR") or (sys.platform == "linux" and os.environ.get("TMPDIR")) or "/tmp"


def _running_heads(*, of_this_user: bool) -> set[str]:
    """Addresses that processes of Ray on this machine were given: those of this user, or those of all others. A head is sent
    the token of whoever joins it, and anyone can start a process that looks like one of Ray. Root is one of the others: its
    programs that all may start, such as sudo, take any name and words."""
    running = set[str]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if (process.stat().st_uid == os.getuid()) is not of_this_user:
                continue
            program, _, words = (process / "cmdline").read_bytes().partition(b"\0")
            if os.path.basename(program) == b"raylet":  # noqa: PTH119 - bytes
                running |= {os.fsdecode(found) for found in re.findall(rb"--gcs-address=([^\s\0]+)", words)}
    return running


def _outside() -> str:
    """The address of this machine for others, as Ray sees it."""
    with silence():
        from ray.util import get_node_ip_address

        return str(get_node_ip_address())


def _parts_of(told: str, address: str, instead: str) -> tuple[str, int]:
    """Host and port of an address.

    Raises:
        UserError: it has none, or is that of a Ray client or of a dashboard.
    """
    if address.startswith("ray://"):
        raise UserError(f"{told} is for Ray clients: give host:port without ray://; the port usually is 6379")
    if "://" in address:
        raise UserError(f"{told} is for `ray job` or a browser: give host:port of the Ray head; the port usually is 6379")
    host, colon, port = address.rpartition(":")
    bare = address.strip("[]")
    if not colon or address.endswith("]") or _is_ip(bare):
        example = f"[{bare}]" if ":" in bare else bare or "localhost"
        raise UserError(f"{told} has no port: write host:port, for example {example}:6379, {instead}")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise UserError(f"{told} has the port {port!r}, which is no number from 1 to 65535: it usually is 6379")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_like_ray(connection: socket.socket) -> bool | None:
    """Whether what was connected to speaks HTTP/2, as gRPC does: it begins with a SETTINGS frame (RFC 9113, section 3.4). Ray
    itself would ask anything else for minutes. None if it has not answered in time, as a head that is busy does not. With TLS
    nothing can be told."""
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return True
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
    frame = b""
    try:
        while len(frame) < 4 and (more := connection.recv(4 - len(frame))):
            frame += more
    except TimeoutError:
        return None
    return frame[3:] == bytes((4,))


@contextmanager
def silence() -> Iterator[None]:
    """Nothing goes to stderr: what is not Python in Ray says every second there that it asks in vain."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
