"""A small server of Google Cloud Storage: one bucket, for an account that may use its objects and not see the bucket itself.

As a command it serves, in a process of its own, since pyarrow lets no other thread run while it asks for the size of an object.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "sweeps"
ADDRESS = re.compile(rf"(?:/upload)?/storage/v1/b/{BUCKET}(/o)?(?:/([^/]+))?(?:/rewriteTo/b/{BUCKET}/o/([^/]+))?")
Fault = tuple[int, str, str]
"""Status, message and reason of an answer."""
NO_BUCKET = 404, "The specified bucket does not exist.", "notFound"
DENIED = 403, "a@p.iam.gserviceaccount.com does not have storage.buckets.get access to the bucket.", "forbidden"
INVALID = 401, "Invalid Credentials", "authError"


class FakeGcs:
    """The server, as a test sees it. It gives tokens at `url`/token."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.url = f"http://127.0.0.1:{process.stdout.readline().strip()}"

    def login(self) -> str:
        """What a file of credentials has."""
        words = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
        return json.dumps({**words, "token_uri": f"{self.url}/token"})

    def answer(self, fault: Fault | None = None, token: int = 200) -> None:
        """From now on answer this to all that is asked of the bucket, and with this status if asked for a token."""
        self._told({"fault": fault, "token": token})

    def empty(self) -> None:
        """As it was at first."""
        self._told({"fault": None, "token": 200, "empty": True})

    def requests(self) -> list[str]:
        """`METHOD PATH?QUERY` of all requests since the server was last told or asked anything, without those for tokens."""
        return list(self._told({})["asked"])

    def names(self) -> list[str]:
        return list(self._told({})["names"])

    def _told(self, settings: dict[str, Any]) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/settings", json.dumps(settings).encode()) as answer:
            told: dict[str, Any] = json.load(answer)
        return told


@contextlib.contextmanager
def fake_gcs() -> Iterator[FakeGcs]:
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield FakeGcs(process)
        finally:
            process.kill()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.uploads: dict[str, bytes] = {}
        self.settings: dict[str, Any] = {"fault": None, "token": 200}
        self.asked: list[str] = []

    def about(self, name: str) -> dict[str, Any]:
        data, at = self.objects[name]
        when = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at // 10**9))}.{at % 10**9:09}Z"
        numbers = {"size": str(len(data)), "generation": str(at), "metageneration": "1"}
        return {"kind": "storage#object", "bucket": BUCKET, "name": name, "updated": when, "timeCreated": when, **numbers}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        server, body = self.server, self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        if address.path == "/settings":
            server.settings.update(json.loads(body))
            if server.settings.pop("empty", False):
                server.objects.clear()
            asked, server.asked = server.asked, []
            return self._json({"asked": asked, "names": sorted(server.objects)})
        if address.path == "/token":
            return self._json({"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}, server.settings["token"])
        server.asked.append(f"{self.command} {self.path}")
        found = ADDRESS.fullmatch(address.path)
        if server.settings["fault"] or found is None:
            return self._fail(*(server.settings["fault"] or NO_BUCKET))
        if found[1] is None:
            return self._fail(*DENIED)
        name, target = unquote(found[2] or ""), unquote(found[3] or "")
        if "uploadType" in query:
            return self._upload(query["name"], body)
        if not name:
            prefix = query.get("prefix", "")
            there = [name for name in sorted(server.objects) if name.startswith(prefix)]
            if "delimiter" in query:
                there = [name for name in there if "/" not in name[len(prefix) :]]
            return self._json({"kind": "storage#objects", "items": [server.about(name) for name in there]})
        if name not in server.objects:
            return self._fail(404, f"No such object: {BUCKET}/{name}", "notFound")
        if target:
            server.objects[target] = server.objects[name][0], time.time_ns()
            size = server.about(target)["size"]
            return self._json({"done": True, "totalBytesRewritten": size, "objectSize": size, "resource": server.about(target)})
        if self.command == "DELETE":
            del server.objects[name]
            return self._answer(204)
        if query.get("alt") == "media":
            return self._answer(200, server.objects[name][0])
        return self._json(server.about(name))

    do_PUT = do_POST = do_DELETE = do_GET

    def _upload(self, name: str, body: bytes) -> None:
        """One that is begun with a POST, and brings its contents in pieces. The last one knows how many bytes there are."""
        server = self.server
        if self.command == "POST":
            server.uploads[name] = b""
            return self._answer(200, Location=f"http://{self.headers['Host']}{self.path}&upload_id=1")
        server.uploads[name] += body
        if self.headers["Content-Range"].endswith("/*"):
            return self._answer(308, Range=f"bytes=0-{len(server.uploads[name]) - 1}")
        server.objects[name] = server.uploads.pop(name), time.time_ns()
        return self._json(server.about(name))

    def _fail(self, status: int, message: str, reason: str) -> None:
        errors = [{"message": message, "domain": "global", "reason": reason}]
        self._json({"error": {"code": status, "message": message, "errors": errors}}, status)

    def _json(self, answer: dict[str, Any], status: int = 200) -> None:
        self._answer(status, json.dumps(answer).encode())

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # who reads a part of an object may hang up
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    serving = _Server()
    print(serving.server_port, flush=True)
    serving.serve_forever()
