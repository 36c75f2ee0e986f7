"""What a queue can do, it can do in a workbench: each feature as a test of a user would use it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bucketq import (
    BatchCounts,
    Context,
    GiveUp,
    JobFailedError,
    JobSpec,
    Progress,
    Snooze,
    Worker,
)
from bucketq.testing import Workbench

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)


def test_a_job_that_is_put_off_runs_when_its_time_has_come() -> None:
    worker, is_ready = Worker(), False

    @worker.handler("poll")
    def poll(_: None) -> str:
        if not is_ready:
            raise Snooze(60)
        return "there"

    with Workbench(worker, at=NOON) as bench:
        job_id = bench.queue.push("poll", None)
        assert [ran.end for ran in bench.run()] == ["snoozed"]
        is_ready = True
        assert bench.run() == []
        bench.advance(60)
        assert [ran.end for ran in bench.run()] == ["done"]
        assert bench.queue.wait(job_id) == "there"
        assert bench.queue.get(job_id).snoozes == 1


def test_what_a_handler_pushes_exists_if_and_only_if_its_job_completed() -> None:
    worker = Worker()

    @worker.handler("order", max_attempts=1)
    async def order(number: int, context: Context) -> None:
        await context.push("mail", number)
        if number < 0:
            raise GiveUp("there is no such order")

    with Workbench(worker) as bench:
        bench.queue.push("order", -1)
        bench.queue.push("order", 7)
        bench.run(kinds=["order"])
        assert bench.pushed("mail") == [7]


def test_a_batch_ends_with_its_callback_and_a_job_waits_for_others() -> None:
    worker = Worker()

    @worker.handler("page", max_attempts=1)
    def page(number: int) -> None:
        if number == 2:
            raise GiveUp("no such page")

    @worker.handler("report")
    def report(_: str) -> None:
        pass

    with Workbench(worker) as bench:
        with bench.queue.batch(on_done=JobSpec(kind="report", payload="pages")) as batch:
            first, second = (batch.push("page", number) for number in (1, 2))
        bench.queue.push("report", "one", after=[first])
        bench.queue.push("report", "both", after=[first, second])
        bench.run()
        reports = {job.payload: job for job in bench.jobs("report")}
        assert {name: job.status for name, job in reports.items()} == {
            "pages": "done",
            "one": "done",
            "both": "dead",
        }
        assert reports["pages"].done_batch == BatchCounts(batch.id, 2, completed=1, dead=1)


def test_a_unique_name_is_free_again_after_its_period() -> None:
    with Workbench(at=NOON) as bench:
        first = bench.queue.push("index", 1, unique="user-17", unique_scope=60)
        again = bench.queue.push("index", 2, unique="user-17", unique_scope=60)
        assert again == first
        assert again.duplicate
        bench.advance(61)
        assert not bench.queue.push("index", 3, unique="user-17", unique_scope=60).duplicate
        assert bench.pushed("index") == [1, 3]


def test_a_rate_lets_jobs_start_as_the_clock_moves_and_groups_take_turns() -> None:
    worker, seen = Worker(), list[str]()

    @worker.handler("mail")
    def mail(to: str) -> None:
        seen.append(to)

    with Workbench(worker, at=NOON) as bench:
        bench.queue.limit(kind="mail", rate=2, period_s=60)
        for name in ("a1", "a2", "a3", "b1"):
            bench.queue.push("mail", name, group=name[0])
        bench.run()
        assert seen == ["a1", "b1"]
        bench.advance(30)
        bench.run()
        assert seen == ["a1", "b1", "a2"]
        bench.advance(30)
        bench.run()
        assert seen == ["a1", "b1", "a2", "a3"]


def test_results_errors_and_progress_are_seen() -> None:
    worker = Worker()

    @worker.handler("film", max_attempts=1)
    async def film(frames: int, context: Context) -> int:
        await context.progress(frames / 2, frames, "frames")
        if frames > 100:
            raise GiveUp("too long")
        return frames * 2

    with Workbench(worker) as bench:
        short, long = bench.queue.push("film", 10), bench.queue.push("film", 200)
        assert [ran.progress for ran in bench.run()] == [
            Progress(5.0, 10.0, "frames"),
            Progress(100.0, 200.0, "frames"),
        ]
        assert bench.queue.wait(short) == 20
        with pytest.raises(JobFailedError, match="too long"):
            bench.queue.wait(long)


async def test_async_code_pushes_batches_too() -> None:
    with Workbench() as bench:
        async with bench.async_queue.batch(on_done=JobSpec(kind="report", payload=0)) as batch:
            await batch.push("page", 1)
            await batch.push_many([JobSpec(kind="page", payload=2)])
        assert bench.pushed("page") == [1, 2]
        assert (await bench.async_queue.get_batch(batch.id)).status == "closed"
