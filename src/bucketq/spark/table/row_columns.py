"""Encoded rows as columns, and segments made of them without a Python object for each row.

``encode_columns`` makes the same bytes as ``segment_file.encode_segment``, for rows of a push that
can be claimed at once. Their ids follow each other, so that the lines of a segment of one run have
no ids and no numbers.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketq.codec.segment_file import EncodedSegment, join_segment
from bucketq.codec.segment_index import IndexFields, measure_blocks
from bucketq.model.id_hashes import HASH_BYTES
from bucketq.model.segments import (
    SegmentIds,
)

IntArray = npt.NDArray[np.integer]

TEXT = pa.large_binary()
"""With offsets of 64 bits: the rows of a batch may have more than 2 GiB."""
TextPart: TypeAlias = "bytes | pa.LargeBinaryArray"
"""A part of the texts of some rows: the same bytes in all of them, or a text for each."""
_HASHED_AT_ONCE = 128
"""Ids: without a step of Python for each that takes two thirds of the time, if the processor keeps
the states of as many in its cache."""
_ENDING_BYTES = len(',"seq":4294967295}\n')
"""The most that a line has after its opening."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows of a push."""

    ids: pa.LargeBinaryArray
    kinds: pa.DictionaryArray
    priorities: IntArray
    opening: Sequence[TextPart]
    """The line of each row without its id and its number, and without the braces. Its parts are
    joined when it is known whether these are written, so that they are copied once."""
    lengths: IntArray
    """How many bytes the line of each row has, without its number."""
    sizes: IntArray
    """The size of each payload in bytes."""

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.ids)

    @property
    def lines(self) -> pa.LargeBinaryArray:
        """The line of each row, with its id, and without its number and the last brace."""
        return join_texts(*id_parts(self.ids), *self.opening)

    def between(self, start: int, stop: int) -> RowColumns:
        """Return some of the rows."""
        return RowColumns(
            self.ids[start:stop],
            self.kinds[start:stop],
            self.priorities[start:stop],
            [part if isinstance(part, bytes) else part[start:stop] for part in self.opening],
            self.lengths[start:stop],
            self.sizes[start:stop],
        )


def cut_rows(batches: Iterable[RowColumns], limit_bytes: int) -> Iterator[list[RowColumns]]:
    """Yield the rows of each segment; where they are cut does not depend on the batches."""
    found, left_bytes = list[RowColumns](), limit_bytes
    for batch in batches:
        ends, start = np.cumsum(batch.lengths + _ENDING_BYTES), 0
        while start < len(batch):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + left_bytes, side="right"))
            if stop == start and not found:
                stop += 1  # A row that is larger than a segment has one of its own.
            if stop > start:
                found.append(batch.between(start, stop))
                left_bytes -= int(ends[stop - 1]) - before
            if stop < len(batch):
                yield found
                found, left_bytes = [], limit_bytes
            start = stop
    if found:
        yield found


def size_of(rows: Sequence[RowColumns]) -> int:
    """Return how many bytes the lines of rows take in a segment, or a few more."""
    return sum(int(each.lengths.sum()) + _ENDING_BYTES * len(each) for each in rows)


def encode_columns(rows: Sequence[RowColumns]) -> EncodedSegment:
    """Encode rows, at least one, as a segment; they are numbered from 0 on in their order."""
    kinds, runs, seqs = _sort(rows)
    first_id, hashes = "", np.array([], np.uint64)
    if len(runs) == 1:
        lines = [join_texts(b"{", *each.opening, b"}\n") for each in rows]
        first_id = rows[0].ids[0].as_py().decode()
    else:
        hashes = np.concatenate([_hashes(each.ids) for each in rows])[seqs]
        sorted_lines = pa.concat_arrays([each.lines for each in rows]).take(pa.array(seqs))
        numbers = pa.array(seqs).cast(pa.string()).cast(TEXT)
        lines = [join_texts(sorted_lines, b',"seq":', numbers, b"}\n")]
    pieces = [*map(_buffer, lines)]
    ends = np.cumsum(np.concatenate([np.diff(_offsets(each)) for each in lines])).tolist()
    places = _sorted_places(hashes)
    return join_segment(
        pieces,
        _array("Q", seqs),
        SegmentIds(_array("Q", hashes[places]), _array("I", places)),
        IndexFields(cls="ready", kinds=kinds, runs=runs, blocks=measure_blocks(pieces, ends)),
        (0, len(seqs) - 1),
        first_id,
    )


def join_texts(*parts: TextPart) -> pa.LargeBinaryArray:
    """Join texts row by row; at least one part is not the same in all rows."""
    given = [
        pa.scalar(part, TEXT) if isinstance(part, bytes) else part for part in merge_texts(parts)
    ]
    return pc.binary_join_element_wise(*given, pa.scalar(b"", TEXT))


def id_parts(ids: pa.LargeBinaryArray) -> list[TextPart]:
    """Return how a line with an id begins; ids have no characters that JSON escapes."""
    return [b'{"id":"', ids, b'",']


def merge_texts(parts: Iterable[TextPart]) -> list[TextPart]:
    """Join neighbours that are the same in all rows."""
    merged = list[TextPart]()
    for part in parts:
        if merged and isinstance(part, bytes) and isinstance(merged[-1], bytes):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def sizes_of(parts: Sequence[TextPart]) -> IntArray:
    """Return how many bytes each row has when ``join_texts`` has joined the parts."""
    texts = [part for part in parts if not isinstance(part, bytes)]
    lengths = [pc.binary_length(each).to_numpy(zero_copy_only=False) for each in texts]
    found: IntArray = np.sum(lengths, axis=0)
    return found + sum(len(part) for part in parts if isinstance(part, bytes))


def text_of(texts: pa.LargeBinaryArray) -> bytes:
    """Return all texts of a column, joined."""
    return bytes(_buffer(texts))


def letters_of(texts: pa.LargeBinaryArray) -> npt.NDArray[np.uint8]:
    """Return the bytes of all texts of a column, without a copy."""
    return np.frombuffer(_buffer(texts), np.uint8)


def _sort(
    rows: Sequence[RowColumns],
) -> tuple[list[str], list[tuple[int, int, int, int]], IntArray]:
    """Return the kinds, the runs, and the number of the row at each position."""
    count, found = sum(map(len, rows)), [each.kinds.dictionary for each in rows]
    kinds: list[str] = sorted(pc.unique(pa.chunked_array(found)).to_pylist())
    priority = int(rows[0].priorities[0])
    if len(kinds) == 1 and all((each.priorities == priority).all() for each in rows):
        return kinds, [(0, priority, count, 0)], np.arange(count)
    encoded = pa.concat_arrays([each.kinds.dictionary_decode() for each in rows])
    encoded = encoded.dictionary_encode()
    kinds = sorted(encoded.dictionary.to_pylist())
    ranks = np.array([kinds.index(kind) for kind in encoded.dictionary.to_pylist()])
    places = ranks[encoded.indices.to_numpy()]
    priorities = np.concatenate([each.priorities for each in rows])
    seqs = np.lexsort((priorities, places))
    lanes = np.stack((places[seqs], priorities[seqs]))
    starts = [0, *(np.flatnonzero((lanes[:, 1:] != lanes[:, :-1]).any(axis=0)) + 1).tolist()]
    runs = [
        (int(lanes[0, start]), int(lanes[1, start]), stop - start, int(seqs[start]))
        for start, stop in zip(starts, [*starts[1:], count], strict=True)
    ]
    return kinds, runs, seqs


def _sorted_places(hashes: npt.NDArray[np.uint64]) -> IntArray:
    """Return the places of hashes in their order; equal ones in the order of their places.

    The place is put in the lowest bits of each hash, because sorting numbers is twice as fast as
    sorting places. That is right unless two hashes have all other bits in common.
    """
    bits = np.uint64(max(1, len(hashes).bit_length()))
    low = (np.uint64(1) << bits) - np.uint64(1)
    mixed = np.sort(hashes & ~low | np.arange(len(hashes), dtype=np.uint64))
    places: IntArray = (mixed & low).astype(np.int64)
    upper = mixed >> bits
    if (upper[1:] == upper[:-1]).any():
        return np.argsort(hashes, kind="stable")
    return places


def _hashes(ids: pa.LargeBinaryArray) -> npt.NDArray[np.uint64]:
    """Return what ``hash_id`` returns for each id."""
    digests, start = list[bytes](), blake2b(digest_size=HASH_BYTES)
    each = type(start)
    for first in range(0, len(ids), _HASHED_AT_ONCE):
        some = ids[first : first + _HASHED_AT_ONCE].to_pylist()
        states = [*map(each.copy, repeat(start, len(some)))]
        deque(map(each.update, states, some), maxlen=0)
        digests += map(each.digest, states)
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


def _offsets(texts: pa.LargeBinaryArray) -> IntArray:
    """Return where each text begins in the buffer of a column, and where the last one ends."""
    buffer = texts.buffers()[1]
    return np.frombuffer(buffer, np.int64, len(texts) + 1, texts.offset * 8)


def _buffer(texts: pa.LargeBinaryArray) -> memoryview:
    """Return the bytes of all texts of a column, without a copy."""
    offsets, data = _offsets(texts), texts.buffers()[2]
    return memoryview(b"" if data is None else data)[int(offsets[0]) : int(offsets[-1])]


def _array(typecode: str, numbers: IntArray) -> array[int]:
    found = array(typecode)
    found.frombytes(numbers.astype(f"u{found.itemsize}").tobytes())
    return found
