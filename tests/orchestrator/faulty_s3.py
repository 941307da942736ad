"""A proxy in front of an S3 server that fails on purpose, as networks and busy servers do."""

from __future__ import annotations

import http.client
import random
import re
import threading
import time
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"

SKEWED = (
    b"<?xml version='1.0'?><Error><Code>RequestTimeTooSkewed</Code>"
    b"<Message>The difference between the request time and the current time is too large.</Message></Error>"
)
MOST_SKEW = 900.0


class FaultyS3:
    """Passes requests on to `server`, but for the faults that are set.

    Args:
        seed: of the choice of the requests that fail.
    """

    def __init__(self, server: str, seed: int = 0) -> None:
        self.refused = 0.0
        """Share of the requests that are answered 503 and not done."""
        self.denied = 0.0
        """Share of the PUT and DELETE requests that are done and answered 503."""
        self.cut = 0.0
        """Share of the answers with a body that end in the middle of it."""
        self.short = 0.0
        """The same, but the answer says that it is as long as what comes."""
        self.ahead = 0.0
        """So many seconds its clock is before that of this machine. Who signs for another time than within MOST_SKEW of its own
        is refused."""
        self.only = ""
        """A regular expression for the requests, `METHOD PATH?QUERY`, that these shares are of."""
        self.faults = 0
        """How many requests have failed so far."""
        self.away_until = 0.0
        """Until this `time.monotonic()` connections are closed without an answer."""
        self._upstream = urlsplit(server).netloc
        self._chance, self._guard = random.Random(seed), threading.Lock()
        self._listening = _Server(("127.0.0.1", 0), _Handler)
        self._listening.faulty = self
        self.url = f"http://127.0.0.1:{self._listening.server_port}"
        threading.Thread(target=self._listening.serve_forever, args=(0.05,), daemon=True).start()

    def mend(self) -> None:
        self.refused = self.denied = self.cut = self.short = 0.0

    def outage(self, seconds: float) -> None:
        """Nothing is answered for so long."""
        self.away_until = time.monotonic() + seconds

    def die(self) -> None:
        """From now on connections are refused, for good."""
        self.away_until = float("inf")
        self._listening.shutdown()
        self._listening.server_close()

    def hit(self, share: float, request: str) -> bool:
        with self._guard:
            hit = self._chance.random() < share and re.search(self.only, request) is not None
            self.faults += hit
        return hit

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._upstream, timeout=30)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    faulty: FaultyS3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        faulty = self.server.faulty
        body, request = self._body(), f"{self.command} {self.path}"
        if time.monotonic() < faulty.away_until:
            self.close_connection = True
        elif abs(self._skew()) > MOST_SKEW:
            self._answer(403, [("Content-Type", "application/xml"), ("Date", "")], SKEWED)
        elif faulty.hit(faulty.refused, request):
            self._answer(503, [("Content-Type", "application/xml")], SLOW_DOWN)
        else:
            status, headers, data = faulty.ask(self.command, self.path, body, dict(self.headers.items()))
            if self.command in ("PUT", "DELETE") and faulty.hit(faulty.denied, request):
                self._answer(503, [("Content-Type", "application/xml")], SLOW_DOWN)
            elif len(data) > 1 and faulty.hit(faulty.short, request):
                self._answer(status, headers, data[: len(data) // 2])
            else:
                self._answer(status, headers, data, cut=len(data) > 1 and faulty.hit(faulty.cut, request))

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _skew(self) -> float:
        """Seconds from the time that the request was signed for to that of the server."""
        signed = self.headers.get("x-amz-date")
        if signed is None:
            return 0.0
        at = datetime.strptime(signed, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        return time.time() + self.server.faulty.ahead - at.timestamp()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        del self.headers["Transfer-Encoding"]
        return b"".join(pieces)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length") or self.command == "HEAD":
                there = formatdate(time.time() + self.server.faulty.ahead, usegmt=True)
                self.send_header(name, there if name.lower() == "date" else value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data)))
        elif not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = self.close_connection or cut

    def log_message(self, format: str, *args: object) -> None:
        pass
