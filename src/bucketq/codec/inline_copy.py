"""A version of a queue as one text in format 1, with the rows of its segments in it.

A deep queue may have millions of rows, and its segments hold them in the order of claims. In the
text they are in the order of their numbers. So rows go to a temporary file as they are read, and in
memory there are only their numbers and places: 60 bytes a row. The text is put together from that
file, as often as it is needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from mmap import ACCESS_READ, mmap
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Literal, Self
from zlib import crc32

from bucketq.codec.document import encode_head
from bucketq.codec.layout import END, NOT_COPIED, OPENINGS, OPTIONAL, SEPARATOR
from bucketq.codec.unknown_fields import encode_row
from bucketq.errors import CorruptStateError
from bucketq.model.state import State

SpilledTable = Literal["keys", "jobs"]
"""The tables whose rows may be in segments."""

_CHUNK_ROWS = 4096
"""How many rows are returned at once: about a megabyte of small jobs."""


class _RowPlaces:
    """Where the rows of a table are in the temporary file."""

    def __init__(self) -> None:
        self.seqs, self.starts, self.lengths = array("Q"), array("Q"), array("Q")
        self.order: array[int] = array("Q")
        """The places of the rows in the order of their numbers."""

    def sort(self, table: str, where: str) -> None:
        self.order = array("Q", sorted(range(len(self.seqs)), key=self.seqs.__getitem__))
        before = -1
        for seq in map(self.seqs.__getitem__, self.order):
            if seq == before:
                message = (
                    f"{where} is not a queue that can be trusted: number {seq} of its {table} is "
                    "in two places; the object is left as it is (`bucketq doctor --deep` checks "
                    "all segments)"
                )
                raise CorruptStateError(message)
            before = seq


class RowSpool:
    """A temporary file with the rows of a copy, in any order. ``with`` closes it."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - closed by ``__exit__``
        self._end = 0
        self._tables: dict[str, _RowPlaces] = {"keys": _RowPlaces(), "jobs": _RowPlaces()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, table: SpilledTable, rows: Iterable[tuple[int, bytes]]) -> None:
        """Add rows of a table: the number and the line of each, without a line feed."""
        places = self._tables[table]
        for seq, line in rows:
            places.seqs.append(seq)
            places.starts.append(self._end)
            places.lengths.append(len(line))
            self._file.write(line)
            self._end += len(line)

    def finish(self, state: State, where: str) -> InlineCopy:
        """Add the rows of the object itself, and return the copy, which outlives this file.

        Raises:
            CorruptStateError: A row is there twice.
        """
        for name in ("keys", "jobs"):
            self.add(name, ((row.seq, _line(state, name, row)) for row in getattr(state, name)))
            self._tables[name].sort(name, where)
        self._file.flush()
        rows = mmap(self._file.fileno(), 0, access=ACCESS_READ) if self._end else b""
        return InlineCopy(state, self._tables, rows)


class InlineCopy:
    """One version of a queue in format 1. The rows are in a file that has no name any more."""

    def __init__(self, state: State, tables: dict[str, _RowPlaces], rows: mmap | bytes) -> None:
        """Measure the text; the first line has its checksum and its length."""
        self._rows = rows
        self._tables = tables
        self._head = encode_head(state, is_inline=True)
        others: dict[str, Iterable[Any]] = {
            "sessions": state.sessions.table,
            "tokens": state.tokens,
            "consumers": state.consumers,
            "writers": state.writers,
            "schedules": state.schedules,
            "limits": state.limits,
            "buckets": state.buckets,
            "batches": state.batches,
            "audit": state.audit,
        }
        self._others = {
            name: [_line(state, name, row) for row in table] for name, table in others.items()
        }
        crc = length = 0
        for part in self._rest():
            crc, length = crc32(part, crc), length + len(part)
        self._first = b'{"format":1,"checksum":"crc32:%08x","bytes":%d,\n' % (crc, length)
        self.size_bytes = len(self._first) + length

    def chunks(self) -> Iterator[bytes]:
        """Yield the text in pieces."""
        yield self._first
        yield from self._rest()

    def _rest(self) -> Iterator[bytes]:
        yield self._head
        for name, opening in OPENINGS.items():
            if name in NOT_COPIED:
                continue
            is_first = True
            for lines in self._lines(name):
                yield (opening + b"\n" if is_first else SEPARATOR) + SEPARATOR.join(lines)
                is_first = False
            if is_first and name not in OPTIONAL:
                yield opening
        yield END

    def _lines(self, name: str) -> Iterator[list[bytes]]:
        """Yield the lines of a table, some at a time and never none."""
        if (lines := self._others.get(name)) is not None:
            if lines:
                yield lines
            return
        table = self._tables[name]
        for begin in range(0, len(table.order), _CHUNK_ROWS):
            yield [
                self._rows[(start := table.starts[place]) : start + table.lengths[place]]
                for place in table.order[begin : begin + _CHUNK_ROWS]
            ]


def _line(state: State, table: str, row: Any) -> bytes:
    return encode_row(row, state.extra.get((table, row.id)))
