"""A batch that fails again and again is taken apart, and the job that does it is dead."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from bucketq.errors import InvalidRequestError, PayloadTooLargeError
from bucketq.model.numbered_batches import (
    AckBatch,
    BatchState,
    ClaimBatch,
    ConsumerState,
    OpenConsumer,
    ReadBatch,
    SettleBatch,
    SettledJob,
)
from bucketq.model.operations import Pause, Resume
from tests.unit.model.driver import Driver

SECRET = "ba7c4e" * 6
MOST = 2
"""How often a batch may fail here."""


class Consumer:
    """A consumer, and the drivers that use it one after the other."""

    def __init__(self, *jobs: str, **settings: Any) -> None:
        self.queue = Driver(**settings)
        self.queue.push_many(*jobs)
        self.state = ConsumerState("spark", 0, 0, 0)
        self.restart()

    def restart(self) -> ConsumerState:
        """Open the consumer, as the next driver does."""
        self.state = self.queue.ok(OpenConsumer(consumer="spark"))
        return self.state

    def claim(self, batch: int, most: int = MOST, limit: int = 10, **fields: Any) -> list[str]:
        """Claim a batch, or claim it again, and return its jobs."""
        claim = ClaimBatch(
            consumer="spark",
            epoch=self.state.epoch,
            batch=batch,
            secret=SECRET,
            worker="driver",
            limit=limit,
            max_failures=most,
            **fields,
        )
        state: BatchState = self.queue.ok(claim)
        if self.queue.state.consumers.by_id["spark"].batch != batch:
            assert state == BatchState(batch, 0)
            return []
        jobs = [job.id for job in self.queue.ok(ReadBatch(consumer="spark", batch=batch)).jobs]
        assert (state.jobs, state.lost) == (len(jobs), ())
        return jobs

    def ack(self, batch: int) -> BatchState:
        """Acknowledge a batch."""
        done: BatchState = self.queue.ok(
            AckBatch(consumer="spark", epoch=self.state.epoch, batch=batch)
        )
        return done

    def settle(self, batch: int, *jobs: SettledJob) -> BatchState:
        """Settle some jobs."""
        done: BatchState = self.queue.ok(SettleBatch(consumer="spark", batch=batch, jobs=jobs))
        return done

    def lease(self, job_id: str) -> str:
        """The lease under which a job runs."""
        return self.queue.job(job_id).lease or ""


def test_replays_are_counted_and_renewals_are_not() -> None:
    consumer = Consumer("1", "2")
    for failures in range(MOST):
        assert consumer.claim(1) == ["1", "2"]
        assert consumer.claim(1) == ["1", "2"]
        assert consumer.queue.state.consumers.by_id["spark"].info().failures == failures
        assert consumer.restart().pending == 2
    assert consumer.claim(1, most=0) == ["1", "2"], "0: any number"


def test_a_batch_that_failed_too_often_replays_as_empty_and_its_jobs_come_alone() -> None:
    consumer = Consumer("1", "poison", "3", "4", max_attempts=3)
    assert consumer.claim(1, limit=3) == ["1", "poison", "3"]
    for _ in range(MOST - 1):
        consumer.restart()
        assert consumer.claim(1) == ["1", "poison", "3"]
    consumer.restart()
    assert consumer.claim(1) == []
    # It stays empty, however often it is repeated.
    for _ in range(2):
        assert consumer.restart() == ConsumerState(
            "spark", consumer.state.epoch, 1, 0, is_empty=True
        )
        assert consumer.claim(1) == []
    assert consumer.ack(1) == BatchState(1, 0)
    assert consumer.queue.state.consumers.by_id["spark"].info().apart == 3
    assert consumer.claim(2) == ["1"]
    assert consumer.ack(2) == BatchState(2, 1)
    assert consumer.claim(3) == ["poison"]
    for failures in (1, 2):
        consumer.restart()
        assert consumer.claim(3) == ["poison"], "the identical batch"
        assert consumer.queue.job("poison").failures == failures
    consumer.restart()
    assert consumer.claim(3) == []
    assert consumer.queue.job("poison").status == "dead"
    assert "had this job alone" in consumer.queue.job("poison").errors[-1].error
    consumer.restart()
    assert consumer.claim(3) == [], "also if it is repeated once more"
    consumer.ack(3)
    assert consumer.claim(4) == ["3"]
    consumer.ack(4)
    assert consumer.claim(5) == ["4"], "an ordinary batch again"
    for job_id in ("1", "3"):
        assert consumer.queue.job(job_id).outcome == "completed"
        assert consumer.queue.job(job_id).failures == 0


def taken_apart(*jobs: str, **settings: Any) -> Consumer:
    """A consumer whose first batch was taken apart."""
    consumer = Consumer(*jobs, **settings)
    assert consumer.claim(1, most=1) == [*jobs]
    consumer.restart()
    assert consumer.claim(1, most=1) == []
    consumer.ack(1)
    return consumer


def test_what_another_worker_has_is_left_to_it() -> None:
    consumer = taken_apart("1", "2")
    job = consumer.queue.claim_one()
    assert job.id == "1"
    assert consumer.claim(2) == ["2"]
    consumer.ack(2)
    assert consumer.claim(3) == []
    assert consumer.queue.state.consumers.by_id["spark"].info().apart == 0


def test_what_is_paused_or_of_another_kind_does_not_come() -> None:
    consumer = taken_apart("1", "2")
    consumer.queue.ok(Pause())
    assert consumer.claim(2) == []
    consumer.queue.ok(Resume())
    assert consumer.claim(2, kinds=("none",)) == []
    assert consumer.claim(2) == ["1"]


def done(consumer: Consumer, job_id: str, result: bytes = b"7") -> SettledJob:
    return SettledJob(job=job_id, lease=consumer.lease(job_id), result=Raw(result))


def failed(consumer: Consumer, job_id: str, **fields: Any) -> SettledJob:
    return SettledJob(job=job_id, lease=consumer.lease(job_id), error="no", **fields)


def test_jobs_are_settled_one_by_one_and_leave_the_batch() -> None:
    consumer = Consumer("1", "2", "3", "4")
    consumer.claim(1)
    jobs = (done(consumer, "1"), failed(consumer, "2"), failed(consumer, "3", retry=False))
    assert consumer.settle(1, *jobs) == BatchState(1, 3)
    assert bytes(consumer.queue.job("1").result) == b"7"
    found = {job_id: consumer.queue.job(job_id).status for job_id in "1234"}
    assert found == {"1": "done", "2": "queued", "3": "dead", "4": "running"}
    assert consumer.queue.job("2").errors[-1].error == "no"
    assert consumer.settle(1, *jobs) == BatchState(1, 0, ("1", "2", "3")), "they are not in it now"
    consumer.restart()
    assert consumer.claim(1) == ["4"], "nothing of it is lost"
    assert consumer.ack(1) == BatchState(1, 1)


def test_a_batch_of_which_all_jobs_are_settled_is_open_until_it_is_acknowledged() -> None:
    consumer = Consumer("1", "2")
    consumer.claim(1)
    consumer.settle(1, done(consumer, "1"), done(consumer, "2"))
    assert consumer.restart() == ConsumerState("spark", 2, 1, 0, is_empty=True)
    assert consumer.claim(1) == []
    assert consumer.ack(1) == BatchState(1, 0)
    assert consumer.restart() == ConsumerState("spark", 3, 1, 0)


def test_settling_needs_the_leases_of_an_open_batch() -> None:
    consumer = Consumer("1", "2")
    consumer.claim(1)
    wrong = SettledJob(job="1", lease="0" * 32)
    assert consumer.settle(1, wrong) == BatchState(1, 0, ("1",))
    refused = consumer.queue.refused
    twice = (done(consumer, "1"), done(consumer, "1"))
    refused(SettleBatch(consumer="spark", batch=1, jobs=twice), InvalidRequestError)
    refused(SettleBatch(consumer="spark", batch=2, jobs=()), InvalidRequestError)
    refused(SettleBatch(consumer="other", batch=1, jobs=()), InvalidRequestError)
    large = (done(consumer, "2", b'"%b"' % (b"x" * (1 << 20))), failed(consumer, "1"))
    refused(SettleBatch(consumer="spark", batch=1, jobs=large), PayloadTooLargeError)


def test_a_retried_settling_has_the_first_answer() -> None:
    consumer = Consumer("1", "2")
    consumer.claim(1)
    jobs = (done(consumer, "1"), SettledJob(job="2", lease="0" * 32))
    operation = SettleBatch(consumer="spark", batch=1, jobs=jobs)
    for _ in range(2):
        answer = consumer.queue.ok(operation, "session", number=1)
        assert answer == BatchState(1, 1, ("2",))


@pytest.mark.parametrize("most", [-1, 1.5, True])
def test_the_number_of_failures_is_checked(most: Any) -> None:
    consumer = Consumer("1")
    claim = ClaimBatch(
        consumer="spark", epoch=1, batch=1, secret=SECRET, worker="w", max_failures=most
    )
    consumer.queue.refused(claim, InvalidRequestError)
