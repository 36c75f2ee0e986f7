"""Crockford's base 32, in which ids are written."""

from __future__ import annotations

_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS = {letter: digit for digit, letter in enumerate(_LETTERS)}
_PAIRS = tuple(first + second for first in _LETTERS for second in _LETTERS)


def crockford(number: int, length: int) -> str:
    """Write a number in Crockford's base 32, which leaves out letters that look like digits."""
    pairs = [_PAIRS[(number >> (10 * place)) & 1023] for place in range(length // 2)]
    return "".join(reversed(pairs))


def number_of(text: str) -> int | None:
    """Read a number in Crockford's base 32; None: it is not one."""
    number = 0
    for letter in text:
        digit = _DIGITS.get(letter)
        if digit is None:
            return None
        number = number * 32 + digit
    return number
