"""Encoded rows as columns, and segments made of them without a Python object for each row.

``encode_columns`` makes the same bytes as ``segment_file.encode_segment``, for rows of a push that
can be claimed at once.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby, repeat
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketq.codec.segment_file import EncodedSegment, join_segment
from bucketq.codec.segment_index import IndexFields, measure_blocks
from bucketq.model.segments import HASH_BYTES, SegmentIds

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
    kinds: pa.LargeStringArray
    priorities: IntArray
    openings: pa.LargeBinaryArray
    """The line of each row without its number, up to before the last brace."""
    sizes: IntArray
    """The size of each payload in bytes."""

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.ids)

    @property
    def size_bytes(self) -> int:
        """How many bytes the lines take in a segment, or a few more."""
        offsets = _offsets(self.openings)
        return int(offsets[-1] - offsets[0]) + _ENDING_BYTES * len(self)

    def between(self, start: int, stop: int) -> RowColumns:
        """Return some of the rows."""
        return RowColumns(
            self.ids[start:stop],
            self.kinds[start:stop],
            self.priorities[start:stop],
            self.openings[start:stop],
            self.sizes[start:stop],
        )

    def count_within(self, limit_bytes: int) -> int:
        """Return how many of the first rows fit in a segment of a size; one always does."""
        offsets = _offsets(self.openings)
        ends = offsets[1:] - offsets[0] + _ENDING_BYTES * np.arange(1, len(offsets))
        return max(1, int(np.searchsorted(ends, limit_bytes, side="right")))


def cut_rows(batches: Iterable[RowColumns], limit_bytes: int) -> Iterator[RowColumns]:
    """Yield the rows of each segment; where they are cut does not depend on the batches."""
    waiting, size_bytes = list[RowColumns](), 0
    for batch in batches:
        waiting.append(batch)
        size_bytes += batch.size_bytes
        if size_bytes <= limit_bytes:
            continue
        rows = _joined(waiting)
        while (count := rows.count_within(limit_bytes)) < len(rows):
            yield rows.between(0, count)
            rows = rows.between(count, len(rows))
        waiting, size_bytes = [rows], rows.size_bytes
    if rows_left := [each for each in waiting if len(each)]:
        yield _joined(rows_left)


def encode_columns(rows: RowColumns) -> EncodedSegment:
    """Encode rows, at least one, as a segment; they are numbered from 0 on in their order."""
    kinds, runs, seqs = _sort(rows)
    openings = rows.openings
    hashes = _hashes(rows.ids)
    if len(runs) > 1:
        openings, hashes = openings.take(pa.array(seqs)), hashes[seqs]
    numbers = pa.array(seqs).cast(pa.string()).cast(TEXT)
    lines = join_texts(openings, b',"seq":', numbers, b"}\n")
    body, ends = text_of(lines), _offsets(lines)[1:].tolist()
    places = np.argsort(hashes, kind="stable")
    return join_segment(
        body,
        _array("Q", seqs),
        SegmentIds(_array("Q", hashes[places]), _array("I", places)),
        IndexFields(cls="ready", kinds=kinds, runs=runs, blocks=measure_blocks(body, ends)),
    )


def join_texts(*parts: TextPart) -> pa.LargeBinaryArray:
    """Join texts row by row; at least one part is not the same in all rows."""
    given = list["TextPart | pa.LargeBinaryScalar"]()
    for is_same, group in groupby(parts, lambda part: isinstance(part, bytes)):
        some = list(group)
        given += [pa.scalar(b"".join(some), TEXT)] if is_same else some
    return pc.binary_join_element_wise(*given, pa.scalar(b"", TEXT))


def sizes_of(parts: Sequence[TextPart]) -> IntArray:
    """Return how many bytes each row has when ``join_texts`` has joined the parts."""
    texts = [part for part in parts if not isinstance(part, bytes)]
    lengths = [pc.binary_length(each).to_numpy(zero_copy_only=False) for each in texts]
    found: IntArray = np.sum(lengths, axis=0)
    return found + sum(len(part) for part in parts if isinstance(part, bytes))


def text_of(texts: pa.LargeBinaryArray) -> bytes:
    """Return all texts of a column, joined."""
    offsets, data = _offsets(texts), texts.buffers()[2]
    return b"" if data is None else data[int(offsets[0]) : int(offsets[-1])].to_pybytes()


def _joined(batches: Sequence[RowColumns]) -> RowColumns:
    if len(batches) == 1:
        return batches[0]
    return RowColumns(
        pa.concat_arrays([each.ids for each in batches]),
        pa.concat_arrays([each.kinds for each in batches]),
        np.concatenate([each.priorities for each in batches]),
        pa.concat_arrays([each.openings for each in batches]),
        np.concatenate([each.sizes for each in batches]),
    )


def _sort(rows: RowColumns) -> tuple[list[str], list[tuple[int, int, int, int]], IntArray]:
    """Return the kinds, the runs, and the number of the row at each position."""
    encoded = rows.kinds.dictionary_encode()
    found: list[str] = encoded.dictionary.to_pylist()
    kinds = sorted(found)
    places = np.array([kinds.index(kind) for kind in found])[encoded.indices.to_numpy()]
    seqs = np.lexsort((rows.priorities, places))
    lanes = np.stack((places[seqs], rows.priorities[seqs]))
    starts = [0, *(np.flatnonzero((lanes[:, 1:] != lanes[:, :-1]).any(axis=0)) + 1).tolist()]
    runs = [
        (int(lanes[0, start]), int(lanes[1, start]), stop - start, int(seqs[start]))
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True)
    ]
    return kinds, runs, seqs


def _hashes(ids: pa.LargeBinaryArray) -> IntArray:
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


def _array(typecode: str, numbers: IntArray) -> array[int]:
    found = array(typecode)
    found.frombytes(numbers.astype(f"u{found.itemsize}").tobytes())
    return found
