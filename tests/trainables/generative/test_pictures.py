"""Real pictures as the three tasks take them: which a run learns from, which it is judged by, and what it says of its files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.trainables.generative.made_data import colour_of, write_celeba
from trainables.check import check_task
from trainables.generative import generator_task
from trainables.generative.album import TEST, TRAIN, Source
from trainables.generative.chain import probe_of, tokenizer_of
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.judge import shares_right
from trainables.generative.pictures import FEW, FOLDER, album_in, bundles, few, lessons, pool
from trainables.generative.probe import KINDS_OF_OTHERS, UNCLEAR, Probe
from trainables.generative.probe_task import ProbeTask
from trainables.generative.settings import OF_WHICH, GeneratorSettings, ProbeSettings
from trainables.generative.shapes import COMPOSITIONS, Pictures, bits_of, class_conditions, class_values, conditions
from trainables.generative.tiers import generator
from trainables.generative.tokenizer_task import TokenizerTask
from trainables.settings import read_settings, value_of, with_values
from trainables.spec import RunSpec, run_key
from trainables.task import Split, load_task
from trainables.training.run import UnfitError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_celeba(tmp_path_factory.mktemp("pictures") / "celeba")


@pytest.fixture
def spec(folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    """A generator of the smoke tier on made faces, whose folder is known here."""
    monkeypatch.setenv(FOLDER, str(folder))
    return generator("smoke", 0, {"dataset": "celeba", "content": album_in("celeba", folder).content, "fit": "all"})


@pytest.fixture
def settings(spec: RunSpec) -> GeneratorSettings:
    return read_settings(GeneratorSettings, spec)


def right(images: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Which flat pictures (n, 3, N, N) have the colour of their composition."""
    wanted = torch.tensor([colour_of("".join(map(str, word))) for word in bits.tolist()]) / 255
    return (images - wanted[:, :, None, None]).abs().flatten(1).amax(1) <= 3 / 255


def test_pictures_of_compositions_take_turns_and_are_told_as_rendered_ones_are(settings: GeneratorSettings) -> None:
    made = pool(settings, 16, ("011", "100"), 6, 0)
    assert made.images.shape == (6, 3, 16, 16)
    assert made.images.dtype == torch.float32
    assert torch.equal(made.bits, bits_of(("011", "100") * 3))
    assert right(made.images, made.bits).all()
    assert made.conditions.shape == (6, 5)
    assert torch.equal(made.conditions, conditions(settings, class_values(settings, made.bits)))
    assert made.conditions[0, 0] == 0
    assert made.conditions[:2, 1].tolist() == pytest.approx([-1, 1])


def test_a_larger_pool_begins_with_a_smaller_one_and_begins_again_at_its_end(
    settings: GeneratorSettings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    album = album_in("celeba", folder)
    number = {source: i for sources in album.pictures.values() for i, source in enumerate(sources)}
    monkeypatch.setattr(
        "trainables.generative.pictures._read",
        lambda _, source, N: torch.full((3, N, N), number[source], dtype=torch.uint8).numpy(),
    )

    def order(count: int, seed: int, name: str = "pool", words: tuple[str, ...] = ("110",)) -> list[int]:
        return (255 * pool(settings, 4, words, count, seed, name).images[:, 0, 0, 0]).round().int().tolist()

    assert sorted(order(3, 0)) == [0, 1, 2]
    assert order(2, 0) == order(8, 0)[:2]
    assert order(9, 0) == 3 * order(3, 0)
    assert len({tuple(order(3, seed)) for seed in range(10)}) > 1
    assert sorted(order(4, 0, "judged")) == [0, 0, 1, 1], "two pictures are for tests"
    taking_turns = order(4, 0, "judged", COMPOSITIONS[:2])
    assert [sorted(taking_turns[i::2]) for i in range(2)] == [[0, 1], [0, 1]]


def test_where_a_run_is_only_timed_few_files_are_read_for_as_many_pictures(
    settings: GeneratorSettings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[Source] = set()
    monkeypatch.setattr(
        "trainables.generative.pictures._read",
        lambda _, source, N: read.add(source) or torch.zeros(3, N, N, dtype=torch.uint8).numpy(),
    )

    def made() -> tuple[Pictures, int]:
        read.clear()
        return pool(settings, 4, COMPOSITIONS, 40, 0), len(read)

    whole, of_all = made()
    with few():
        soon, of_few = made()
    assert (of_all, of_few) == (3 * 8, FEW * 8)
    assert soon.images.shape == whole.images.shape
    assert torch.equal(soon.conditions, whole.conditions)
    assert torch.equal(soon.bits, whole.bits)
    assert made()[1] == of_all


def test_runs_learn_from_one_part_and_are_judged_by_the_other(
    settings: GeneratorSettings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    album = album_in("celeba", folder)
    part_of = {source: part for (part, _), sources in album.pictures.items() for source in sources}
    monkeypatch.setattr(
        "trainables.generative.pictures._read",
        lambda _, source, N: read.append(part_of[source]) or torch.zeros(3, N, N, dtype=torch.uint8).numpy(),
    )

    def parts() -> set[str]:
        found, read[:] = set(read), []
        return found

    pool(settings, 4, COMPOSITIONS, 8, 0)
    assert parts() == {TRAIN}
    for name in ("held out", "generator held out", "probe judged", "tokenizer judged"):
        pool(settings, 4, COMPOSITIONS, 8, 0, name)
        assert parts() == {TEST}
    bundles(settings, 4, COMPOSITIONS, 2, 0, "tokenizer judged")
    assert parts() == {TEST}
    lessons(settings, 16, 80, 0)
    assert parts() == {TRAIN}
    lessons(settings, 16, 80, 0, "held out")
    assert parts() == {TEST}


def as_they_are(spec: RunSpec, made: Pictures, tokenizer: torch.nn.Module) -> Split:
    """In place of `tokens_of`."""
    return Split(made.conditions, made.images, made.bits)


def test_every_task_learns_from_one_part_and_is_judged_by_the_other(
    spec: RunSpec, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    album = album_in("celeba", folder)
    white = {source for (part, _), sources in album.pictures.items() if part == TEST for source in sources}
    monkeypatch.setattr(
        "trainables.generative.pictures._read", lambda _, source, N: np.full((3, N, N), 255 * (source in white), np.uint8)
    )
    monkeypatch.setattr(generator_task, "tokens_of", as_they_are)
    generated = GeneratorTask().data(spec, {"tokenizer": torch.nn.Identity()})
    assert [split.targets.unique().tolist() for split in generated] == [[0], [1]]
    tokenized, tokenizer = TokenizerTask(), tokenizer_of(spec)
    assert [split.inputs.unique().tolist() for split in tokenized.data(tokenizer)] == [[0], [1]]
    assert [split.inputs.unique().tolist() for split in tokenized.judged(tokenizer)] == [[1], [1]]
    probed, probe = ProbeTask(), probe_of(spec)
    sharp = 2 * len(COMPOSITIONS)
    assert [split.inputs[:sharp].unique().tolist() for split in probed.data(probe)] == [[0], [1]]
    assert [split.inputs.unique().tolist() for split in probed.judged(probe)] == [[1], [1]]


def test_rendered_pictures_that_a_generator_is_held_against_have_scenes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = generator("smoke")
    settings = read_settings(GeneratorSettings, spec)
    monkeypatch.setattr(generator_task, "tokens_of", as_they_are)
    data = GeneratorTask().data(spec, {"tokenizer": torch.nn.Identity()})
    learned, held_out = ((split.inputs - class_conditions(settings, split.truth))[:64, 1] for split in data)
    assert len(torch.cat([learned, held_out]).mul(1e5).round().unique()) > 120, "sizes of their own"


def test_a_composition_is_one_sample_that_is_judged(settings: GeneratorSettings) -> None:
    made = bundles(settings, 16, COMPOSITIONS, 3, 0, "judged")
    assert made.images.shape == (8, 3, 3, 16, 16)
    assert torch.equal(made.bits, bits_of(COMPOSITIONS)[:, None].expand(-1, 3, -1))
    assert right(made.images.flatten(0, 1), made.bits.flatten(0, 1)).all()


def test_a_probe_is_taught_what_is_unclear_in_real_pictures(settings: GeneratorSettings) -> None:
    count = 8 * len(KINDS_OF_OTHERS) * 3
    images, classes = lessons(settings, 16, count + 5, 0)
    assert images.shape == (count + 5, 3, 16, 16)
    assert 0 <= images.min() <= images.max() <= 1
    kind = torch.arange(count + 5) // 8 % len(KINDS_OF_OTHERS)
    clear = torch.tensor([KINDS_OF_OTHERS[k] in ("sharp", "worn") for k in kind])
    wanted = bits_of(COMPOSITIONS)[torch.arange(count + 5) % 8]
    assert torch.equal(classes[clear], wanted[clear])
    assert (classes[~clear] == UNCLEAR).all()
    sharp = torch.tensor([KINDS_OF_OTHERS[k] == "sharp" for k in kind])
    assert right(images[sharp], wanted[sharp]).all()
    faded = torch.tensor([KINDS_OF_OTHERS[k] == "faded" for k in kind])
    assert not right(images[faded], wanted[faded]).any(), "faded into one of the same composition"
    assert len(images[faded].flatten(1).unique(dim=0)) > 20
    for seed in range(8):  # the last ones are faded, and those that would follow are not there
        cut_off, _ = lessons(settings, 16, 29, seed)
        assert not right(cut_off[24:], wanted[24:29]).any()
    few, _ = lessons(settings, 16, 40, 0)
    assert torch.equal(few[:16], images[:16])


def test_the_probe_alone_judges_real_pictures(settings: GeneratorSettings) -> None:
    made = bundles(settings, 16, COMPOSITIONS, 2, 0, "judged")
    probe = Probe("cnn", 16, 4)
    found = shares_right(settings, probe, made.images, made.bits)
    assert found.keys() == {"probe", "both"}
    assert torch.equal(found["probe"], found["both"])
    rendered = dataclasses.replace(settings, dataset="shapes2d", content="")
    assert shares_right(rendered, probe, made.images, made.bits).keys() == {"probe", "oracle", "both", "agree"}


def test_the_pictures_of_a_run_are_those_of_the_runs_that_it_needs(spec: RunSpec) -> None:
    content = spec.option("content")
    for parent in (tokenizer_of(spec), probe_of(spec), probe_of(tokenizer_of(spec))):
        assert (parent.dataset, parent.option("content")) == ("celeba", content)
    assert probe_of(spec) == probe_of(tokenizer_of(spec))
    other = with_values(spec, {"content": "0" * 24})
    keys = {run_key(one, "1") for of in (spec, other) for one in (of, tokenizer_of(of), probe_of(of))}
    assert len(keys) == 6
    assert "/" not in str(spec.to_dict()), "a path is in the key"


def test_rendered_pictures_do_not_carry_the_setting() -> None:
    rendered = generator("smoke")
    for one in (rendered, tokenizer_of(rendered), probe_of(rendered)):
        assert one.dataset == "shapes2d"
        assert "content" not in dict(one.options)
        assert value_of(one, "content") == ""


def test_content_without_files_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^content is that of files, and shapes2d is rendered: omit it, or "):
        generator("smoke", 0, {"content": "0" * 24})


@pytest.mark.slow(4)
def test_the_tasks_are_what_a_study_asks_for(spec: RunSpec) -> None:
    for one in (probe_of(spec), tokenizer_of(spec), spec):
        check_task(load_task(one.task), one)


def test_a_generator_is_asked_for_all_compositions_and_its_pictures_matter(spec: RunSpec) -> None:
    task = load_task(spec.task)
    assert isinstance(task, GeneratorTask)
    assert torch.equal(task.judged(spec).held_out.truth[:, 0], bits_of(COMPOSITIONS))
    assert task.matters({name: value_of(spec, name) for name in OF_WHICH}) >= {"dataset", "content"}


def test_files_that_are_not_here_or_not_those_of_the_run_are_one_line(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = read_settings(ProbeSettings, probe_of(spec))
    monkeypatch.delenv(FOLDER)
    with pytest.raises(UnfitError, match=r"^where the files of celeba lie is not known here: set SWEEP_DATA to their folder$"):
        pool(probe, 16, COMPOSITIONS, 8, 0)
    monkeypatch.setenv(FOLDER, str(tmp_path / "gone"))
    with pytest.raises(UnfitError, match=r"gone is no folder on this machine, and has the files of celeba: copy or mount them"):
        pool(probe, 16, COMPOSITIONS, 8, 0)
    other = write_celeba(tmp_path / "other", train=2)
    monkeypatch.setenv(FOLDER, str(other))
    with pytest.raises(UnfitError, match=r"other has other files of celeba than the run is of \([0-9a-f]{24}, not "):
        pool(probe, 16, COMPOSITIONS, 8, 0)


def test_a_data_set_that_was_moved_is_the_same(spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_settings(ProbeSettings, probe_of(spec))
    before = pool(settings, 16, COMPOSITIONS, 16, 0)
    monkeypatch.setenv(FOLDER, str(write_celeba(tmp_path / "moved")))
    after = pool(settings, 16, COMPOSITIONS, 16, 0)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
