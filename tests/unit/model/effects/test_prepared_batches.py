"""The next batch of a consumer is reserved while one is open, and costs its jobs nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.errors import ConsumerFencedError, InvalidRequestError
from bucketq.model.numbered_batches import (
    BatchState,
    ConsumerState,
    OpenConsumer,
    PrepareBatch,
    ReadBatch,
    ReleaseBatch,
    RemoveConsumer,
)
from bucketq.model.operations import Cancel, Pause, Push
from bucketq.model.side_objects import PART_BYTES, SideRef, new_digest, object_name, write_ref
from tests.unit.model.driver import Driver, new_job
from tests.unit.model.effects.test_ack_and_claim import next_one, statuses
from tests.unit.model.effects.test_consumers import ack, batch_of, claim, opened, release

THIRD_SECRET = "5eed" * 8


def prepare(batch: int, limit: int = 2, **fields: Any) -> PrepareBatch:
    """Prepare a batch."""
    asked: dict[str, Any] = {
        "consumer": "spark",
        "epoch": 1,
        "secret": THIRD_SECRET,
        "worker": "driver",
    }
    return PrepareBatch(**asked | {"batch": batch, "limit": limit} | fields)


def prepared(*ids: str) -> Driver:
    """A queue whose consumer has two jobs in batch 1, and has prepared two for batch 2."""
    queue = opened(*(ids or ("1", "2", "3", "4", "5")))
    queue.ok(claim(1, limit=2))
    assert queue.ok(prepare(2)) == BatchState(2, 2)
    return queue


def test_the_claim_of_the_next_batch_hands_out_what_was_prepared() -> None:
    queue = prepared()
    queue.push_many("0", priority=-1)  # It would be taken first, and comes later.
    assert statuses(queue) == "rrrrqq"
    queue.reload()
    assert batch_of(queue, 2) == ["3", "4"], "it can be read before"
    leases = [queue.job(name).lease for name in "34"]
    assert queue.ok(next_one(2)) == BatchState(2, 2, (), 2, prepared=2)
    assert statuses(queue) == "ddrrqq"
    queue.reload()
    assert batch_of(queue, 2) == ["3", "4"]
    assert [queue.job(name).lease for name in "34"] == leases
    assert queue.ok(prepare(3)) == BatchState(3, 2)
    assert batch_of(queue, 3) == ["0", "5"]


def test_preparing_again_changes_nothing() -> None:
    queue = prepared()
    for _ in range(2):
        assert queue.send(prepare(2, limit=5, secret="c0ffee" * 6)).changes == []
        queue.reload()
    assert batch_of(queue, 2) == ["3", "4"]


def test_an_acknowledgement_alone_leaves_it_prepared() -> None:
    queue = prepared()
    queue.ok(ack(1))
    assert queue.ok(claim(2, limit=2)) == BatchState(2, 2, prepared=2)
    assert batch_of(queue, 2) == ["3", "4"]


@pytest.mark.parametrize("batch", [1, 3])
def test_only_the_batch_after_the_open_one_can_be_prepared(batch: int) -> None:
    queue = opened("1", "2", "3")
    queue.refused(prepare(1), InvalidRequestError)
    queue.ok(claim(1, limit=1))
    queue.refused(prepare(batch), InvalidRequestError)
    queue.ok(ack(1))
    queue.refused(prepare(2), InvalidRequestError)


def test_an_older_driver_prepares_nothing() -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1, limit=2))
    queue.ok(OpenConsumer(consumer="spark"))
    queue.refused(prepare(2), ConsumerFencedError)


def test_the_next_driver_finds_both_batches_as_they_were() -> None:
    queue = prepared()
    answer = queue.ok(OpenConsumer(consumer="spark"))
    assert answer == ConsumerState("spark", 2, 1, 2, prepared=2)
    queue.wait(20)
    assert queue.ok(claim(1, epoch=2)) == BatchState(1, 2)
    assert {queue.job(name).heartbeat_at for name in "1234"} == {queue.now}, "both are renewed"
    queue.wait(20)
    queue.ok(ack(1, epoch=2))
    assert queue.ok(claim(2, epoch=2, limit=2)) == BatchState(2, 2, prepared=2)
    assert batch_of(queue, 2) == ["3", "4"]
    assert {queue.job(name).heartbeat_at for name in "34"} == {queue.now}


def test_a_lease_that_expires_costs_the_job_nothing_and_it_is_not_in_the_batch() -> None:
    queue = prepared()
    queue.expire(queue.job("3"))
    job = queue.job("3")
    assert (job.status, job.lost_leases, job.errors) == ("queued", 0, ())
    assert queue.ok(next_one(2)) == BatchState(2, 1, (), 2, prepared=1)
    assert batch_of(queue, 2) == ["4"]
    queue.expire(queue.job("4"))
    assert queue.job("4").lost_leases == 1, "it is in a batch now"


def test_the_last_attempt_is_not_used_up_by_a_reservation() -> None:
    queue = opened()
    queue.ok(Push(jobs=tuple(new_job(name, max_attempts=1) for name in "123")))
    queue.ok(claim(1, limit=1))
    queue.ok(prepare(2))
    for name in "123":
        queue.expire(queue.job(name))
    assert [queue.job(name).status for name in "123"] == ["dead", "queued", "queued"]


def test_if_all_of_it_is_lost_the_claim_takes_others() -> None:
    queue = prepared()
    for name in "34":
        queue.expire(queue.job(name))
    assert queue.ok(next_one(2)) == BatchState(2, 2, (), 2)
    assert batch_of(queue, 2) == ["3", "4"]
    assert queue.job("3").attempt == 2


def test_it_is_released_without_using_up_its_number() -> None:
    queue = prepared()
    assert queue.ok(release(2)) == BatchState(2, 2)
    assert statuses(queue) == "rrqqq"
    queue.refused(release(2), InvalidRequestError)
    assert queue.ok(next_one(2, limit=3)) == BatchState(2, 3, (), 2)


def test_removing_the_consumer_releases_both() -> None:
    queue = prepared()
    assert queue.ok(RemoveConsumer(consumer="spark")) is True
    assert statuses(queue) == "qqqqq"


def test_in_a_pause_it_is_released() -> None:
    queue = prepared()
    queue.ok(Pause())
    assert queue.ok(next_one(2)) == BatchState(2, 0, (), 2)
    assert statuses(queue) == "ddqqq"


def test_a_claim_gets_only_what_it_asks_for() -> None:
    queue = opened()
    kinds = {"1": "a", "2": "a", "3": "b", "4": "a", "5": "a", "6": "a"}
    queue.ok(Push(jobs=tuple(new_job(name, kind=kind) for name, kind in kinds.items())))
    queue.ok(claim(1, limit=1))
    queue.ok(prepare(2, limit=5))
    queue.ok(Cancel(job="4"))
    answer = queue.ok(next_one(2, limit=2, kinds=("a",)))
    assert answer == BatchState(2, 2, (), 1, prepared=2)
    assert batch_of(queue, 2) == ["2", "5"]
    assert [queue.job(name).status for name in "346"] == ["queued", "done", "queued"]
    assert queue.job("4").outcome == "cancelled"


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        (Cancel(job="4"), {}),
        (Pause(kind="b"), {}),
        (None, {"kinds": ("a",)}),
        (None, {"limit": 2}),
        (None, {"max_bytes": 500_000}),
    ],
    ids=["cancelled", "paused", "kinds", "limit", "bytes"],
)
def test_one_job_that_a_claim_does_not_get_is_enough(
    before: Cancel | Pause | None, asked: dict[str, Any]
) -> None:
    """Most claims get all of them, which is decided at once."""
    queue = opened()
    kinds = {"1": "a", "2": "a", "3": "a", "4": "b"}
    jobs = [new_job(name, kind=kind) for name, kind in kinds.items()]
    if "max_bytes" in asked:
        queue.state.settings = replace(queue.state.settings, max_format=2)
        digest = new_digest(b"").hexdigest()
        name = object_name(queue.state.incarnation, 10, digest, "0" * 16)
        large = write_ref(SideRef(name, asked["max_bytes"], digest, PART_BYTES))
        jobs[3] = replace(jobs[3], payload=large, payload_encoding="object")
    queue.ok(Push(jobs=tuple(jobs)))
    queue.ok(claim(1, limit=1))
    assert queue.ok(prepare(2, limit=3)) == BatchState(2, 3)
    if before is not None:
        queue.ok(before)
    answer = queue.ok(next_one(2, **{"limit": 3} | asked))
    assert answer == BatchState(2, 2, (), 1, prepared=2)
    assert batch_of(queue, 2) == ["2", "3"]


def test_a_claim_gets_only_as_many_bytes_as_it_asks_for() -> None:
    queue = prepared()
    assert queue.ok(next_one(2, max_bytes=1)) == BatchState(2, 1, (), 2, prepared=1)
    assert statuses(queue) == "ddrqq"


def test_jobs_that_come_alone_come_first() -> None:
    queue = prepared()
    queue.ok(OpenConsumer(consumer="spark"))
    assert queue.ok(claim(1, epoch=2, max_failures=1)) == BatchState(1, 0)
    assert queue.ok(next_one(2, epoch=2)) == BatchState(2, 1)
    assert batch_of(queue, 2) == ["1"]
    assert statuses(queue) == "rqqqq", "the reservation is given up"
    assert queue.ok(prepare(3, epoch=2)) == BatchState(3, 0)


def test_a_job_under_an_id_used_before_is_not_in_it() -> None:
    queue = prepared()
    queue.complete(queue.job("3"))
    queue.let_go("3")
    queue.push_many("3")
    assert queue.ok(next_one(2)) == BatchState(2, 1, (), 2, prepared=1)
    assert batch_of(queue, 2) == ["4"]


def test_what_a_writer_passed_over_that_does_not_know_it_does_not_count() -> None:
    queue = prepared()
    record = queue.state.consumers.by_id["spark"]
    queue.ok(release(2))
    queue.ok(next_one(2, limit=1))
    kept = queue.state.consumers.by_id["spark"]
    queue.state.put_row(replace(kept, prepared=record.prepared))
    assert queue.state.consumers.by_id["spark"].ahead is None
    assert queue.ok(prepare(3, limit=1)) == BatchState(3, 1)


def test_a_batch_that_is_not_prepared_cannot_be_read() -> None:
    queue = prepared()
    queue.refused(ReadBatch(consumer="spark", batch=3), InvalidRequestError)
    queue.ok(ReleaseBatch(consumer="spark", epoch=1, batch=2))
    queue.refused(ReadBatch(consumer="spark", batch=2), InvalidRequestError)
