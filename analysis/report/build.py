"""From a store to the files of its page, once or again and again while a study goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from analysis.files import weights_of
from analysis.generators import MEASURES, numbers_of
from analysis.report import papers
from analysis.report.compare import side_by_side
from analysis.report.page import Report, StudyPart
from analysis.report.runs import FOLDER, RunFiles
from analysis.report.studies import studies_of
from analysis.report.told import Around
from analysis.results import Results
from orchestrator.command.files import write_files
from orchestrator.store import MeasureTable, StoreError

LOOK_EVERY = 5.0
"""Seconds between two looks at a store that is followed."""
SHARE = 0.2
"""Of the time of one core that following may take at most: the rest belongs to the study."""
LOCAL = ("127.0.0.1", "localhost")


@dataclass(slots=True)
class Builder:
    """Writes the page of a store into a folder. What has not changed since the last time is not made anew.

    Args:
        others: stores whose studies stand beside those of this one.
        every: an open page looks so often whether there is a new one; 0: never.
    """

    store: str
    out: Path
    tasks: Sequence[str] = ()
    others: Sequence[str] = ()
    every: float = 0.0
    notices: list[str] = field(default_factory=list)
    """Lines about what could not be read, of the last page."""
    _files: RunFiles = field(default_factory=RunFiles)
    _studies: dict[str, StudyPart] = field(default_factory=dict)
    _mark: object = None

    def build(self, results: Results | None = None) -> tuple[Report, list[Path]]:
        """Read the store, answer, draw and write.

        Returns:
            The report and the files written, without those of single runs.

        Raises:
            StoreError: a store cannot be read.
            UserError: a task cannot be loaded.
        """
        results = Results.of(self.store, self.tasks) if results is None else results
        told, notices = studies_of(results, _around(self.store))
        others = {}
        for store in self.others:
            of_other = Results.of(store, self.tasks)
            others[store], more = studies_of(of_other, _around(store))
            notices += [*of_other.notices, *more]
        self._mark = _mark_of(results)
        self.notices = [*results.notices, *notices]
        report = Report.of(papers.PAPERS, results, told, side_by_side(told, others), self._studies)
        self._studies = {part.told.id: part for part in report.studies}
        runs = self._files.of(results.runs, {one.id: one.keys for one in told})
        if runs:
            write_files(self.out / FOLDER, runs)
        return report, report.write(self.out, self.every)

    def follow(self, tell: Callable[[Report], None], wait: Callable[[float], object] = time.sleep) -> None:
        """Write the page whenever the store has something new, until interrupted. A store that cannot be read for a while is
        looked at again.

        Args:
            tell: is given every report after the first.
            wait: waits for so many seconds.
        """
        while True:
            wait(self.every)
            started = time.monotonic()
            try:
                results = Results.of(self.store, self.tasks)
                report = self.build(results)[0] if _mark_of(results) != self._mark else None
            except StoreError as error:
                self.notices = [f"{error}; looking again"]
                continue
            if report is not None:
                tell(report)
            wait(max(0.0, (time.monotonic() - started) * (1 / SHARE - 1) - self.every))


def _mark_of(results: Results) -> tuple[Any, ...]:
    """What changes with every run, question and measure."""
    latest = max((run["finished_at"] for run in results.runs), default=None)
    return len(results.runs), latest, tuple(question.name for question in results.questions), len(results.table)


def _around(store: str) -> Around:
    def measured() -> Mapping[str, Mapping[str, float]]:
        return numbers_of(MeasureTable(store).rows(MEASURES))

    return Around(measured, weights_of(store))


class _Files(SimpleHTTPRequestHandler):
    """The files of a folder, for browsers on this machine alone."""

    def do_GET(self) -> None:
        # a page from elsewhere whose name was pointed at this machine must not read them
        if self.headers.get("Host", "").rpartition(":")[0] not in LOCAL:
            return self.send_error(403, "ask for 127.0.0.1 or localhost")
        super().do_GET()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def list_directory(self, path: Any) -> None:
        self.send_error(404, "there is no such file")

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def served(folder: Path, port: int) -> Iterator[str]:
    """Serve the files of a folder to this machine; the address of its page. Port 0 takes any that is free.

    Raises:
        OSError: the port is taken.
    """
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Files, directory=str(folder)))
    thread = Thread(target=server.serve_forever, name="serve", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/index.html"
    finally:
        server.shutdown()
        server.server_close()
