"""From a store to the files of its page, once or again and again while a study goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from analysis.figures import usual_style
from analysis.files import weights_of
from analysis.generators import MEASURES, numbers_of
from analysis.objectives import set_aside
from analysis.report import papers
from analysis.report.compare import side_by_side
from analysis.report.page import PAGE, Report, StudyPart, clear
from analysis.report.runs import FILES, FOLDER, RunFiles
from analysis.report.studies import studies_of
from analysis.report.told import Around, Say, unsaid
from analysis.report.unloaded import lacking
from analysis.results import Fitted, Measured, Results
from orchestrator.command.files import write_files
from orchestrator.store import Artifacts, MeasureTable, StoreError

LOOK_EVERY = 5.0
"""Seconds between two looks at a store that is followed."""
SHARE = 0.2
"""Of the time of one core that following may take at most: the rest belongs to the study."""
LOCAL = ("127.0.0.1", "localhost")
FROM_HERE = ("same-origin", "none")
"""What browsers say of a page that asks for its own files, and of an address that a person opens."""


@dataclass(slots=True)
class Builder:
    """Writes the page of a store into a folder. What has not changed since the last time is not made anew.

    Args:
        others: stores whose studies stand beside those of this one.
        every: an open page looks so often whether there is a new one; 0: never.
        all_questions: whether questions are answered however long this takes.
    """

    store: str
    out: Path
    tasks: Sequence[str] = ()
    others: Sequence[str] = ()
    every: float = 0.0
    all_questions: bool = False
    notices: list[str] = field(default_factory=list)
    """Lines about what could not be read, of the last page."""
    _files: RunFiles = field(default_factory=RunFiles)
    _studies: dict[str, StudyPart] = field(default_factory=dict)
    _fitted: Fitted = field(default_factory=Fitted)
    _measured: dict[str, Measured] = field(default_factory=dict)
    """By store."""
    _mark: object = None
    _shown: int = 0
    """Runs of the last page."""

    @usual_style()
    def build(
        self, results: Results | None = None, say: Say = unsaid, beside: Sequence[Results] | None = None
    ) -> tuple[Report, list[Path]]:
        """Read the store, answer, draw and write.

        Args:
            say: is given what goes on.
            beside: the results of `others`, if they are read already.

        Returns:
            The report and the files written, without those of single runs.

        Raises:
            StoreError: a store cannot be read.
            UserError: a task cannot be loaded.
        """
        say("reading the store", 0, 1)
        results = self._read(self.store) if results is None else results
        beside = self._beside() if beside is None else beside
        self._fitted.turn()
        told, notices = studies_of(results, _around(self.store, results), say)
        others, unread = {}, len(notices)
        for store, of_other in zip(self.others, beside, strict=True):
            others[store], more = studies_of(of_other, _around(store, of_other))
            notices += [*of_other.notices, *more]
        lacks = lacking(results, told, Artifacts(self.store).with_weights)
        self.notices = [*results.notices, *set_aside(results.runs), *notices, *lacks]
        report = Report.of(papers.PAPERS, results, told, side_by_side(told, others), self._studies, unread, say)
        told_of = (replace(part, told=replace(part.told, pictures=())) for part in report.studies)  # these hold runs
        self._studies = {part.told.id: part for part in told_of}
        files, self._files, self._mark = self._files, RunFiles(), None  # what could not be written is written at the next look
        say("writing the page", 0, 1)
        runs = files.of(results.runs, {one.id: one.keys for one in told})
        if runs:
            write_files(self.out / FOLDER, runs)
        clear(self.out / FOLDER, FILES, files.names)
        written = report.write(self.out, self.every)
        self._files, self._mark, self._shown = files, _marks_of(results, beside), len(results.runs)
        return report, written

    def follow(
        self,
        tell: Callable[[Report], None],
        wait: Callable[[float], object] = time.sleep,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Write the page whenever a store has something new or the page was removed, until interrupted. A store that is gone
        or cannot be read for a while is looked at again, and so it is if the page cannot be written.

        Args:
            tell: is given every report after the first.
            wait: waits for so many seconds.
            warn: is given the notices that were not there before.
        """
        known = set(map(_uncounted, self.notices))
        while True:
            wait(self.every)
            started, report, failed = time.process_time(), None, list[str]()
            results = beside = None  # before the next ones are read, as the runs of a store may fill much of the memory
            try:
                results = self._read(self.store)
                if not (self.out / PAGE).is_file():
                    self._files, self._mark = RunFiles(), None
                if self._shown and not results.runs:
                    gone = f"{self.store} has no runs any more; the page stays as it is, looking again"
                    failed = [*results.notices, gone]
                elif _marks_of(results, beside := self._beside()) != self._mark:
                    report = self.build(results, beside=beside)[0]
            except StoreError as error:
                failed = [f"{error}; looking again"]
            except OSError as error:
                failed = [f"the page could not be written into {self.out} ({error.strerror or error}); looking again"]
            notices = [*self.notices, *failed]
            for line in notices:
                if _uncounted(line) not in known:
                    warn(line)
            known = set(map(_uncounted, notices))
            if report is not None:
                tell(report)
            wait(max(0.0, (time.process_time() - started) * (1 / SHARE - 1) - self.every))

    def _beside(self) -> list[Results]:
        return list(map(self._read, self.others))

    def _read(self, store: str) -> Results:
        results = Results.of(store, self.tasks, self.all_questions, self._measured.setdefault(store, Measured()))
        return replace(results, fitted=self._fitted)


def _uncounted(notice: str) -> str:
    """A notice without the number that it may begin with, which grows while a study runs."""
    return notice.lstrip("0123456789,")


def _mark_of(results: Results) -> tuple[Any, ...]:
    """What changes with every run, question and measure, also if a run takes the place of one that failed."""
    runs = hash(frozenset((run["key"], run["finished_at"]) for run in results.runs))
    questions = tuple(question.name for question in results.questions)
    return len(results.runs), runs, questions, results.unanswered, len(results.table), results.damaged


def _marks_of(results: Results, beside: Sequence[Results]) -> tuple[Any, ...]:
    return tuple(map(_mark_of, (results, *beside)))


def _around(store: str, results: Results) -> Around:
    @cache
    def measured() -> Mapping[str, Mapping[str, float]]:
        return numbers_of(MeasureTable(store).rows(MEASURES, {run["key"] for run in results.runs}))

    return Around(measured, weights_of(store), results.fitted)


class _Files(SimpleHTTPRequestHandler):
    """The files of a folder, for this machine alone, and for no page that came from elsewhere."""

    def send_head(self) -> Any:
        # a page from elsewhere must not read them: neither if its name was pointed at this machine, nor as scripts of its own
        if self.headers.get("Host", "").partition(":")[0] not in LOCAL:
            return self.send_error(403, "ask for 127.0.0.1 or localhost")
        if self.headers.get("Sec-Fetch-Site", "none") not in FROM_HERE and not self._is_opened():
            return self.send_error(403, "open the address of this page itself")
        if not self._is_file():
            return self.send_error(404, "there is no such file")
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        super().end_headers()

    def _is_opened(self) -> bool:
        """Whether a person follows a link to a page, which the page with the link cannot read. In a frame it is no document."""
        return self.headers.get("Sec-Fetch-Mode") == "navigate" and self.headers.get("Sec-Fetch-Dest") == "document"

    def _is_file(self) -> bool:
        """Whether a file, or the page of a folder, is asked for that lies in the folder, also after links are followed."""
        path = self.translate_path(self.path)
        try:
            found = Path(path, PAGE if Path(path).is_dir() else "").resolve()
            return found.is_file() and found.is_relative_to(Path(self.directory).resolve())
        except (OSError, RuntimeError, ValueError):  # links in a circle, a name that is none
            return False

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
