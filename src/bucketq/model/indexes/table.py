"""Rows in the order of their numbers, kept in blocks so that an encoder can cache them.

A table promises that a row's place never changes while it lives, that looking one up, adding,
replacing and removing cost the same at any size, and that it remembers which blocks were touched
since the last call of ``take_touched``. A block holds the rows whose numbers share their upper
bits, so a row is found in its block without a further index.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Generic, Protocol, TypeVar

BLOCK_BITS = 6
"""64 rows a block: larger ones take longer to encode again for one row, smaller ones are more to
join at each commit."""


class Row(Protocol):
    """What a table needs to know of a row."""

    @property
    def id(self) -> str:
        """Its name, unique in the table."""
        ...

    @property
    def seq(self) -> int:
        """Its number, unique in the table and larger than that of every row before it."""
        ...


R = TypeVar("R", bound=Row)


def _number(row: Row) -> int:
    return row.seq


def _block_number(row: Row) -> int:
    return row.seq >> BLOCK_BITS


def _place(block: list[R], seq: int) -> int:
    """Where a number stands in its block; mostly none is missing between the first and it."""
    place = seq - block[0].seq
    if place < len(block) and block[place].seq == seq:
        return place
    return bisect_left(block, seq, key=_number)


class Table(Generic[R]):
    """Rows by id and, in blocks, by number."""

    __slots__ = ("blocks", "by_id", "touched")

    def __init__(self, rows: Iterable[R] = ()) -> None:
        """Take rows that are in order of their numbers. Raises ``ValueError`` if they are not."""
        self.by_id: dict[str, R] = {}
        self.blocks: dict[int, list[R]] = {}
        self.touched: set[int] = set()
        last, number, block = -1, -1, list[R]()
        by_id = self.by_id
        for row in rows:
            seq = row.seq
            if seq <= last:
                raise ValueError(f"rows out of order: number {seq} of {row.id!r} follows {last}")
            last = seq
            if seq >> BLOCK_BITS != number:
                number = seq >> BLOCK_BITS
                block = self.blocks[number] = []
            block.append(row)
            by_id[row.id] = row
        rows_count = sum(map(len, self.blocks.values()))
        if len(by_id) != rows_count:
            raise ValueError(f"{rows_count} rows, but only {len(by_id)} different ids")

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, row_id: str) -> bool:
        return row_id in self.by_id

    def __iter__(self) -> Iterator[R]:
        for block in self.blocks.values():
            yield from block

    @property
    def next_seq(self) -> int:
        """The number of a row that is added behind all others."""
        last = next(reversed(self.blocks.values()), None)
        return 1 if last is None else last[-1].seq + 1

    def get(self, row_id: str) -> R | None:
        """The row with this id, or None."""
        return self.by_id.get(row_id)

    def after(self, seq: int) -> Iterator[R]:
        """The rows whose numbers are larger than ``seq``, in order."""
        first = (seq + 1) >> BLOCK_BITS
        for number, block in self.blocks.items():
            if number < first:
                continue
            yield from (
                block if number > first else block[bisect_left(block, seq + 1, key=_number) :]
            )

    def put(self, row: R) -> None:
        """Add a row behind all others, or replace the one with the same id and number."""
        if row.id in self.by_id:
            self.replace((row,))
        else:
            self.extend((row,))

    def extend(self, rows: Iterable[R]) -> None:
        """Add rows that are not there, in order and behind all others."""
        by_id, number = self.by_id, -1
        block: list[R] = []
        for row in rows:
            if row.seq >> BLOCK_BITS != number:
                number = row.seq >> BLOCK_BITS
                block = self.blocks.setdefault(number, [])
                self.touched.add(number)
            block.append(row)
            by_id[row.id] = row

    def insert(self, rows: Iterable[R]) -> None:
        """Add rows wherever their numbers belong; those that were lent become rows of the table."""
        is_sorted = True
        for number, some in groupby(sorted(rows, key=_number), _block_number):
            new = list(some)
            block = self.blocks.get(number)
            if block is None:
                is_sorted = is_sorted and number > next(reversed(self.blocks), -1)
                self.blocks[number] = new
            else:
                block += new
                block.sort(key=_number)
            self.touched.add(number)
            self.by_id.update([(row.id, row) for row in new])
        if not is_sorted:
            self.blocks = dict(sorted(self.blocks.items()))

    def lend(self, row: R) -> None:
        """Let a row that is kept elsewhere be found by its id; it is in no block."""
        self.by_id[row.id] = row

    def replace(self, rows: Iterable[R]) -> None:
        """Replace the rows with the same ids and numbers, which are there."""
        by_id, blocks, touched = self.by_id, self.blocks, self.touched
        for row in rows:
            seq = row.seq
            number = seq >> BLOCK_BITS
            block = blocks[number]
            place = seq - block[0].seq
            if place >= len(block) or block[place].seq != seq:
                place = _place(block, seq)
            block[place] = row
            touched.add(number)
            by_id[row.id] = row

    def touch(self, row: R) -> None:
        """Note that a row was changed in place."""
        self.touched.add(row.seq >> BLOCK_BITS)

    def remove(self, row_id: str) -> None:
        """Take a row out."""
        row = self.by_id.pop(row_id)
        number = row.seq >> BLOCK_BITS
        self.touched.add(number)
        block = self.blocks[number]
        del block[_place(block, row.seq)]
        if not block:
            del self.blocks[number]

    def remove_all(self, rows: Collection[R]) -> None:
        """Take rows out."""
        gone = {row.seq for row in rows}
        for number in {seq >> BLOCK_BITS for seq in gone}:
            block = [row for row in self.blocks[number] if row.seq not in gone]
            if block:
                self.blocks[number] = block
            else:
                del self.blocks[number]
            self.touched.add(number)
        for row in rows:
            del self.by_id[row.id]

    def take_touched(self) -> set[int]:
        """The numbers of the blocks touched since the last call."""
        touched, self.touched = self.touched, set()
        return touched
