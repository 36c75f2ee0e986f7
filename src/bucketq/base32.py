"""Crockford's base 32, in which ids are written."""

from __future__ import annotations

_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(first + second for first in _LETTERS for second in _LETTERS)


def crockford(number: int, length: int) -> str:
    """Write a number in Crockford's base 32, which leaves out letters that look like digits."""
    pairs = [_PAIRS[(number >> (10 * place)) & 1023] for place in range(length // 2)]
    return "".join(reversed(pairs))
