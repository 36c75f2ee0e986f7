"""The oldest row is found, whatever was used or removed since."""

from __future__ import annotations

from datetime import timedelta

from bucketq.model.indexes.age_index import AgeIndex
from bucketq.model.indexes.table import Table
from bucketq.model.numbered_batches import WriterRecord
from tests.unit.model.driver import START


def writer(number: int, second: int) -> WriterRecord:
    at = START + timedelta(seconds=second)
    return WriterRecord(id=f"w{number}", seq=number, batch=0, part=0, at=at)


def filled(*seconds: int) -> tuple[Table[WriterRecord], AgeIndex[WriterRecord]]:
    table = Table([writer(number, second) for number, second in enumerate(seconds, 1)])
    return table, AgeIndex(table.by_id, lambda row: row.at)


def test_the_oldest_is_the_one_with_the_earliest_time_and_then_the_smallest_number() -> None:
    _, ages = filled(5, 3, 3)
    first = ages.first()
    assert first is not None
    assert first.id == "w2"


def test_a_row_that_was_used_or_removed_since_is_skipped() -> None:
    table, ages = filled(1, 2, 3)
    table.put(used := writer(1, 9))
    ages.add(used)
    table.remove("w2")
    assert ages.first() == writer(3, 3)
    table.remove("w3")
    assert ages.first() == used
    table.remove("w1")
    assert ages.first() is None


def test_what_was_used_often_leaves_no_heap_behind() -> None:
    table, ages = filled(0)
    for second in range(1000):
        table.put(row := writer(1, second))
        ages.add(row)
    assert len(ages) < 100
    assert ages.first() == writer(1, 999)
