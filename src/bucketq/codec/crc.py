"""CRC-32 of a whole from the CRC-32s of its parts.

A commit changes a few blocks of a large object. Their checksums are computed anew, those of all
other blocks are kept, and the checksum of the whole follows without reading it again: appending
n bytes multiplies the checksum so far, a polynomial over GF(2), by x^(8n), and adds the
checksum of what was appended.
"""

from __future__ import annotations

from zlib import crc32

_POLYNOMIAL = 0xEDB88320
_ONE = 0x80000000
"""The polynomial 1: the highest bit is the coefficient of x^0."""
_STEP_BITS = 12
_STEP = 1 << _STEP_BITS


def combine(first: int, second: int, second_length: int) -> int:
    """The checksum of two parts, one behind the other."""
    return _multiply(_power(second_length), first) ^ second


def drop_first_byte(whole: int, length: int, byte: bytes) -> int:
    """The checksum of a part without the byte that it begins with."""
    return whole ^ _multiply(_power(length - 1), crc32(byte))


def _multiply(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


def _powers(base: int, count: int) -> tuple[int, ...]:
    powers = [_ONE]
    for _ in range(count - 1):
        powers.append(_multiply(powers[-1], base))
    return tuple(powers)


_BYTE = 0x00800000  # x^8
_LOW = _powers(_BYTE, _STEP)
"""x^(8n) for n below 4096."""
_MIDDLE = _powers(_multiply(_LOW[-1], _BYTE), _STEP)
"""x^(8n) for multiples of 4096 below 16 Mi."""
_HIGH = _multiply(_MIDDLE[-1], _MIDDLE[1])
"""x^(8n) for n = 16 Mi."""


def _power(length: int) -> int:
    """x^(8 * length)."""
    power = _multiply(_MIDDLE[(length >> _STEP_BITS) & (_STEP - 1)], _LOW[length & (_STEP - 1)])
    for _ in range(length >> (2 * _STEP_BITS)):
        power = _multiply(power, _HIGH)
    return power
