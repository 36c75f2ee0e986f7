"""A workbench fires schedules while its clock is advanced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketq import InvalidRequestError, Worker
from bucketq.testing import Workbench, workbench

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)


def tasks() -> Worker:
    worker = Worker()

    @worker.schedule("nightly", cron="30 2 * * *", timezone="Europe/Berlin", payload="report")
    def nightly(payload: str) -> str:
        return payload

    return worker


def test_each_due_time_fires_at_its_time() -> None:
    with Workbench(tasks(), at=NOON) as bench:
        bench.advance(timedelta(days=3))
        assert [job.pushed_at for job in bench.jobs("nightly")] == [
            datetime(2026, 3, 29, 1, 0, tzinfo=UTC),
            datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
            datetime(2026, 3, 31, 0, 30, tzinfo=UTC),
        ]
        assert bench.now == NOON + timedelta(days=3)
        assert [ran.end for ran in bench.run()] == ["done"] * 3


def test_the_clock_can_be_moved_to_the_next_due_time() -> None:
    with Workbench(tasks(), at=NOON) as bench:
        assert bench.advance_to_next()
        assert bench.now == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
        assert bench.pushed("nightly") == ["report"]


def test_several_schedules_take_turns_and_a_paused_one_does_not() -> None:
    with Workbench(at=NOON) as bench:
        queue: Any = bench.queue
        queue.schedule("a", "mail", "a", every_s=60)
        queue.schedule("b", "mail", "b", every_s=90)
        queue.schedule("c", "mail", "c", every_s=10)
        queue.pause_schedule("c")
        bench.advance(200)
        assert bench.pushed() == ["a", "b", "a", "a", "b"]


def test_a_run_that_finds_the_queue_full_is_made_up_for() -> None:
    with Workbench(at=NOON) as bench:
        bench.queue.configure(max_jobs=1)
        bench.queue.push("other", 1)
        bench.queue.schedule("a", "mail", "a", every_s=60)
        bench.advance(150)
        assert bench.pushed("mail") == []
        [job] = bench.queue.claim("other")
        bench.queue.complete(job)
        bench.advance(60)
        assert bench.pushed("mail") == ["a"]


def test_an_endless_advance_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench, "_MOST_STOPS", 20)
    with Workbench(at=NOON) as bench:
        bench.queue.configure(max_jobs=1)
        bench.queue.schedule("a", "mail", "a", every_s=1, alone=True)
        with pytest.raises(InvalidRequestError, match="smaller steps"):
            bench.advance(timedelta(days=30))
