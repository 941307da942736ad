"""Tokenizers: nearest codes, codes that follow their vectors, and latents that are standardised and lead back to pictures."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Generator, Tensor
from torch.nn import functional

from trainables.generative import codebook
from trainables.generative.codebook import FIRST_COUNT, LEAST_COUNT, ROUNDS, Codebook, k_means, nearest, straight_through
from trainables.generative.shapes import COMPOSITIONS, ShapeSettings, pool
from trainables.generative.tokenizers import COMMITMENT, PIXEL_VARIANCE, STAGES, Tokenizer
from trainables.task import Split
from trainables.training.seeds import stream


def images(count: int, N: int = 12) -> torch.Tensor:
    return pool(ShapeSettings(), N, COMPOSITIONS, count, 0).images


def batch_of(pictures: torch.Tensor) -> Split:
    return Split(pictures, pictures, pictures)


def tokenizer(kind: str = "vq", network: str = "linear", N: int = 12, stride: int = 4, codes: int = 10) -> Tokenizer:
    torch.manual_seed(0)
    made = Tokenizer(kind, network, N, stride, channels=5, width=6, codes=codes)
    made.start(images(40, N), stream(0, "test"))
    return made


def test_the_nearest_code_is_that_of_all_pairs() -> None:
    vectors, codes = (torch.randn(*shape, generator=stream(0, "vq", len(shape))) for shape in ((4, 9, 6), (30, 6)))
    book = Codebook(30, 6)
    book.codes.copy_(codes)
    found, index = book(vectors)
    for n in range(4):
        for t in range(9):
            distances = [(vectors[n, t] - code).norm().item() for code in codes]
            assert index[n, t] == distances.index(min(distances))
            assert torch.equal(found[n, t], codes[index[n, t]])


def test_gradients_pass_straight_through() -> None:
    vectors = torch.randn(3, 4, requires_grad=True)
    out = straight_through(vectors, torch.ones(3, 4))
    assert torch.allclose(out, torch.ones(3, 4))
    out.square().sum().backward()
    assert torch.allclose(vectors.grad, torch.full((3, 4), 2.0))


def test_codes_are_the_moving_means_of_their_vectors() -> None:
    book = Codebook(2, 1, decay=0.75)
    book.codes.copy_(torch.tensor([[0.0], [10.0]]))
    book.sums.copy_(book.codes * FIRST_COUNT)
    book(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.rand(1, 3))
    assert book.counts.tolist() == [0.75 * 16 + 0.25 * 2, 0.75 * 16 + 0.25]
    assert book.codes.flatten().tolist() == pytest.approx([1.0 / 12.5, (0.75 * 160 + 0.25 * 9) / 12.25])
    before = copy.deepcopy(book.state_dict())
    book(torch.tensor([[[1.0]]]))
    assert all(torch.equal(before[name], value) for name, value in book.state_dict().items()), "nothing moves without chances"


def test_a_code_that_is_not_used_goes_where_vectors_are_represented_worst() -> None:
    book = Codebook(3, 1, decay=0.5)
    book.codes.copy_(torch.tensor([[0.0], [50.0], [90.0]]))
    book.counts.fill_(1.5)
    vectors = torch.tensor([[[0.0]] * 9 + [[20.0]]])
    book(vectors, torch.full((1, 10), 0.5))
    assert book.codes[1].item() == 20
    assert book.codes[2].item() == 0, "none is drawn twice"
    assert book.counts.tolist() == [0.5 * 1.5 + 0.5 * 10, 2 * LEAST_COUNT, 2 * LEAST_COUNT]
    assert torch.allclose(book.sums, book.codes * book.counts[:, None])
    few = Codebook(4, 1)
    few.counts.zero_()
    few(torch.ones(1, 2, 1), torch.rand(1, 2))  # fewer vectors than codes
    assert few.codes.flatten().tolist() == [1, 1, 1, 1]


def test_k_means_finds_clusters_and_is_a_function_of_its_generator() -> None:
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    near = centres.repeat(25, 1) + 0.1 * torch.randn(100, 2, generator=stream(0, "points"))
    means, again = (k_means(near, 4, stream(0, "k-means")) for _ in range(2))
    assert torch.equal(means, again)
    assert torch.allclose(means[nearest(centres, means)], centres, atol=0.1)
    assert len(k_means(torch.ones(3, 2), 5, stream(0, "k-means"))) == 5  # fewer vectors than means


def test_codes_start_with_counts_that_are_their_shares_of_the_vectors() -> None:
    centres, book = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]]), Codebook(4, 2)
    book.start(centres.repeat_interleave(torch.tensor([10, 20, 30, 40]), 0), stream(0, "k-means"))
    shares = book.counts[nearest(centres, book.codes)] / (4 * FIRST_COUNT)
    assert shares.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert torch.equal(book.sums, book.codes * book.counts[:, None])


def plain_k_means(vectors: Tensor, K: int, generator: Generator) -> Tensor:
    """The same with all vectors and codes at once."""
    picks = torch.rand(K, generator=generator)
    means = vectors[(picks[:1] * len(vectors)).long()]
    error = (vectors - means).square().sum(1)
    for pick in picks[1:]:
        reach = error.double().cumsum(0)
        place = int(torch.searchsorted(reach, pick.double() * reach[-1]).clamp_max(len(vectors) - 1))
        means = torch.cat([means, vectors[place : place + 1]])
        error = torch.minimum(error, (vectors - means[-1]).square().sum(1))
    for _ in range(ROUNDS):
        chosen = functional.one_hot(nearest(vectors, means), K).to(vectors.dtype)
        uses = chosen.sum(0)[:, None]
        means = torch.where(uses > 0, chosen.t() @ vectors / uses.clamp_min(1), means)
    return means


@pytest.mark.parametrize(
    ("K", "count", "channels"),
    [pytest.param(96, 36864, 12, marks=pytest.mark.slow(2)), (32, 18432, 48), (500, 2048, 8), (1024, 2048, 4), (7, 5, 3)],
)
def test_usual_codebooks_start_as_they_always_did(K: int, count: int, channels: int) -> None:
    vectors = torch.randn(count, channels, generator=stream(0, "vectors"))
    assert torch.equal(k_means(vectors, K, stream(0, "k-means")), plain_k_means(vectors, K, stream(0, "k-means")))
    assert K * count <= codebook.AT_ONCE >= 1024 * 65536, "nothing is divided"


@pytest.mark.parametrize("at_once", [2**11, 2**13, 2**16])
def test_a_large_codebook_starts_in_parts(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = torch.randn(3000, 4, generator=stream(0, "vectors"))
    whole, parts = Codebook(300, 4), Codebook(300, 4)
    whole.start(vectors, stream(0, "k-means"))
    sizes: list[int] = []

    def watched(some: Tensor, codes: Tensor) -> Tensor:
        sizes.append(len(some) * len(codes))
        return nearest(some, codes)

    monkeypatch.setattr(codebook, "AT_ONCE", at_once)
    monkeypatch.setattr(codebook, "nearest", watched)
    parts.start(vectors, stream(0, "k-means"))
    assert max(sizes) <= max(at_once, 300)
    assert len(sizes) == (ROUNDS + 1) * math.ceil(3000 / max(1, at_once // 300))
    assert torch.allclose(parts.codes, whole.codes, atol=1e-5)
    assert torch.equal(parts.counts, whole.counts)
    uses, sums = codebook._sums(vectors, nearest(vectors, whole.codes), 300)
    chosen = functional.one_hot(nearest(vectors, whole.codes), 300).float()
    assert torch.equal(uses, chosen.sum(0)[:, None])
    assert torch.allclose(sums, chosen.t() @ vectors, atol=1e-5)


@pytest.mark.parametrize("kind", ["vq", "vae"])
@pytest.mark.parametrize("network", ["linear", "conv"])
@pytest.mark.parametrize("stride", sorted(STAGES))
def test_pictures_become_tokens_and_pictures_again(kind: str, network: str, stride: int) -> None:
    made = tokenizer(kind, network, 24, stride).eval()
    pictures = images(4, 24)
    latents = made.latents(pictures)
    assert latents.shape == (4, (24 // stride) ** 2, 5)
    assert torch.allclose(made.decode(latents), made(pictures))
    assert torch.equal(made(pictures.view(2, 2, 3, 24, 24)), made(pictures).view(2, 2, 3, 24, 24))
    if kind == "vq":
        assert torch.allclose(made.vectors(made.codes(pictures)), latents)
    else:
        with pytest.raises(ValueError, match=r"^a VAE has no codes: choose --encoding vq$"):
            made.codes(pictures)


def test_a_linear_token_knows_only_its_own_pixels() -> None:
    made = tokenizer("vae").eval()
    pictures = images(1).repeat(2, 1, 1, 1)
    pictures[1, :, 4:8, 8:12] = 0.3  # the sixth of nine patches
    one, other = made.latents(pictures)
    assert (one != other).any(1).tolist() == [token == 5 for token in range(9)]
    latents = torch.zeros(2, 9, 5)
    latents[1, 5] = 1
    one, other = made.decode(latents)
    differs = torch.zeros(12, 12, dtype=torch.bool)
    differs[4:8, 8:12] = True
    assert torch.equal((one != other).any(0), differs)


def test_the_losses_are_those_of_the_papers() -> None:
    pictures = images(6)
    vq, vae = (tokenizer(kind).eval() for kind in ("vq", "vae"))
    vectors = vq.encode(pictures)
    assert vq.codebook is not None
    quantised = vq.codebook.codes[nearest(vectors, vq.codebook.codes)]
    expected = (vq(pictures) - pictures).square().flatten(1).mean(1) / PIXEL_VARIANCE
    expected = expected + COMMITMENT * (vectors - quantised).square().flatten(1).mean(1)
    assert torch.allclose(vq.losses(batch_of(pictures), vq.draws(batch_of(pictures), stream(0, "d")), None), expected)
    draws = vae.draws(batch_of(pictures), stream(0, "d"))
    mean, log_variance = vae.encode(pictures).chunk(2, -1)
    drawn = torch.distributions.Normal(mean, (log_variance / 2).exp())
    divergence = torch.distributions.kl_divergence(drawn, torch.distributions.Normal(0, 1)).flatten(1).mean(1)
    decoded = vae.decode(mean + drawn.scale * draws[0])  # centre 0 and spread 1 so far
    expected = (decoded - pictures).square().flatten(1).mean(1) + 1e-3 * divergence
    assert torch.allclose(vae.losses(batch_of(pictures), draws, None), expected)


@pytest.mark.parametrize("kind", ["vq", "vae"])
def test_latents_are_standardised_while_it_learns(kind: str) -> None:
    made, pictures = tokenizer(kind), images(64)
    optimizer = torch.optim.SGD(made.parameters(), 0.0)
    before = copy.deepcopy(made.state_dict())
    for step in range(80):
        made.losses(batch_of(pictures), made.draws(batch_of(pictures), stream(0, step)), None).mean().backward()
        optimizer.step()
    made.eval()
    latents = made.latents(pictures).flatten(0, 1)
    assert latents.mean(0).abs().max() < 0.05
    spreads = latents.std(0, correction=0)
    assert spreads.square().mean().sqrt().item() == pytest.approx(1, abs=0.05)
    assert spreads.max() > 2 * spreads.min(), "one number scales them all"
    assert not torch.equal(before["centre"], made.centre)
    learned = copy.deepcopy(made.state_dict())
    made.losses(batch_of(pictures), made.draws(batch_of(pictures), stream(0, "look")), None)
    assert all(torch.equal(learned[name], value) for name, value in made.state_dict().items()), "a look changes nothing"


def test_how_far_the_means_of_channels_are_apart_does_not_count_as_variance() -> None:
    made, pictures = tokenizer("vae"), images(16)
    with torch.no_grad():
        made.encoder.bias[:5] += torch.tensor([-5.0, 0.0, 5.0, 0.0, 3.0])
        for step in range(200):
            made.losses(batch_of(pictures), made.draws(batch_of(pictures), stream(0, step)), None)
    latents = made.eval().latents(pictures).flatten(0, 1)
    assert latents.mean(0).tolist() == pytest.approx([0] * 5, abs=1e-3)
    assert latents.var(0, correction=0).mean().item() == pytest.approx(1, abs=1e-3)


def test_a_linear_tokenizer_starts_with_the_principal_components() -> None:
    made, pictures = tokenizer("vae"), images(40)
    rows = pictures.view(40, 3, 3, 4, 3, 4).permute(0, 2, 4, 1, 3, 5).reshape(-1, 48)
    lost = torch.linalg.svdvals((rows - rows.mean(0)).double())[5:].square().sum() / rows.numel()  # what 5 numbers cannot say
    assert (made(pictures) - pictures).square().mean().item() == pytest.approx(lost.item(), rel=1e-3)
    wide = Tokenizer("vq", "linear", 12, 2, channels=20, width=1, codes=4)  # more numbers than pixels
    wide.start(pictures, stream(0, "test"))


@pytest.mark.slow(2)
@pytest.mark.parametrize(("network", "least"), [("linear", 0.98), ("conv", 0.8)])
def test_a_tokenizer_learns_to_reconstruct(network: str, least: float) -> None:
    made, pictures = tokenizer(network=network, codes=40), images(200)
    optimizer = torch.optim.AdamW(made.parameters(), 3e-3, weight_decay=0)

    def lost() -> float:
        return ((made(pictures) - pictures).square().mean() / pictures.var()).item()

    first = lost()
    for step in range(60):
        optimizer.zero_grad()
        batch = batch_of(pictures[torch.randint(200, (32,), generator=stream(0, step))])
        made.losses(batch, made.draws(batch, stream(1, step)), None).mean().backward()
        optimizer.step()
    assert lost() < least * first


def test_a_code_is_renewed_by_what_is_worst_however_small_all_errors_are() -> None:
    vectors = torch.tensor([[[1e-3]] * 9 + [[0.1]]])
    for seed in range(20):
        book = Codebook(2, 1)
        book.codes.copy_(torch.tensor([[0.0], [50.0]]))
        book.counts[1] = 0
        book(vectors, torch.rand(1, 10, generator=stream(seed, "chances")))
        assert book.codes[1].item() == pytest.approx(0.1), "its error is ten thousand times that of each other"
