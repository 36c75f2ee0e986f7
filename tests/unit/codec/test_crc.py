"""Checksums of wholes from those of their parts, against zlib."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.codec.crc import combine, shift_of

MIB = 1024 * 1024
LENGTHS = [0, 1, 2, 255, 4095, 4096, 4097, 8192, 3 * 4096 + 1]
LARGE = [16 * MIB - 1, 16 * MIB, 16 * MIB + 1, 33 * MIB + 4097]


def some_bytes(length: int) -> bytes:
    pattern = bytes(range(256)) + b"not a multiple of anything"
    return (pattern * (length // len(pattern) + 1))[:length]


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_two_parts_combine_to_the_checksum_of_the_whole(first: bytes, second: bytes) -> None:
    assert combine(crc32(first), crc32(second), shift_of(len(second))) == crc32(first + second)


@pytest.mark.parametrize("first", LENGTHS)
@pytest.mark.parametrize("second", LENGTHS)
def test_parts_of_every_length_around_a_step_combine(first: int, second: int) -> None:
    whole = some_bytes(first + second)
    parts = crc32(whole[:first]), crc32(whole[first:])
    assert combine(*parts, shift_of(second)) == crc32(whole)


@pytest.mark.parametrize("length", LARGE)
def test_parts_beyond_the_tables_of_powers_combine(length: int) -> None:
    whole = some_bytes(length)
    for first in (0, 1, 4096):
        parts = crc32(whole[:first]), crc32(memoryview(whole)[first:])
        assert combine(*parts, shift_of(length - first)) == crc32(whole)


@given(st.lists(st.binary(max_size=80), max_size=12))
def test_many_parts_combine_one_after_the_other(parts: list[bytes]) -> None:
    crc = 0
    for part in parts:
        crc = combine(crc, crc32(part), shift_of(len(part)))
    assert crc == crc32(b"".join(parts))
