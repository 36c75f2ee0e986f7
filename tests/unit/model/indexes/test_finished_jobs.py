"""Finished jobs wait for the archive in the order in which they finished."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from bucketq.model.effects.archiving import is_due
from bucketq.model.indexes.finished_jobs import FinishedJobs
from bucketq.model.outbox import Archived, ArchivedPart, ReadOutbox
from bucketq.model.records import JobRecord
from tests.unit.model.driver import START, Driver


def finished(seq: int, at_s: float = 0.0, job_id: str = "") -> JobRecord:
    return JobRecord(
        id=job_id or f"j{seq}",
        kind="k",
        status="done",
        seq=seq,
        payload=Raw(b"1"),
        pushed_at=START,
        finished_at=START + timedelta(seconds=at_s),
        outcome="completed",
    )


def size_bytes(jobs: list[JobRecord]) -> int:
    return sum(len(msgspec.json.encode(job)) + 2 for job in jobs)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@given(st.lists(st.tuples(st.lists(st.integers(-5, 5), max_size=4), st.integers(0, 4))))
def test_finished_jobs_are_in_order_whatever_the_clock_did_and_which_left(
    steps: list[tuple[list[int], int]],
) -> None:
    done, seq = FinishedJobs(), 0
    there: list[JobRecord] = []
    for moments, leaving in steps:
        new = [finished(number, at_s) for number, at_s in enumerate(moments, start=seq + 1)]
        seq += len(new)
        done.add_all(new)
        there += new
        left = [there.pop(seq % len(there)) for _ in range(min(leaving, len(there)))]
        assert done.remove_all(left) == size_bytes(left)
        there.sort(key=lambda job: (job.finished_at, job.seq))
        assert list(done) == there
        assert done.oldest() == (there[0] if there else None)
        assert done.newest() == (there[-1].finished_at if there else None)
        assert len(done) == len(there)
        assert done.size_bytes == size_bytes(there)


def test_a_later_job_under_the_same_id_is_not_taken_for_the_one_that_left() -> None:
    done = FinishedJobs()
    done.add_all([finished(1, job_id="again")])
    done.remove_all([finished(1, job_id="again")])
    done.add_all([finished(2, job_id="again")])
    assert [job.seq for job in done] == [2]


@pytest.mark.parametrize("others", [0, 2])
def test_the_line_of_a_job_is_one_line_and_of_all_jobs_or_none(others: int) -> None:
    done = FinishedJobs()
    broken = replace(finished(1), payload=Raw(b'{"a":\n1}'))
    jobs = [broken, *(finished(seq) for seq in range(2, 2 + others))]
    done.add_all(jobs)
    lines = done.lines_of(jobs)
    assert lines is not None
    assert [msgspec.json.decode(line)["id"] for line in lines] == [job.id for job in jobs]
    assert not any(b"\n" in line for line in lines)
    assert [done.bytes_of(job) for job in jobs] == [len(line) + 2 for line in lines]
    assert done.lines_of([*jobs, finished(9), *jobs]) is None
    assert done.lines_of([finished(9)]) is None


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("last_at", [None, 0.0])
def test_jobs_of_one_moment_are_in_the_order_of_their_numbers(
    last_at: float | None, *, together: bool
) -> None:
    done = FinishedJobs()
    jobs = [finished(2), finished(1), replace(finished(3), finished_at=None)]
    if last_at is not None:
        jobs[2] = finished(3, last_at)
    for some in [jobs] if together else [[job] for job in jobs]:
        done.add_all(some)
    assert [job.seq for job in done] == [1, 2, 3]


def test_what_leaves_for_its_bytes_is_read_once() -> None:
    queue = Driver()
    queue.push_many("j1", "j2", "j3")
    for job in queue.claim(limit=3):
        queue.complete(job)
    read = ReadOutbox(min_age_s=0.0, keep_bytes=queue.state.done.size_bytes * 2 // 3)
    assert [job.id for job, _ in queue.ok(read).jobs] == ["j1", "j2", "j3"]


def test_jobs_that_left_are_forgotten() -> None:
    done = FinishedJobs()
    jobs = [finished(seq, -seq if seq % 2 else seq) for seq in range(100)]
    done.add_all(jobs)
    done.remove_all(jobs)
    assert not any((done._run, done._late, done._lines))


def test_a_job_is_due_by_its_age_or_if_it_finished_far_in_the_future() -> None:
    done = FinishedJobs()
    assert not is_due(done, 0.0, after(0))
    done.add_all([finished(1)])
    assert is_due(done, 0.0, after(0))
    assert [is_due(done, 10.0, after(at_s)) for at_s in (9, 10)] == [False, True]
    assert [is_due(done, 10.0, after(at_s)) for at_s in (-9, -10)] == [False, True]


def test_the_outbox_is_read_by_age_from_the_oldest_on() -> None:
    queue = Driver()
    queue.push_many("j1", "j2", "j3", "ahead", "running")
    one, two, three, ahead, _ = queue.claim(limit=5)
    for job in (three, one):
        queue.complete(job)
        queue.wait(1)
    queue.wait(3600)
    queue.complete(ahead)
    queue.wait(-3600)
    queue.complete(two)

    def ids(**fields: float) -> list[str]:
        read = ReadOutbox(**fields)  # type: ignore[arg-type]
        return [job.id for job, _ in queue.ok(read).jobs]

    assert ids() == ["j3", "j1", "j2", "ahead"]
    assert ids(limit=2) == ["j3", "j1"]
    assert ids(min_age_s=1.0) == ["j3", "j1", "ahead"]
    assert ids(min_age_s=2.0, limit=1) == ["j3"]
    queue.ok(Archived(parts=(ArchivedPart((("ahead", ahead.seq),)),)))
    assert ids(min_age_s=1.0) == ["j3", "j1"]
    assert ids(min_age_s=7200.0) == []


def test_younger_jobs_are_read_too_until_what_stays_is_small_enough() -> None:
    queue = Driver()
    queue.push_many("j1", "j2", "j3", "j4")
    for job in queue.claim(limit=4):
        queue.complete(job)
    line = queue.state.done.size_bytes // 4

    def count(keep_bytes: int) -> int:
        return len(queue.ok(ReadOutbox(min_age_s=60.0, keep_bytes=keep_bytes)).jobs)

    assert [count(keep * line) for keep in (0, 1, 2, 3, 4, 9)] == [4, 3, 2, 1, 0, 0]
    assert count(line - 1) == 4
