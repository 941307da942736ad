"""Real pictures in the objectives study: what is refused, what a key has of them, and a small study of each data set."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.objectives import ONE_JUDGE
from orchestrator import conditioning, generator_checks, objectives
from orchestrator.command.cli import App
from orchestrator.command.stages import Stages
from orchestrator.engine.cluster import Cluster
from orchestrator.searches import Rows
from orchestrator.store import ResultStore
from tests.conftest import Command, check_refusal, read_rows
from tests.orchestrator.test_conditioning_study import study_of as study_of_app
from tests.orchestrator.test_objectives_study import SMALL, check_chain, study_of
from tests.trainables.generative.made_data import paths_of, write_celeba, write_clevrer
from trainables.generative import pictures
from trainables.generative.pictures import FEW, FOLDER
from trainables.generative.settings import REAL, RENDERED
from trainables.settings import value_of


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """The command says in its environment where the files lie."""
    before = os.environ.pop(FOLDER, None)
    yield
    os.environ.pop(FOLDER, None)
    if before is not None:
        os.environ[FOLDER] = before


@pytest.fixture(scope="module")
def celeba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_celeba(tmp_path_factory.mktemp("real") / "celeba")


def test_runs_have_the_content_of_the_files_and_not_their_folder(
    celeba: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(f"--tier smoke --dataset celeba --data {celeba}", monkeypatch)
    contents = {spec.option("content") for spec in study.specs}
    assert {spec.dataset for spec in study.specs} == {"celeba"}
    assert len(contents) == 1
    assert os.environ[FOLDER] == str(celeba)
    assert str(celeba) not in json.dumps([spec.to_dict() for spec in study.specs])
    moved = shutil.copytree(celeba, tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    again = study_of("--tier smoke --dataset celeba --data moved", monkeypatch)
    assert again.specs == study.specs
    assert os.environ[FOLDER] == str(moved), "workers may be in another folder"
    assert study.settings["dataset"] == "celeba"
    assert study.settings["content"] in contents
    toy = study_of("--dataset celeba --data moved", monkeypatch)
    assert {value_of(spec, "probe_torn") for spec in toy.specs} == {0.0}, "what a piece of a face shows stands nowhere else"


@pytest.mark.parametrize(
    ("split", "lacks"),
    [
        ("000,011", "a man (the first bit is 1)"),
        ("011,111", "a face that smiles (the second bit is 0) or black hair (the third bit is 0)"),
        ("100,000", "a face that does not smile (the second bit is 1) or blond hair (the third bit is 1)"),
        ("101,110", "a woman (the first bit is 0)"),
    ],
)
def test_a_class_that_no_seen_picture_has_is_told_in_words(
    split: str, lacks: str, celeba: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"--tier smoke --families dit --tokenizers vae --seeds 1 --dataset celeba --data {celeba} --split {split}"
    assert study_of(words, monkeypatch).notes[0].startswith(f"no seen composition has {lacks}: no model can learn")


@pytest.mark.parametrize(
    ("split", "lacks"),
    [
        ("000,011", "a sphere (the first bit is 1)"),
        ("110,100", "a cube (the first bit is 0) or a motion towards positive x (the third bit is 1)"),
        ("011,111", "an object of rubber (the second bit is 0) or a motion towards negative x (the third bit is 0)"),
        ("000,101", "an object of metal (the second bit is 1)"),
    ],
)
def test_a_class_that_no_seen_video_has_is_told_in_words(split: str, lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = study_of("--tier smoke --families dit --tokenizers vae --seeds 1", monkeypatch).specs
    [note] = generator_checks.never_seen(split, "clevrer", specs)
    assert note.startswith(f"no seen composition has {lacks}: no model can learn")


def test_every_data_set_has_words_for_its_classes() -> None:
    assert set(generator_checks.CLASSES) == {RENDERED, *REAL}


def test_rendered_pictures_are_the_default_and_say_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, named = (study_of(f"--tier smoke {words}", monkeypatch) for words in ("", "--dataset shapes2d"))
    assert plain.specs == named.specs
    assert FOLDER not in os.environ
    assert not any("content" in dict(spec.options) for spec in plain.specs)


def test_what_a_model_is_told_of_real_pictures_is_trained_once(celeba: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"--tier smoke --seeds 1 --families dit,mar --dataset celeba --data {celeba}"
    study = study_of_app(conditioning.app, words, monkeypatch)
    assert [(spec.decoder, spec.value("conditioning")) for spec in study.specs] == [
        (family, word) for family in ("dit", "mar") for word in ("full", "dropout")
    ]
    why = "as of pictures of celeba a model is told the means of classes in any case"
    assert study.notes == [
        f"left out: quantised, which is the same as full, {why}", f"left out: both, which is the same as dropout, {why}",
    ]  # fmt: skip
    only = study_of_app(conditioning.app, f"{words} --conditionings full,dropout", monkeypatch)
    assert (only.specs, only.notes) == (study.specs, [])


@pytest.mark.parametrize(
    ("app", "words", "hint"),
    [
        (conditioning.app, "--conditionings quantised,dropout", "--conditionings quantised is the same as full here, as of p"),
        (objectives.app, "--option conditioning=both", "--option conditioning=both is the same as dropout here, as of pic"),
    ],
)  # fmt: skip
def test_a_conditioning_that_is_another_one_on_real_pictures_is_refused(
    app: App, words: str, hint: str, celeba: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    check_refusal(app, [*f"--tier smoke --dataset celeba --data {celeba}".split(), *words.split()], hint, tmp_path, capsys)


@pytest.mark.slow(6)
def test_a_plan_reads_few_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_celeba(tmp_path / "celeba", train=6, test=5)
    read: set[Any] = set()
    reader = pictures.READERS["celeba"]
    monkeypatch.setitem(pictures.READERS, "celeba", lambda source, N: read.add(source) or reader(source, N))
    pictures._read.cache_clear()
    study = study_of(f"--tier smoke --seeds 1 --dataset celeba --data {folder}", monkeypatch)
    with ResultStore(tmp_path / "store") as store:
        rows = Rows()
        _, work = Stages(study.task, study.search, study.question, store, rows, gates=False).plan(*study.plan(rows))
    assert work
    assert 0 < len(read) <= 2 * FEW * 8, "of two parts and eight compositions"


def damaged(celeba: Path, folder: Path, change: Callable[[Path], object]) -> Path:
    copy = Path(shutil.copytree(celeba, folder))
    change(copy)
    return copy


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--dataset faces", "--dataset 'faces' is unknown: choose shapes2d, celeba or clevrer"),
        ("--dataset celeba", "--dataset celeba needs its files: add --data FOLDER"),
        ("--data {celeba}", "--data is for real pictures, and shapes2d is rendered: add --dataset celeba or clevrer"),
        ("--dataset celeba --data {celeba}/nowhere", "is not a folder: give the one with the files of celeba"),
        ("--dataset celeba --data {celeba}/list_attr_celeba.txt", "is not a folder: give the one with the files of celeba"),
        ("--dataset celeba --data {celeba}/img_align_celeba", "list_eval_partition.txt cannot be found (No such file or di"),
        ("--dataset clevrer --data {celeba}", "has no annotation_train/annotation_00000-01000/annotation_00000.json: unpack"),
        ("--dataset celeba --data {celeba} --shape square", "rendered figures: omit it, or omit --dataset celeba and --data"),
        ("--dataset celeba --data {celeba} --radius-small 0.4", "--radius-small is for rendered figures: omit it"),
        ("--dataset celeba --data {celeba} --option faint=colour", "--option faint is for rendered figures: omit it"),
        ("--dataset celeba --data {celeba} --option probe_lessons=checked", "--option probe_lessons is for rendered figures: "),
        ("--dataset celeba --data {celeba} --option probe_torn=0.1", "--option probe_torn is for rendered figures: omit it"),
        ("--option dataset=celeba", "--option dataset has an option of its own: use --dataset"),
        ("--option content=0", "--option content has an option of its own: use --data"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_writes_nothing(
    words: str, hint: str, celeba: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(objectives.app, ["--tier", "smoke", *words.format(celeba=celeba).split()], hint, tmp_path, capsys)
    assert FOLDER not in os.environ


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda folder: (folder / "list_attr_celeba.txt").unlink(), "list_attr_celeba.txt cannot be found (No such file"),
        (lambda folder: (folder / "img_align_celeba" / "000001.jpg").unlink(), "000001.jpg cannot be found (No such file"),
        (lambda folder: (folder / "list_attr_celeba.txt").write_text("[red]" * 999), "list_attr_celeba.txt, line 2, names no"),
        (lambda folder: shutil.rmtree(folder / "img_align_celeba"), "000001.jpg cannot be found (No such file or directory)"),
    ],
)  # fmt: skip
def test_damaged_files_are_one_line_and_nothing_is_written(
    change: Callable[[Path], object], hint: str, celeba: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    folder = damaged(celeba, tmp_path / "damaged", change)
    check_refusal(objectives.app, ["--tier", "smoke", "--dataset", "celeba", "--data", str(folder)], hint, here, capsys)


def test_a_damaged_picture_is_one_line_of_the_plan(
    celeba: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    folder = damaged(celeba, tmp_path / "damaged", spoil)
    words = ["--tier", "smoke", "--dataset", "celeba", "--data", str(folder), "--dry-run"]
    check_refusal(objectives.app, words, "jpg cannot be read (image file is truncated", here, capsys)


def spoil(folder: Path) -> None:
    """Zeros in the second half of some pictures, whose files stay as large as they were."""
    for name in ("000001.jpg", "000009.jpg", "000017.jpg"):
        path = folder / "img_align_celeba" / name
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def test_the_workers_of_a_cluster_are_told_where_the_files_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    found: list[dict[str, Any]] = []

    def init(**about: Any) -> None:
        found.append(about)
        raise ConnectionError("no. it is a test")

    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_CHDIR_TO_TRIAL_DIR", "PYTHONPATH", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
        monkeypatch.setenv(name, os.environ.get(name, "0"))  # put back afterwards
    monkeypatch.setenv(FOLDER, "/data/celeba")
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(Exception, match="cannot be joined"), Cluster("127.0.0.1:1", 1).connected():
        pass
    variables = found[0]["runtime_env"]["env_vars"]
    assert variables[FOLDER] == "/data/celeba"
    assert variables.keys() - {name for name in variables if name.startswith("SWEEP_")} == {"PYTHONPATH"}


def check_small(first: Command, tmp_path: Path, dataset: str) -> None:
    """A study of three generators of real pictures with what they need, from its output and its files."""
    answer, rows = check_chain(first, tmp_path)
    for one in answer["runs"]:
        assert one["seen_probe"] == one["seen_both"] is not None
        assert [one[name] for name in ("seen_oracle", "agree", "oracle_real", "oracle_tokens")] == [None] * 4
        assert 0 <= one["probe_real"] <= 1
    assert answer["settings"]["dataset"] == dataset
    assert ONE_JUDGE in first.stderr.replace("\n", " ").replace("  ", " ")
    assert set(rows["dataset"]) == {dataset}


@pytest.mark.slow(30)
def test_a_small_study_of_faces_goes_on_after_the_folder_was_moved_and_is_in_the_report(
    here: Callable[..., Command], celeba: Path, tmp_path: Path
) -> None:
    shutil.copytree(celeba, tmp_path / "faces")
    check_small(here(*SMALL, "--dataset", "celeba", "--data", "faces", "--json", study="objectives"), tmp_path, "celeba")
    (tmp_path / "faces").rename(tmp_path / "moved")
    second = here(*SMALL, "--dataset", "celeba", "--data", "moved", study="objectives")
    assert second.wait() == 0, second.stderr
    assert "0 runs trained" in second.stdout
    assert len(read_rows(tmp_path)) == 6
    report = here("--store", "results", "--out", "report", study="analysis.report")
    assert report.wait() == 0, report.stderr
    claims = {one["id"]: one for one in json.loads((tmp_path / "report" / "claims.json").read_text())}
    assert (claims["abrupt-on-vq"]["verdict"], claims["abrupt-on-vq"]["seeds"]) == ("not enough runs", 0)
    assert "gate 1 is not known of 1" in (tmp_path / "report" / "index.html").read_text()
    assert not (tmp_path / "results" / "measures").exists(), "measures render pictures to compare with"


@pytest.mark.slow(15)
def test_a_small_study_of_videos(here: Callable[..., Command], tmp_path: Path) -> None:
    pytest.importorskip("av", reason="videos need PyAV: pip install '.[video]'")
    write_clevrer(tmp_path / "videos")
    check_small(here(*SMALL, "--dataset", "clevrer", "--data", "videos", "--json", study="objectives"), tmp_path, "clevrer")
    annotation, _ = paths_of(tmp_path / "videos", 990)
    annotation.write_text("{")
    second = here(*SMALL, "--dataset", "clevrer", "--data", "videos", study="objectives")
    assert second.wait() == 2
    assert second.stderr.startswith(f"error: {annotation} is no JSON (")
    assert second.stderr.count("\n") == 1


@pytest.mark.slow(20)
def test_a_picture_that_only_workers_see_to_be_damaged_ends_the_launch_and_fails_no_run(
    here: Callable[..., Command], join: Callable[..., Command], celeba: Path, tmp_path: Path
) -> None:
    faces = damaged(celeba, tmp_path / "faces", spoil)
    words = (*SMALL, "--families", "dit", "--tokenizers", "vae", "--dataset", "celeba", "--data", "faces")
    first = here(*words, study="objectives")
    assert first.wait() == 1, first.stderr
    *_, stopped, resume = first.stdout.splitlines()
    assert "jpg cannot be read (image file is truncated" in stopped
    assert stopped.startswith("stopped: on ")
    assert "to continue: " in resume
    assert "Traceback" not in first.stdout + first.stderr
    assert read_rows(tmp_path).empty
    shutil.rmtree(faces)
    shutil.copytree(celeba, faces)
    second = join(*words, study="objectives")
    assert second.wait() == 0, second.stderr
    assert list(read_rows(tmp_path)["status"]) != ["failed"] * 3
    assert len(read_rows(tmp_path)) == 3
