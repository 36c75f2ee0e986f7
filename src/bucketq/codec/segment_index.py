"""The index of a segment, and its lines of numbers, as they are written and read.

``segment_file`` describes the whole format.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NoReturn
from zlib import crc32

import msgspec
from msgspec import Struct

from bucketq.errors import CorruptStateError
from bucketq.model.segments import Block, BlockExpiry, Line, Run, SegmentClass, SegmentIndex

BLOCK_BYTES = 32 << 10
"""Rows are read in blocks of about this size. A request costs as much time as it takes to send
some 100 KiB, so much smaller ones would not be read faster."""


class IndexFields(Struct, omit_defaults=True):
    """The index as it is written; numbers in a row are written as one flat list."""

    cls: SegmentClass = msgspec.field(name="class")
    kinds: list[str] = []
    runs: list[tuple[int, int, int, int]] = []
    """Of each run: place of its kind, priority, rows, lowest number."""
    groups: list[str] = []
    """The group of each run; none given: no job has one. In a segment without runs, the groups of
    its jobs in order."""
    kind_runs: list[tuple[int, int]] = []
    """Of rows that have one kind: place of the kind, rows."""
    blocks: list[tuple[int, int, str]] = []
    """Of each block: rows, bytes, checksum."""
    times: tuple[datetime, datetime] | None = None
    seqs: tuple[int, str] = (0, "")
    """The length and the checksum of the line of numbers."""
    ids: tuple[int, str] = (0, "")
    """The length and the checksum of the line of hashes."""
    expiries: list[tuple[int, datetime, datetime]] = []
    """Of each block with jobs that expire: its place, and the first and the last time."""


def measure_blocks(
    lines: Iterable[bytes | memoryview], ends: Sequence[int]
) -> list[tuple[int, int, str]]:
    """Cut lines, at least one, into blocks.

    The lines may be in several pieces; ``ends`` says where each line ends, in all of them together.
    """
    blocks, start, offset = list[tuple[int, int, str]](), 0, 0
    pieces = (memoryview(each) for each in lines)
    piece = next(pieces)
    while start < len(ends):
        stop = max(start + 1, bisect_right(ends, offset + BLOCK_BYTES, start))
        length, crc = ends[stop - 1] - offset, 0
        left = length
        while left > len(piece):
            crc, left = crc32(piece, crc), left - len(piece)
            piece = next(pieces)
        crc, piece = crc32(piece[:left], crc), piece[left:]
        blocks.append((stop - start, length, f"{crc:08x}"))
        start, offset = stop, offset + length
    return blocks


def encode_arrays(*arrays: array[int]) -> bytes:
    """Encode whole numbers, big end first, as a line of base64."""
    packed = b""
    for each in arrays:
        copy = array(each.typecode, each)
        if sys.byteorder == "little":
            copy.byteswap()
        packed += copy.tobytes()
    return b'"' + b64encode(packed) + b'"\n'


def decode_arrays(line: Line, text: bytes, typecodes: str, where: str) -> list[array[int]]:
    """Decode what ``encode_arrays`` has written, arrays of the same length.

    Raises:
        CorruptStateError: The line is not what the index says.
    """
    if len(text) != line.length or crc32(text) != line.crc:
        refuse_segment(where, "a line of its numbers does not fit its index")
    try:
        packed = b64decode(text[1:-2], validate=True)
    except ValueError as error:
        refuse_segment(where, f"a line of its numbers cannot be decoded ({error})")
    arrays = [array(typecode) for typecode in typecodes]
    rows, start = len(packed) // sum(each.itemsize for each in arrays), 0
    for each in arrays:
        stop = start + rows * each.itemsize
        each.frombytes(packed[start:stop])
        if sys.byteorder == "little":
            each.byteswap()
        start = stop
    return arrays


def index_of(fields: IndexFields, index_offset: int) -> SegmentIndex:
    """Make the index from its fields. Raises ``ValueError`` if they contradict each other."""
    blocks, position, offset = [], 0, 0
    for rows, length, crc in fields.blocks:
        blocks.append(Block(position, position + rows, offset, length, int(crc, 16)))
        position += rows
        offset += length
    runs, start = [], 0
    groups = fields.groups or [""] * len(fields.runs)
    if fields.runs and len(groups) != len(fields.runs):
        message = f"{len(fields.runs)} runs of {len(groups)} groups"
        raise ValueError(message)
    for (number, priority, rows, seq), group in zip(fields.runs, groups, strict=False):
        runs.append(Run(fields.kinds[number], priority, start, start + rows, seq, group))
        start += rows
    kind_numbers = array("H")
    for number, rows in fields.kind_runs:
        kind_numbers.extend([number] * rows)
    counted = {"ready": start, "keys": position}.get(fields.cls, len(kind_numbers))
    seqs = Line(offset, fields.seqs[0], int(fields.seqs[1], 16))
    ids = Line(offset + seqs.length, fields.ids[0], int(fields.ids[1], 16))
    if not blocks or counted != position or ids.offset + ids.length != index_offset:
        message = f"{counted} rows in its runs, {position} in its blocks, which end at {offset}"
        raise ValueError(message)
    return SegmentIndex(
        kinds=tuple(fields.kinds),
        runs=tuple(runs),
        kind_numbers=kind_numbers,
        blocks=tuple(blocks),
        times=fields.times,
        seqs=seqs,
        ids=ids,
        expiries=tuple(BlockExpiry(*each) for each in fields.expiries),
        has_groups=bool(fields.groups),
    )


def refuse_segment(where: str, reason: str) -> NoReturn:
    """Raise ``CorruptStateError`` about a segment, and say what it means for the queue."""
    message = (
        f"segment {where} cannot be trusted: {reason}; it is left as it is, and only its own rows "
        "are affected (`bucketq doctor --deep` checks all segments)"
    )
    raise CorruptStateError(message)
