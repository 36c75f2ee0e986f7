"""Crockford's base 32, in which ids are written."""

from __future__ import annotations

_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PYTHON_LETTERS = "0123456789abcdefghijklmnopqrstuv"
"""The digits of ``int(text, 32)``."""
_TO_PYTHON = {ord(letter): digit for letter, digit in zip(_LETTERS, _PYTHON_LETTERS, strict=True)}
_DIGITS = bytes(ord(_TO_PYTHON.get(code, "!")) for code in range(256))
"""What ``int`` reads for each byte; it takes none that is not a letter of ours."""
PAIRS = tuple(first + second for first in _LETTERS for second in _LETTERS)
"""How the numbers of ten bits are written."""


def crockford(number: int, length: int) -> str:
    """Write a number in Crockford's base 32, which leaves out letters that look like digits."""
    pairs = [PAIRS[(number >> (10 * place)) & 1023] for place in range(length // 2)]
    return "".join(reversed(pairs))


def number_of(text: str) -> int | None:
    """Read a number in Crockford's base 32; None: it is not one."""
    try:
        return int(b"0" + text.encode().translate(_DIGITS), 32)
    except ValueError:
        return None
