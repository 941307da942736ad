"""Numbers in words, beside a bound that they must not be taken for."""

from __future__ import annotations

from collections.abc import Sequence


def told_apart(value: float, bound: float, formats: Sequence[str]) -> str:
    """A number in the first format in which it does not read like a bound that it is not: 0.9496 beside 0.95.

    Args:
        formats: of `format()`, the shortest first. A number that equals the bound has the first one, and one that reads like
            the bound in all of them the last.
    """
    texts = [(format(value, one), format(bound, one)) for one in formats]
    return next((told for told, of_bound in texts if told != of_bound), texts[0 if value == bound else -1][0])
