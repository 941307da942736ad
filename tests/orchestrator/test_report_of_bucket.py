"""The page of a store in a bucket, on a machine that has no part in the study."""

from pathlib import Path

import pytest

from analysis.report.build import LOOK_EVERY, Builder
from orchestrator.store import ResultStore
from tests.analysis.test_report_page import Waiting, row, value_of


def test_a_study_in_a_bucket_is_followed_from_a_machine_that_only_reads(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultStore(uri) as training:
        training.append([row(1)])
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "laptop"))
        out, seen = tmp_path / "out", list[int]()
        builder = Builder(uri, out, every=LOOK_EVERY)
        assert builder.build()[0].runs == 1
        before = training.place.names("launches")
        steps = [lambda: training.append([row(2), row(3)]), lambda: None]
        with pytest.raises(KeyboardInterrupt):
            builder.follow(lambda report: seen.append(report.runs), Waiting(steps))
        assert training.place.names("launches") == before, "reading claims nothing"
    assert seen == [3]
    assert len(value_of((out / "runs" / "index.js").read_bytes())[1]["keys"]) == 3
    assert uri in (out / "index.html").read_text()
