"""What a tokenizer keeps: planted reconstructions, and planted codes of which some were seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import pytest
import torch
from torch import Tensor

from analysis.measures import tokens
from analysis.measures.quantity import Quantity
from analysis.measures.tokens import Judged, coverage_by, foreground, fresh, measure
from tests.analysis.planted import SETTINGS, Knowing, N, Pixels, planted_tokenizer
from trainables.generative.probe import blur
from trainables.generative.shapes import COMPOSITIONS, Scenes, bits_of, pool, render
from trainables.generative.tokenizers import Tokenizer


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "EACH", 16)


def numbers(quantities: Iterator[Quantity]) -> Mapping[str, float]:
    return {q.name: q.value for q in quantities if q.value is not None}


def test_reconstructions_that_are_the_pictures_are_all_read_right() -> None:
    found = {q.name: q for q in measure(planted_tokenizer(Pixels()))}
    shares = [f"{start}{judge}_{word}" for start in ("", "real_") for judge in ("probe", "both") for word in COMPOSITIONS]
    assert {name: found[name].value for name in shares} == dict.fromkeys(shares, 1.0)
    assert found["agree"].value == found["oracle_least"].value == found["probe_level2"].value == 1
    assert found["both_factors"].array is not None
    assert found["both_factors"].array.tolist() == [[1.0] * 3] * 8
    originals, again = (found[name].array for name in ("originals", "reconstructions"))
    assert originals is not None
    assert again is not None
    assert originals.shape == (8, tokens.SHOWN, 3, N, N)
    assert (originals == again).all()
    assert found["reconstructions_oracle"].array is not None
    assert (found["reconstructions_oracle"].array == bits_of(COMPOSITIONS)[:, None].numpy()).all()
    assert "unseen_pairs_111" not in found, "a vae has no codes"


def test_what_a_tokenizer_spoils_is_counted_where_it_is_spoiled() -> None:
    def no_blue(images: Tensor) -> Tensor:
        return images[:, [0, 1, 0]] if images[:, 2].mean() > images[:, 0].mean() else images

    found = numbers(measure(planted_tokenizer(Pixels(no_blue))))
    wanted = {"000": 1.0, "001": 0.0, "010": 1.0, "011": 0.0, "100": 1.0, "101": 0.0, "110": 1.0, "111": 0.0}
    assert {word: found[f"both_{word}"] for word in COMPOSITIONS} == wanted
    assert {word: found[f"real_both_{word}"] for word in COMPOSITIONS} == dict.fromkeys(COMPOSITIONS, 1.0)
    assert (found["both_seen"], found["both_level2"], found["both_least"]) == (0.75, 0, 0)
    soft = numbers(measure(planted_tokenizer(Pixels(lambda images: blur(images, torch.full((len(images),), 4.0))))))
    assert soft["oracle_seen"] == 0


def test_what_either_judge_says_is_kept_apart() -> None:
    """Of four pictures of each composition both read the first, the probe alone the second, the oracle alone the third."""
    right = bits_of(COMPOSITIONS)[:, None].expand(-1, 4, -1)
    probed, fitted = right.clone(), right.clone()
    probed[:, 2:, 0] = fitted[:, 1::2, 1:] = 2
    judged = Judged(probed, fitted)
    assert {name: shares.tolist() for name, shares in judged.shares().items()} == {
        "probe": [0.5] * 8, "oracle": [0.5] * 8, "both": [0.25] * 8, "agree": [0.5] * 8,
    }  # fmt: skip
    found = {q.name: q for q in judged.quantities(("000", "111"), "x_")}
    assert (found["x_both_level1"].value, found["x_agree"].value) == (0.25, 0.5)
    factors = {name: found[f"x_{name}_factors"].array for name in ("probe", "oracle", "both")}
    told = {name: array[5].tolist() for name, array in factors.items() if array is not None}
    assert told == {"probe": [0.5, 1, 1], "oracle": [1, 0.5, 0.5], "both": [0.5, 0.5, 0.5]}


def placed(x: float, y: float) -> Scenes:
    """A small disc with its centre there."""
    return Scenes(torch.zeros(1), torch.tensor([0.2]), torch.tensor([[0.8, 0.2, 0.2]]), torch.tensor([[x, y]]), torch.ones(1))


def test_the_foreground_are_the_tokens_whose_patch_the_figure_covers() -> None:
    assert foreground(SETTINGS, N, 4, placed(-0.75, 0.25)).nonzero().tolist() == [[0, 8]]  # third row, first column
    assert foreground(SETTINGS, N, 4, placed(0.0, -0.75)).nonzero().tolist() == [[0, 1], [0, 2]]


class Told(Pixels):
    """A tokenizer of 16 tokens that gives the codes it was told, one picture after the other."""

    side = 4

    def __init__(self, codes: Tensor) -> None:
        super().__init__()
        self.told = iter(codes)

    def codes(self, images: Tensor) -> Tensor:
        return torch.stack([next(self.told) for _ in images])


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (1, (0.0, 0.5, 0.5)),  # seen, but at the first place only
        (0, (0.0, 0.0, 0.0)),  # seen everywhere
        (2, (1.0, 1.0, 1.0)),  # never seen
    ],
)
def test_unseen_codes_and_unseen_pairs_are_counted_on_the_foreground(code: int, wanted: tuple[float, ...]) -> None:
    """Two pictures, whose figure is one token at the first and at the last place; the code of the background is never seen."""
    seen = torch.zeros(2, 16, dtype=torch.long)
    seen[0, 0] = 1
    told = torch.full((16, 16), 3)
    told[0::2, 0] = told[1::2, 15] = code
    both = [torch.cat(pair) for pair in zip(placed(-0.75, -0.75), placed(0.75, 0.75), strict=True)]
    scenes = [Scenes(*both)] * 8
    images = torch.stack([render(SETTINGS, N, one) for one in scenes])
    model: Tokenizer = Told(told)  # type: ignore[assignment]
    found = numbers(coverage_by(model, 4, seen, SETTINGS, scenes, images))
    assert tuple(found[f"unseen_{of}_111"] for of in ("codes", "pairs", "images")) == wanted
    assert len(found) == 24


def test_a_tokenizer_with_codes_is_told_what_its_training_pictures_cover() -> None:
    """Codes tell nothing but the colour here."""
    found = numbers(measure(planted_tokenizer(Pixels(kind="vq"))))
    assert found["codes_used"] == 2 / 16
    assert [found[f"unseen_images_{word}"] for word in ("000", "111")] == [0, 0]


def test_what_a_tokenizer_has_seen_are_its_training_pictures_of_seen_compositions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fresh picture has the code of these, so all are unseen."""
    monkeypatch.setattr(tokens, "EACH", 4)
    made = planted_tokenizer(Pixels(kind="vq"))
    made = dataclasses.replace(made, spec=dataclasses.replace(made.spec, seed=7, data_count=24))
    made = dataclasses.replace(made, model=Knowing(pool(SETTINGS, N, made.seen, 24, 7).images))
    found = numbers(measure(made))
    assert [found[f"unseen_codes_{word}"] for word in COMPOSITIONS] == [1.0] * 8


def test_fresh_pictures_of_means_differ_in_place_and_background_only() -> None:
    scenes, images = fresh(SETTINGS, N, 16, 0, "here", means=True)
    assert images.shape == (8, 16, 3, N, N)
    assert all(len(one.radius.unique()) == 1 and len(one.centre.unique()) > 16 for one in scenes)
    assert all(len(one.colour.unique(dim=0)) == 1 for one in scenes)
    jittered, _ = fresh(SETTINGS, N, 16, 0, "here")
    assert all(len(one.radius.unique()) == len(one.colour.unique(dim=0)) == 16 for one in jittered)
    assert torch.equal(jittered[3].centre, scenes[3].centre)
