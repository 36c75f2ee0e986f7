"""Where results are is known while it is worth it, and costs nothing if there are none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from bucketq.model.operations import Cancel, Complete, Configure, Tidy
from bucketq.model.outbox import Archived, ArchivedPart
from bucketq.model.results import ResultRow, SpillResults, hashes_of
from tests.unit.model.driver import START, Driver, lease_of

FILE = "2026-01-01T00/00000000000000000001-9f86d081884c7d65.jsonl"
OBJECT = "00000000000000000999-9f86d081884c7d65.results"
MADE = "01KG9MFMM0PWD5ARV0FP67PJ7K"


@pytest.fixture
def queue() -> Driver:
    return Driver(max_format=2, result_retention_s=60)


def archive(queue: Driver, *results: object, ids: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Let jobs with these results leave together; return their ids."""
    names = ids or tuple(f"job-{queue.state.next_seq + n}" for n in range(len(results)))
    for name, result in zip(names, results, strict=True):
        queue.push(name)
        job, raw = queue.claim_one(), Raw(str(result).encode())
        queue.ok(Complete(job=job.id, lease=lease_of(job), result=raw))
    leaving = tuple((name, queue.job(name).seq) for name in names)
    assert queue.ok(Archived(parts=(ArchivedPart(leaving, (FILE,)),))) == len(names)
    return names


def known(queue: Driver, job_id: str) -> list[int]:
    return [row.seq for row in queue.state.results if row.may_have(job_id)]


def test_jobs_that_leave_with_a_result_are_known(queue: Driver) -> None:
    first, empty, second = archive(queue, 1, "null", '"x"', ids=("a", MADE, "b"))
    (row,) = queue.state.results
    assert (row.count, row.files, row.at) == (2, (FILE,), queue.now)
    assert known(queue, first) == known(queue, second) == [1]
    assert known(queue, empty) == known(queue, "other") == []
    archive(queue, 5)
    assert [row.seq for row in queue.state.results] == [1, 2]
    queue.reload()
    assert (queue.state.results.count, known(queue, "a")) == (3, [1])
    assert queue.state.requires == {}


def test_each_result_is_known_by_the_file_that_it_is_in(queue: Driver) -> None:
    for name in ("a", "b"):
        queue.push(name)
        job = queue.claim_one()
        queue.ok(Complete(job=job.id, lease=lease_of(job), result=Raw(b"1")))
    parts = [ArchivedPart(((name, queue.job(name).seq),), (f"{name}.jsonl",)) for name in "ab"]
    assert queue.ok(Archived(parts=tuple(parts))) == 2
    assert [row.files for row in queue.state.results] == [("a.jsonl",), ("b.jsonl",)]
    assert (known(queue, "a"), known(queue, "b")) == ([1], [2])


def test_a_queue_without_results_pays_nothing(queue: Driver) -> None:
    archive(queue, "null", "null")
    queue.push("own")
    queue.ok(Cancel(job="own"))
    queue.ok(Archived(parts=(ArchivedPart((("own", queue.job("own").seq),), (FILE,)),)))
    assert not queue.state.results
    queue.commit()
    assert ("results", "00000001") not in queue.state.changes


def test_the_newest_job_with_an_id_counts_although_it_has_no_result(queue: Driver) -> None:
    archive(queue, 1, ids=("own",))
    archive(queue, "null", ids=("own",))
    assert known(queue, "own") == [1, 2]
    archive(queue, "null", ids=(MADE,))
    assert known(queue, MADE) == []  # Such an id is never used again.


def test_results_are_forgotten_in_time(queue: Driver) -> None:
    (first,) = archive(queue, 1)
    queue.wait(50)
    (second,) = archive(queue, 2)
    queue.wait(20)
    assert queue.ok(Tidy()) == 1
    assert (known(queue, first), known(queue, second)) == ([], [2])
    assert queue.state.results.count == 1
    queue.wait(100)
    queue.ok(Tidy())
    assert queue.state.results.row_bytes == queue.state.results.count == 0


def test_no_more_are_known_than_the_setting_says() -> None:
    queue = Driver(max_results=3)
    first = archive(queue, 1, 2)
    second = archive(queue, 3, 4)
    assert (known(queue, first[0]), known(queue, second[0])) == ([], [2])
    archive(queue, 1, 2, 3, 4)
    assert queue.state.results.count == 4  # Those that leave together are never parted.


def test_results_take_no_more_than_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketq.model.effects.archiving._MOST_BYTES", 1000)
    queue = Driver()
    for _ in range(20):
        archive(queue, 1)
    assert 800 < queue.state.results.row_bytes <= 1000


def test_none_are_known_with_a_retention_of_zero() -> None:
    queue = Driver(result_retention_s=0)
    archive(queue, 1)
    assert not queue.state.results


def test_rows_move_to_an_object(queue: Driver) -> None:
    for _ in range(3):
        archive(queue, 1)
    rows = tuple(queue.state.results)
    spill = SpillResults(id=OBJECT, until=999, rows=rows[:2])
    assert queue.ok(spill) == 2
    moved, left = queue.state.results
    assert (moved.id, moved.seq, moved.count, moved.has_moved) == (OBJECT, 2, 2, True)
    assert left == rows[2]
    assert queue.state.results.names() == {OBJECT}
    assert (queue.state.results.count, queue.state.results.row_bytes) == (3, left.size_bytes)
    assert "segments" in queue.state.requires
    queue.reload()
    assert list(queue.state.results) == [moved, left]
    assert queue.state.results.row_bytes == left.size_bytes
    assert queue.ok(spill) == 0


def test_rows_that_moved_are_forgotten_with_format_2(queue: Driver) -> None:
    archive(queue, 1)
    archive(queue, 2)
    first, second = queue.state.results
    queue.ok(SpillResults(id=OBJECT, until=999, rows=(first,)))
    queue.ok(Configure(changes={"max_format": 1}))
    assert list(queue.state.results) == [second]
    queue.reload()
    assert queue.ok(SpillResults(id=OBJECT, until=999, rows=(second,))) == 0


@pytest.mark.parametrize(
    "change", [{"until": 0}, {"rows": (ResultRow(id="1", seq=1, at=START, count=1),)}]
)
def test_rows_that_changed_and_objects_that_come_too_late_are_not_moved(
    queue: Driver, change: dict[str, Any]
) -> None:
    archive(queue, 1)
    rows = tuple(queue.state.results)
    spill = SpillResults(id=OBJECT, until=999, rows=rows)
    assert queue.ok(replace(spill, **change)) == 0
    assert tuple(queue.state.results) == rows


def test_hashes_are_found_only_where_they_begin() -> None:
    ids = [f"job-{number}" for number in range(2000)]
    row = ResultRow(id="1", seq=1, at=START, count=2000, files=(FILE,), hashes=hashes_of(ids))
    assert all(map(row.may_have, ids))
    assert not any(row.may_have(f"other-{number}") for number in range(2000))
    assert len(row.hashes) < 5.4 * len(ids)
