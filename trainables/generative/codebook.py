"""Vector quantisation (van den Oord et al. 2017, arXiv 1711.00937): the nearest of K codes, learned as moving means.

A codebook begins with k-means. A code that is hardly used is put where vectors are represented worst. All that is random comes
in as an argument, and all that changes is a buffer: a run is a pure function of its seed, and runs may be packed.

Shapes in comments: n samples of T tokens, vectors of d numbers, K codes.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

ROUNDS = 10
"""Of Lloyd's algorithm."""
FIRST_COUNT = 16.0
"""Mean use of a code that the moving counts begin with."""
LEAST_COUNT = 1.0
"""A code with a moving count under this, in uses a batch, is renewed; and then counts twice as much."""
AT_ONCE = 2**26
"""Pairs of a vector and a code that a start looks at together, as many as 1,024 codes and 65,536 vectors are: more would take
too much memory."""


class Codebook(nn.Module):
    """K code vectors, `codes` (K, d), each the moving mean of the vectors that it is nearest to (appendix A.1 of the paper)."""

    codes: Tensor
    counts: Tensor
    sums: Tensor

    def __init__(self, codes: int, channels: int, decay: float = 0.95) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.zeros(codes, channels))
        self.register_buffer("counts", torch.full((codes,), FIRST_COUNT))
        self.register_buffer("sums", torch.zeros(codes, channels))

    @torch.no_grad()
    def start(self, vectors: Tensor, generator: Generator) -> None:
        """Put the codes at the k-means of vectors (m, d)."""
        self.codes.copy_(k_means(vectors, len(self.codes), generator))
        uses = torch.bincount(_nearest(vectors, self.codes), minlength=len(self.codes))
        self.counts.copy_(uses * (FIRST_COUNT * len(self.codes) / len(vectors)))
        self.sums.copy_(self.codes * self.counts[:, None])

    def forward(self, vectors: Tensor, chances: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The nearest codes of vectors (n, T, d), and which they are (n, T).

        Args:
            chances: uniform numbers (n, T) that decide where unused codes go; the codes move then, else they stay.
        """
        with torch.autocast(vectors.device.type, enabled=False):
            vectors = vectors.to(self.codes.dtype)
            index = nearest(vectors, self.codes)
            found = functional.embedding(index, self.codes.clone())
            if chances is not None:
                self._move(vectors.detach().flatten(0, 1), index.flatten(), found.flatten(0, 1), chances.flatten())
        return found, index

    def _move(self, vectors: Tensor, index: Tensor, found: Tensor, chances: Tensor) -> None:
        """One step of the moving means. New codes are vectors drawn with a chance that grows with their squared error, none
        twice (by the Gumbel-top-k trick)."""
        K = len(self.codes)
        chosen = functional.one_hot(index, K).to(vectors.dtype)
        counts = torch.lerp(chosen.sum(0), self.counts, self.decay)
        sums = torch.lerp(chosen.t() @ vectors, self.sums, self.decay)
        gumbel = -(-chances.clamp(1e-6, 1 - 1e-6).log()).log()
        worst = ((vectors - found).square().sum(1).clamp_min(1e-12).log() + gumbel).argsort(descending=True)
        unused = counts < LEAST_COUNT
        fresh = vectors[worst[(unused.cumsum(0) - 1) % len(vectors)]]
        counts = torch.where(unused, 2 * LEAST_COUNT, counts)
        sums = torch.where(unused[:, None], fresh * counts[:, None], sums)
        self.counts.copy_(counts)
        self.sums.copy_(sums)
        self.codes.copy_(sums / counts[:, None])


def nearest(vectors: Tensor, codes: Tensor) -> Tensor:
    """The index (...) of the nearest of codes (K, d) to vectors (..., d), by Euclidean distance."""
    return (codes.square().sum(1) - 2 * vectors @ codes.t()).argmin(-1)


def straight_through(vectors: Tensor, found: Tensor) -> Tensor:
    """The values of `found` with the gradient of `vectors`."""
    return vectors + (found - vectors).detach()


def k_means(vectors: Tensor, K: int, generator: Generator) -> Tensor:
    """K means (K, d) of vectors (m, d) by Lloyd's algorithm, from a start as in k-means++ (Arthur and Vassilvitskii 2007)."""
    picks = torch.rand(K, generator=generator)
    places = (picks[:1] * len(vectors)).long().tolist()
    error = (vectors - vectors[places]).square().sum(1)
    for pick in picks[1:]:
        reach = error.double().cumsum(0)
        places.append(int(torch.searchsorted(reach, pick.double() * reach[-1]).clamp_max(len(vectors) - 1)))
        error = torch.minimum(error, (vectors - vectors[places[-1]]).square().sum(1))
    means = vectors[places]
    for _ in range(ROUNDS):
        uses, sums = _sums(vectors, _nearest(vectors, means), K)
        means = torch.where(uses > 0, sums / uses.clamp_min(1), means)
    return means


def _nearest(vectors: Tensor, codes: Tensor) -> Tensor:
    """As `nearest`, of any number of vectors (m, d) and codes."""
    return torch.cat([nearest(part, codes) for part in vectors.split(max(1, AT_ONCE // len(codes)))])


def _sums(vectors: Tensor, index: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """How many of vectors (m, d) belong to each of K codes (K, 1), and their sums (K, d), by the code `index` (m,) of each."""
    uses, sums = [], []
    for codes in torch.arange(K, device=index.device).split(max(1, AT_ONCE // len(vectors))):
        chosen = (index[:, None] == codes).to(vectors.dtype)
        uses.append(chosen.sum(0)[:, None])
        sums.append(chosen.t() @ vectors)
    return torch.cat(uses), torch.cat(sums)
