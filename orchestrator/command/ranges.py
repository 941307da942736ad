"""Ranges and lists as they are typed: `16..64`, `2..10:2`, `0.001..1`."""

from __future__ import annotations

import math
import sys

from trainables.settings import unsigned

MOST_PLANNED = 100_000
"""Runs or thresholds that a study may ask for: planning so many takes a minute."""
MOST_DIGITS = 30
"""Of a number: Python itself reads no more than some thousands."""

def parse_range(text: str) -> tuple[float, float]:
    """Read a range of positive numbers, `0.001..1`, or one number of at least 0, which gives (x, x).

    Raises:
        ValueError: not a number, negative, or empty; the message says what is allowed.
    """
    low_text, dots, high_text = text.partition("..")
    try:
        low, high = float(low_text), float(high_text if dots else low_text)
    except ValueError:
        low = high = math.nan
    forms = "LOW..HIGH with 0 < LOW <= HIGH, for example 0.001..1, or 0|LOW..HIGH to try 0, too"
    allowed = f"write {forms}, or one number to keep it fixed, 0 included"
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{text!r} is not a range of numbers: {allowed}")
    if low > high:
        raise ValueError(f"{text!r} is an empty range, because {low:g} is above {high:g}: {allowed}")
    if low < 0 or (low == 0 and dots):
        raise ValueError(f"{text!r} does not begin above 0: {allowed}")
    return unsigned(low), unsigned(high)


def warn_of_short(option: str, text: str, step: int = 8) -> None:
    """Say on stderr which ranges of a list that `parse_grid` reads are one number, because they are shorter than their step.

    Args:
        option: with which the list was given, and what stands before it.
    """
    for part in text.split(","):
        span, _, step_text = part.strip().partition(":")
        first, dots, last = span.partition("..")
        stride = int(step_text or step)
        if dots and int(first) < int(last) < int(first) + stride:
            low, width = int(first), int(last) - int(first)
            told = f"{option}{part.strip()} is {low} alone, as it goes in steps of {stride}"
            print(f"warning: {told}: write {span}:{max(1, width // 3)} for more", file=sys.stderr)


def parse_grid(
    text: str,
    low: int = 8,
    high: int = 1024,
    step: int = 8,
    what: str = "grid sizes",
    examples: tuple[str, str, str] = ("16..64", "16..64:16", "16,24,48"),
) -> tuple[int, ...]:
    """Read grid sizes, or whatever else `what` names: `16..64` (every `step`th), `16..64:16`, `16,24,48`, or one number.

    Raises:
        ValueError: malformed, empty, outside [low, high], or more than MOST_PLANNED; the message says what is allowed.
    """
    allowed = f"write a range {examples[0]}, a range with a step {examples[1]}, or a list {examples[2]}, from {low} to {high}"
    sizes: list[int] = []
    for part in text.split(","):
        span, _, step_text = part.strip().partition(":")
        first, dots, last = span.partition("..")
        numbers = [first, *([last] if dots else []), *([step_text] if ":" in part else [])]
        if not all(n.strip().isascii() and n.strip().isdigit() for n in numbers) or (":" in part and not dots):
            raise ValueError(f"{text!r} is not a list of {what}: {allowed}")
        if (digits := max(map(len, numbers))) > MOST_DIGITS:
            raise ValueError(f"a number of {digits} digits is out of range for {what}: {allowed}")
        start, stop = int(first), int(last) if dots else int(first)
        stride = int(step_text) if step_text else step
        if stride < 1 or stop < start:
            raise ValueError(f"{part.strip()!r} is an empty range: {allowed}")
        for bound in (start, stop):
            if not low <= bound <= high:
                raise ValueError(f"{bound} is out of range for {what}: {allowed}")
        more = range(start, stop + 1, stride)
        if len(sizes) + len(more) > MOST_PLANNED:
            raise ValueError(f"{text!r} lists too many {what} (at most {MOST_PLANNED}): ask for fewer, or a larger step")
        sizes.extend(more)
    return tuple(sorted(set(sizes)))
