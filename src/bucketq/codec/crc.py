"""CRC-32 of a whole from the CRC-32s of its parts.

A commit changes a few blocks of a large object. Their checksums are computed again, those of all
other blocks are kept, and the checksum of the whole follows without reading it again: appending
n bytes multiplies the checksum so far, a polynomial over GF(2), by x^(8n), and adds the
checksum of what was appended.
"""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

_MASK = 0xFFFFFFFF
_ONE = 0x80000000
"""The polynomial 1: the highest bit is the coefficient of x^0."""
_BYTE = 0x00800000
"""x^8: what a checksum is multiplied by when a byte is appended."""

_LOW, _MIDDLE = 0xFF, 0xFF00
"""Of the length of a part, the lowest byte, the next and the rest are looked up apart: nearly every
commit has parts of new lengths, but there are few values of each of the three."""

_NOTHING = bytes(4)

Shift = tuple[int, ...]
"""What the length of a part does to the checksum before it: a polynomial, as the places of its
bits. A part that rests is combined again and again, and finding them takes half of that time."""


def combine(first: int, second: int, shift: Shift) -> int:
    """The checksum of two parts, one behind the other; ``shift`` follows from the second length."""
    product = 0
    for place in shift:
        product ^= first << place
    return _reduced(product) ^ second


def _multiply(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of CRC-32."""
    product = 0
    while a:
        lowest = a & -a
        product ^= b * lowest
        a ^= lowest
    return _reduced(product)


def _reduced(product: int) -> int:
    """What is left of a plain product modulo the polynomial of CRC-32.

    The lower half of the product are powers from x^32 on. What is left of those is what a checksum
    becomes when four empty bytes are appended.
    """
    low = (product << 1) & _MASK
    return (product >> 31) ^ crc32(_NOTHING, low ^ _MASK) ^ _MASK


def _squares(base: int, count: int) -> tuple[int, ...]:
    """A polynomial, its square, the square of that, and so on."""
    squares = [base]
    while len(squares) < count:
        squares.append(_multiply(squares[-1], squares[-1]))
    return tuple(squares)


_SQUARES = _squares(_BYTE, 63)


def shift_of(length: int) -> Shift:
    """x^(8 * length): two multiplications, if parts of about this length were met before."""
    power = _power_of(length & _LOW)
    for rest in (length & _MIDDLE, length & ~(_LOW | _MIDDLE)):
        if rest:
            power = _multiply(_power_of(rest), power)
    return tuple([place for place in range(32) if power >> place & 1])


@lru_cache(maxsize=4 * (_LOW + 1))
def _power_of(length: int) -> int:
    power = _ONE
    for square in _SQUARES[: length.bit_length()]:
        if length & 1:
            power = _multiply(square, power)
        length >>= 1
    return power
