"""Consumers: one batch after the other, the identical set again, and one driver at a time."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.errors import ConsumerFencedError, InvalidRequestError, RejectedError
from bucketq.model.effects.operators import is_untidy
from bucketq.model.numbered_batches import (
    AckBatch,
    BatchPage,
    BatchState,
    ClaimBatch,
    ConsumerInfo,
    ConsumerState,
    OpenConsumer,
    ReadBatch,
    ReadConsumers,
    ReleaseBatch,
    RemoveConsumer,
)
from bucketq.model.operations import Cancel, Heartbeat, Pause, Tidy
from tests.unit.model.driver import START, Driver, ref

BATCH_SECRET = "ba7c4e" * 6
OTHER_SECRET = "0ff1ce" * 6
DAY_S = 86400.0


def claim(batch: int, epoch: int = 1, consumer: str = "spark", **fields: Any) -> ClaimBatch:
    defaults: dict[str, Any] = {"secret": BATCH_SECRET, "worker": "driver", "limit": 10}
    return ClaimBatch(consumer=consumer, epoch=epoch, batch=batch, **(defaults | fields))


def ack(batch: int, epoch: int = 1) -> AckBatch:
    return AckBatch(consumer="spark", epoch=epoch, batch=batch)


def release(batch: int, epoch: int = 1) -> ReleaseBatch:
    return ReleaseBatch(consumer="spark", epoch=epoch, batch=batch)


def read(batch: int = 1, **fields: Any) -> ReadBatch:
    return ReadBatch(consumer="spark", batch=batch, **fields)


def opened(*jobs: str, **settings: Any) -> Driver:
    """A queue with some jobs, and a consumer that was opened once."""
    queue = Driver(**settings)
    if jobs:
        queue.push_many(*jobs)
    assert queue.ok(OpenConsumer(consumer="spark")) == ConsumerState("spark", 1, 0, 0)
    return queue


def batch_of(queue: Driver, batch: int = 1) -> list[str]:
    return [job.id for job in queue.ok(read(batch)).jobs]


def test_a_batch_is_claimed_in_order_read_in_slices_and_acknowledged_in_one_go() -> None:
    queue = opened("1", "2", "3", "4")
    queue.push("0", priority=-1)
    assert queue.ok(claim(1, limit=4)) == BatchState(1, 4)
    page: BatchPage = queue.ok(read(limit=3))
    assert [job.id for job in page.jobs] == ["0", "1", "2"]
    assert all(job.worker == "driver" and job.attempt == 1 for job in page.jobs)
    assert page.next_start == 3
    rest: BatchPage = queue.ok(read(start=3, limit=3))
    assert [job.id for job in rest.jobs] == ["3"]
    assert rest.next_start is None
    assert queue.ok(ack(1)) == BatchState(1, 4)
    assert {queue.job(job_id).outcome for job_id in "0123"} == {"completed"}
    assert queue.ok(claim(2)) == BatchState(2, 1)


def test_a_batch_number_names_the_same_jobs_for_any_caller_and_secret() -> None:
    queue = opened("1", "2")
    queue.ok(claim(1))
    leases = [job.lease for job in queue.ok(read()).jobs]
    queue.push_many("3", "4")
    assert queue.ok(OpenConsumer(consumer="spark")) == ConsumerState("spark", 2, 1, 2)
    again = claim(1, epoch=2, secret=OTHER_SECRET, worker="other", kinds=("none",), limit=1)
    assert queue.ok(again) == BatchState(1, 2)
    queue.reload()
    assert [job.lease for job in queue.ok(read()).jobs] == leases


def test_claiming_again_counts_as_a_heartbeat() -> None:
    queue = opened("1")
    queue.ok(claim(1))
    queue.wait(20)
    assert queue.send(claim(1, lease_s=60.0)).changes
    job = queue.job("1")
    assert job.heartbeat_at == queue.now
    assert job.claimed_at == START
    assert job.lease_s == 60.0
    assert queue.send(claim(1, lease_s=60.0)).changes == []


def test_jobs_whose_lease_ran_out_are_taken_back_with_a_new_attempt() -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1))
    old = queue.job("2")
    queue.expire(old)
    page = queue.ok(read())
    assert ([job.id for job in page.jobs], page.lost) == (["1", "3"], ("2",))
    assert queue.ok(claim(1, secret=OTHER_SECRET)) == BatchState(1, 3)
    assert batch_of(queue) == ["1", "2", "3"]
    new = queue.job("2")
    assert new.attempt == 2
    assert not queue.ok(Heartbeat(leases=(ref(old),)))[0].held
    assert queue.ok(Heartbeat(leases=(ref(new),)))[0].held


def test_what_is_taken_back_leaves_its_place_in_the_line() -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1, limit=2))
    for job_id in ("1", "2", "1"):
        queue.expire(queue.job(job_id))
        assert queue.ok(claim(1)) == BatchState(1, 2)
    for job_id in "12":
        queue.expire(queue.job(job_id))
    assert queue.claim_ids() == ["1", "2", "3"]


def test_jobs_that_others_have_or_have_finished_are_lost_and_stay_in_the_batch() -> None:
    queue = opened("1", "2", "3", "4", max_attempts=1)
    queue.ok(claim(1))
    queue.complete(queue.job("1"))
    queue.fail(queue.job("2"))
    assert queue.job("2").status == "dead"
    queue.fail(queue.job("3"), retry=False)
    assert queue.ok(claim(1)) == BatchState(1, 1, ("1", "2", "3"))
    assert queue.ok(ack(1)) == BatchState(1, 1, ("1", "2", "3"))
    assert queue.job("2").status == "dead"


def test_a_job_that_another_worker_holds_is_not_completed_with_the_batch() -> None:
    queue = opened("1", "2")
    queue.ok(claim(1))
    queue.expire(queue.job("1"))
    [other] = queue.claim()
    assert queue.ok(claim(1)) == BatchState(1, 1, ("1",))
    assert queue.ok(ack(1)) == BatchState(1, 1, ("1",))
    assert queue.job("1") == other


def test_a_job_with_an_id_that_was_used_before_is_not_taken_for_the_one_of_the_batch() -> None:
    queue = opened("1", "2")
    queue.ok(claim(1))
    queue.expire(queue.job("1"))
    queue.ok(Cancel(job="1"))
    queue.let_go("1")
    queue.push("1")
    assert queue.ok(claim(1)) == BatchState(1, 1, ("1",))
    assert queue.job("1").status == "queued"


def test_a_job_that_waits_for_its_backoff_is_lost_until_it_is_due() -> None:
    queue = opened("1")
    queue.ok(claim(1))
    queue.fail(queue.job("1"))
    assert queue.ok(claim(1)) == BatchState(1, 0, ("1",))
    queue.wait(60)
    assert queue.ok(claim(1)) == BatchState(1, 1)


def test_an_empty_claim_changes_nothing_and_leaves_the_number_free() -> None:
    queue = opened()
    assert queue.send(claim(1)).changes == []
    assert queue.ok(claim(1)) == BatchState(1, 0)
    queue.push("1")
    assert queue.ok(claim(1)) == BatchState(1, 1)


def test_a_pause_holds_back_the_next_batch_but_not_the_open_one() -> None:
    queue = opened("1")
    queue.ok(Pause())
    assert queue.ok(claim(1)) == BatchState(1, 0)
    queue = opened("1")
    queue.ok(claim(1))
    queue.expire(queue.job("1"))
    queue.ok(Pause())
    assert queue.ok(claim(1)) == BatchState(1, 1)


def test_the_next_batch_has_to_wait_until_the_open_one_is_closed() -> None:
    queue = opened("1", "2")
    queue.ok(claim(1, limit=1))
    assert "batch 1 is open" in queue.refused(claim(2), InvalidRequestError)
    queue.ok(ack(1))
    assert queue.ok(claim(2)) == BatchState(2, 1)


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_any_other_number_is_refused_with_the_one_that_is_next(batch: int) -> None:
    queue = opened("1", "2")
    queue.ok(claim(1, limit=1))
    queue.ok(ack(1))
    assert "the next one to claim is 2" in queue.refused(claim(batch), InvalidRequestError)


def test_an_older_driver_is_fenced_and_changes_nothing() -> None:
    queue = opened("1", "2")
    queue.ok(claim(1, limit=1))
    queue.ok(OpenConsumer(consumer="spark"))
    for operation in (claim(1), claim(2), ack(1), release(1)):
        assert "another driver has opened" in queue.refused(operation, ConsumerFencedError)
    assert queue.ok(ack(1, epoch=2)) == BatchState(1, 1)


def test_an_epoch_that_was_never_given_is_refused() -> None:
    queue = opened("1")
    assert queue.refused(claim(1, epoch=2), ConsumerFencedError)
    assert queue.refused(claim(1, consumer="unknown"), ConsumerFencedError)


def test_acknowledging_again_or_an_older_batch_is_idempotent() -> None:
    queue = opened("1", "2")
    queue.ok(claim(1, limit=1))
    queue.ok(ack(1), "s", number=1)
    assert queue.ok(ack(1)) == BatchState(1, 0)
    queue.ok(claim(2))
    assert queue.send(ack(1)).changes == []
    assert queue.job("2").status == "running"


def test_a_batch_that_was_never_claimed_cannot_be_closed() -> None:
    queue = opened("1")
    assert "is not open" in queue.refused(ack(1), InvalidRequestError)
    assert "is not open" in queue.refused(release(1), InvalidRequestError)


def test_a_retry_is_answered_like_the_first_try() -> None:
    queue = opened("1", "2")
    queue.ok(claim(1))
    queue.complete(queue.job("1"))
    first = queue.ok(ack(1), "s", number=1)
    assert first == BatchState(1, 1, ("1",))
    queue.reload()
    assert queue.ok(ack(1), "s", number=1) == first
    state = queue.ok(OpenConsumer(consumer="spark"), "s", number=2)
    assert state.epoch == 2
    queue.reload()
    assert queue.ok(OpenConsumer(consumer="spark"), "s", number=2) == state
    assert queue.ok(OpenConsumer(consumer="spark"), "s", number=3).epoch == 3


def test_a_released_batch_gives_its_jobs_back_unharmed_and_uses_its_number_up() -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1, limit=2, lease_s=60.0))
    queue.complete(queue.job("1"))
    assert queue.ok(release(1)) == BatchState(1, 1, ("1",))
    job = queue.job("2")
    assert (job.status, job.lost_leases, job.failures, job.lease_s) == ("queued", 0, 0, None)
    assert queue.ok(release(1)) == BatchState(1, 0)
    queue.refused(claim(1), InvalidRequestError)
    queue.ok(claim(2))
    assert batch_of(queue, 2) == ["2", "3"]


@pytest.mark.parametrize("batch", [2, 9])
def test_a_batch_that_is_not_open_cannot_be_read(batch: int) -> None:
    queue = opened("1")
    assert "is not open" in queue.refused(read(batch), InvalidRequestError)
    queue.ok(claim(1))
    queue.refused(read(batch), InvalidRequestError)
    queue.ok(ack(1))
    queue.refused(read(1), InvalidRequestError)


def test_consumers_are_listed_without_their_secrets() -> None:
    queue = opened("1")
    queue.ok(claim(1))
    queue.ok(OpenConsumer(consumer="other"))
    assert queue.ok(ReadConsumers()) == (
        ConsumerInfo(name="spark", epoch=1, batch=1, pending=1, at=START),
        ConsumerInfo(name="other", epoch=1, batch=0, pending=0, at=START),
    )


def test_a_removed_consumer_gives_back_what_it_holds() -> None:
    queue = opened("1")
    queue.ok(claim(1))
    assert queue.ok(RemoveConsumer(consumer="spark")) is True
    assert queue.ok(RemoveConsumer(consumer="spark")) is False
    assert queue.job("1").status == "queued"
    assert queue.ok(ReadConsumers()) == ()
    assert "it was removed" in queue.refused(ack(1), ConsumerFencedError)


def test_there_is_a_limit_on_consumers_but_not_on_opening_one_again() -> None:
    queue = opened(max_consumers=1)
    assert "max_consumers" in queue.refused(OpenConsumer(consumer="b"), RejectedError)
    assert queue.ok(OpenConsumer(consumer="spark")).epoch == 2


def test_a_consumer_is_forgotten_when_it_was_not_used_for_long_unless_a_batch_is_open() -> None:
    queue = opened("1")
    queue.ok(OpenConsumer(consumer="idle"))
    queue.ok(claim(1))
    queue.wait(30 * DAY_S)
    assert not is_untidy(queue.state, queue.now)
    queue.wait(1)
    assert is_untidy(queue.state, queue.now)
    assert queue.ok(Tidy()) == 1
    assert [row.name for row in queue.ok(ReadConsumers())] == ["spark"]
    queue.ok(ack(1))
    queue.reload()
    queue.wait(30 * DAY_S + 1)
    assert is_untidy(queue.state, queue.now)
    queue.ok(Tidy())
    assert queue.ok(ReadConsumers()) == ()


def test_a_consumer_that_finds_nothing_for_long_is_not_forgotten() -> None:
    queue = opened()
    for _ in range(50):
        queue.wait(DAY_S)
        queue.ok(claim(1))
        queue.ok(Tidy())
    assert len(queue.ok(ReadConsumers())) == 1


@pytest.mark.parametrize(
    "operation",
    [
        OpenConsumer(consumer=""),
        OpenConsumer(consumer="n" * 300),
        claim(0),
        claim(-1),
        claim(2**63),
        claim(1, epoch=0),
        claim(1, secret="short"),
        claim(1, worker=""),
        claim(1, kinds=("bad kind",)),
        claim(1, limit=0),
        claim(1, limit=10_001),
        claim(1, lease_s=0.0),
        claim(1, lease_s=7 * DAY_S + 1),
        ack(0),
        release(0),
        read(0),
        read(1, start=-1),
        read(1, limit=0),
        read(1, limit=10_001),
        RemoveConsumer(consumer=""),
    ],
)
def test_nonsense_is_refused(operation: Any) -> None:
    queue = opened("1")
    queue.refused(operation, InvalidRequestError)


@pytest.mark.parametrize("reload", [False, True])
def test_a_batch_does_not_take_over_a_later_job_with_the_id_of_one_of_its_own(
    reload: bool,
) -> None:
    queue = opened("1", "2")
    queue.ok(claim(1))
    for job in queue.ok(read()).jobs:
        if job.id == "1":
            queue.expire(job)
    queue.ok(Cancel(job="1"))
    queue.let_go("1")
    queue.push("1")
    queue.expire(queue.claim_one())  # It has been claimed once, and waits again.
    if reload:
        queue.reload()
    assert queue.ok(claim(1)) == BatchState(1, 1, ("1",))
    assert queue.job("1").status == "queued"
    assert queue.ok(ack(1)) == BatchState(1, 1, ("1",))


def test_the_limit_of_an_earlier_batch_does_not_bind_the_open_one() -> None:
    """A writer that does not know the limit keeps that of the batch before, and claims the next."""
    queue = opened("1")
    queue.ok(claim(1))
    before = queue.state.consumers.by_id["spark"].seq_limit
    queue.ok(ack(1))
    queue.push("2")
    queue.ok(claim(2))
    record = queue.state.consumers.by_id["spark"]
    for limit in (before, None):
        queue.state.put_row(replace(record, seq_limit=limit))
        queue.reload()
        queue.expire(queue.job("2"))
        assert queue.ok(claim(2)) == BatchState(2, 1)


SIZES = {"1": 8, "2": 8, "3": 98, "4": 8, "5": 8, "6": 8}


@pytest.mark.parametrize("group", ["", "g"])
def test_a_batch_ends_before_its_payloads_have_too_many_bytes(group: str) -> None:
    """Also if groups take turns; a payload that is too large comes alone."""
    queue = opened(max_format=2)
    for job_id, size in SIZES.items():
        queue.push(job_id, payload="x" * size, group=group)
    for number, jobs in enumerate(("12", "3", "456"), 1):
        assert queue.ok(claim(number, max_bytes=30)) == BatchState(number, len(jobs))
        assert batch_of(queue, number) == [*jobs]
        queue.ok(ack(number))
    assert queue.ok(claim(4, max_bytes=30)) == BatchState(4, 0)


def test_a_batch_that_is_claimed_again_keeps_its_jobs_whatever_their_bytes() -> None:
    queue = opened()
    queue.push_many("1", "2", "3", payload="x" * 8)
    queue.ok(claim(1, max_bytes=20))
    assert queue.ok(claim(1, max_bytes=5)) == BatchState(1, 2)
    assert batch_of(queue) == ["1", "2"]
    queue.refused(claim(2, max_bytes=-1), InvalidRequestError)
