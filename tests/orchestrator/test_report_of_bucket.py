"""The page of a store in a bucket, on a machine that has no part in the study."""

from pathlib import Path

import pytest

from analysis import measure
from analysis.report.__main__ import app
from analysis.report.build import LOOK_EVERY, Builder
from orchestrator.command.cli import run
from orchestrator.store import ResultStore
from orchestrator.store.questions import save_question
from tests.analysis.test_report_page import Waiting, row, value_of
from tests.orchestrator.test_questions import QUESTION


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


@pytest.mark.parametrize("option", ["--store", "--with"])
def test_a_bucket_that_no_study_has_written_to_is_a_mistake(
    option: str, uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
    stores = {"--store": uri, option: f"{uri}-typo"}
    words = [word for pair in stores.items() for word in pair]
    assert run(app, [*words, "--out", str(tmp_path / "out"), "--no-measure"]) == 2
    told = f"error: {option} '{uri}-typo' has no runs: give the folder that a study wrote to\n"
    assert capsys.readouterr() == ("", told)
    assert not (tmp_path / "out").exists()


def test_a_bucket_that_is_mistyped_is_not_measured(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(measure.app, ["--store", f"{uri}-typo"]) == 2
    told = f"error: --store '{uri}-typo' has no runs: give the folder that a study wrote to\n"
    assert capsys.readouterr() == ("", told)


def test_a_study_in_a_bucket_that_has_asked_and_has_no_run_yet_has_a_page(uri: str, tmp_path: Path) -> None:
    with ResultStore(uri) as store:
        save_question(store, QUESTION)
    assert run(app, ["--store", uri, "--out", str(tmp_path), "--no-measure"]) == 0
    assert (tmp_path / "index.html").is_file()


def test_who_follows_a_bucket_without_runs_is_told(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Builder, "follow", ended)
    assert run(app, ["--store", uri, "--out", str(tmp_path), "--follow"]) == 0
    assert f"warning: --store {uri} has no runs yet; waiting for the first\n" in capsys.readouterr().err
