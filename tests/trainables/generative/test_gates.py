"""What the gates of the chain ask of tokenizers and generators: every judge has to read enough, of pictures not seen."""

from __future__ import annotations

import pytest
import torch

from trainables.generative import generator_task, tokenizer_task
from trainables.generative.chain import tokenizer_of
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.tiers import generator
from trainables.generative.tokenizer_task import TokenizerTask
from trainables.task import Split

SHARES = {
    "probe": torch.tensor([0.75, 0.5, 1.0, 1.0]), "oracle": torch.tensor([0.8, 1.0, 0.7, 0.9]),
    "both": torch.tensor([0.75, 0.5, 0.7, 0.7]), "agree": torch.ones(4),
}  # fmt: skip
"""Of each of four compositions the share of pictures that is read right."""


def test_a_tokenizer_passes_the_compositions_of_which_each_judge_reads_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_task, "shares_right", lambda *_: SHARES)
    images, spec = torch.zeros(4, 2, 3, 16, 16), tokenizer_of(generator("smoke")).with_value("gate", 0.75)
    found = TokenizerTask().measure(spec, images, Split(images, images, images), {"probe": torch.nn.Identity()})
    assert found["correct"].tolist() == [True, False, False, True]


def test_a_generator_is_right_where_both_judges_read_enough_of_the_same_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator_task, "shares_right", lambda *_: SHARES)
    monkeypatch.setattr(generator_task, "pictures", lambda _, tokens: tokens)
    tokens, spec = torch.zeros(4, 2, 16, 12), generator("smoke", settings={"gate": 0.75})
    parents = {"tokenizer": torch.nn.Identity(), "probe": torch.nn.Identity()}
    found = GeneratorTask().measure(spec, tokens, Split(tokens, tokens, tokens), parents)
    assert found["correct"].tolist() == [True, False, False, False]


def test_a_tokenizer_is_judged_on_pictures_that_it_has_not_seen() -> None:
    spec = tokenizer_of(generator("smoke"))
    data, judged = TokenizerTask().data(spec), TokenizerTask().judged(spec)
    pictures = torch.cat([split.inputs.flatten(0, -4).flatten(1) for split in (data.train, data.held_out, *judged)])
    assert len(pictures.unique(dim=0)) == len(pictures)
