"""Rows in order, in blocks, and which blocks were touched."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct

from bucketq.model.indexes.table import BLOCK_BITS, Table

BLOCK = 1 << BLOCK_BITS
STEPS = (1, 1, -1, 2, 3)
"""Rows that follow each other, forwards and backwards, and some with others between them."""


class Numbered(Struct, frozen=True):
    """A row."""

    id: str
    seq: int
    value: int = 0


def table_of(*numbers: int) -> Table[Numbered]:
    return Table(Numbered(f"r{number}", number) for number in numbers)


def seqs(table: Table[Numbered]) -> list[int]:
    return [row.seq for row in table]


def test_rows_come_in_the_order_of_their_numbers() -> None:
    table = table_of(1, 5, BLOCK - 1, BLOCK, 10 * BLOCK + 3)
    assert seqs(table) == [1, 5, BLOCK - 1, BLOCK, 10 * BLOCK + 3]
    assert len(table) == 5
    assert "r5" in table
    assert "r6" not in table
    assert table.get("r6") is None


@pytest.mark.parametrize("numbers", [(2, 1), (1, 1), (BLOCK, BLOCK - 1)])
def test_rows_out_of_order_are_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="out of order"):
        Table(Numbered(f"r{place}", number) for place, number in enumerate(numbers))


def test_two_rows_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="only 1 different"):
        Table([Numbered("same", 1), Numbered("same", 2)])


def test_a_table_that_was_just_read_has_no_touched_blocks() -> None:
    assert table_of(1, 2, 3).take_touched() == set()


def test_every_change_touches_its_block_and_no_other() -> None:
    table = table_of(1, BLOCK, 2 * BLOCK)
    table.put(Numbered(f"r{BLOCK}", BLOCK, 7))
    assert table.take_touched() == {1}
    table.touch(Numbered("r1", 1))
    assert table.take_touched() == {0}
    table.put(Numbered("new", 3 * BLOCK))
    assert table.take_touched() == {3}
    table.remove(f"r{2 * BLOCK}")
    assert table.take_touched() == {2}
    assert table.take_touched() == set()


def test_a_replaced_row_keeps_its_place() -> None:
    table = table_of(1, 2, 3)
    table.put(Numbered("r2", 2, 9))
    assert [(row.seq, row.value) for row in table] == [(1, 0), (2, 9), (3, 0)]
    assert table.get("r2") == Numbered("r2", 2, 9)


def test_a_block_without_rows_is_gone() -> None:
    table = table_of(1, BLOCK)
    table.remove(f"r{BLOCK}")
    assert list(table.blocks) == [0]


def test_the_next_number_follows_from_the_rows_alone() -> None:
    assert table_of().next_seq == 1
    table = table_of(3, BLOCK + 2)
    assert table.next_seq == BLOCK + 3
    table.remove(f"r{BLOCK + 2}")
    assert table.next_seq == 4
    table.remove("r3")
    assert table.next_seq == 1


class TableMachine(RuleBasedStateMachine):
    """A table against a list."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.table: Table[Numbered] = Table()
        self.rows: list[Numbered] = []
        self.made = 0

    @rule(gap=st.sampled_from([0, 0, 0, 1, BLOCK, 3 * BLOCK]), count=st.integers(1, 40))
    def add(self, gap: int, count: int) -> None:
        for _ in range(count):
            self.made += 1
            row = Numbered(f"m{self.made}", self.table.next_seq + gap)
            self.table.put(row)
            self.rows.append(row)

    @precondition(lambda self: self.rows)
    @rule(place=st.integers(0, 10_000), value=st.integers())
    def replace(self, place: int, value: int) -> None:
        place %= len(self.rows)
        row = Numbered(self.rows[place].id, self.rows[place].seq, value)
        self.table.put(row)
        self.rows[place] = row

    @precondition(lambda self: self.rows)
    @rule(
        start=st.integers(0, 10_000), count=st.integers(0, 3 * BLOCK), step=st.sampled_from(STEPS)
    )
    def replace_some(self, start: int, count: int, step: int) -> None:
        start %= len(self.rows)
        self.made += 1
        places = range(len(self.rows))[start : start + count][::step]
        new = [Numbered(self.rows[at].id, self.rows[at].seq, -self.made) for at in places]
        self.table.take_touched()
        self.table.replace(new)
        for place, row in zip(places, new, strict=True):
            self.rows[place] = row
        assert self.table.take_touched() == {row.seq >> BLOCK_BITS for row in new}

    @precondition(lambda self: self.rows)
    @rule(places=st.lists(st.integers(0, 10_000), max_size=30))
    def remove(self, places: list[int]) -> None:
        for place in places[: len(self.rows)]:
            self.table.remove(self.rows.pop(place % len(self.rows)).id)

    @precondition(lambda self: self.rows)
    @rule(places=st.lists(st.integers(0, 10_000), max_size=30))
    def remove_all(self, places: list[int]) -> None:
        removed = [self.rows.pop(place % len(self.rows)) for place in places[: len(self.rows)]]
        self.table.remove_all(removed)

    @rule(seqs=st.lists(st.integers(0, 5 * BLOCK), max_size=30, unique=True))
    def insert(self, seqs: list[int]) -> None:
        there = {row.seq for row in self.rows}
        new = [Numbered(f"i{self.made}-{seq}", seq) for seq in seqs if seq not in there]
        self.made += 1
        self.table.take_touched()
        self.table.insert(new)
        assert self.table.take_touched() == {row.seq >> BLOCK_BITS for row in new}
        self.rows = sorted([*self.rows, *new], key=lambda row: row.seq)

    @rule(start=st.integers(0, 5 * BLOCK), count=st.integers(0, 3 * BLOCK))
    def insert_run(self, start: int, count: int) -> None:
        self.insert([*range(start, start + count)])

    @rule(after=st.integers(0, 20 * BLOCK))
    def read_on(self, after: int) -> None:
        assert list(self.table.after(after)) == [row for row in self.rows if row.seq > after]

    @invariant()
    def rows_are_alike(self) -> None:
        assert list(self.table) == self.rows
        assert self.table.by_id == {row.id: row for row in self.rows}
        assert list(self.table.blocks) == sorted({row.seq >> BLOCK_BITS for row in self.rows})
        assert list(Table(self.rows)) == self.rows


TableMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestTableMachine = TableMachine.TestCase
