"""One operation acknowledges a batch and claims the next one: both or neither, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bucketq.errors import ConsumerFencedError, InvalidRequestError
from bucketq.model.indexes.cold_jobs import _READ_AHEAD as READ_AHEAD
from bucketq.model.indexes.cold_rows import ColdRowsNeededError, SegmentPart
from bucketq.model.limits import SetLimit
from bucketq.model.numbered_batches import (
    BatchState,
    ClaimBatch,
    OpenConsumer,
    SettleBatch,
    SettledJob,
)
from bucketq.model.operations import Pause, Push, Request
from bucketq.model.segments import Block
from bucketq.model.transitions import apply
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import Driver, new_job, rows_of
from tests.unit.model.effects.test_consumers import (
    OTHER_SECRET,
    ack,
    batch_of,
    claim,
    opened,
)


def next_one(batch: int, limit: int = 2, **fields: Any) -> ClaimBatch:
    """Claim a batch, and acknowledge the one before."""
    return claim(batch, acked=batch - 1, limit=limit, **{"secret": OTHER_SECRET} | fields)


def statuses(queue: Driver) -> str:
    """The first letters of what became of the jobs 1, 2, ...: (q)ueued, (r)unning, (d)one."""
    return "".join(job.status[0] for job in sorted(queue.state.jobs, key=lambda job: job.seq))


def test_a_batch_is_acknowledged_by_the_claim_of_the_next_one() -> None:
    queue = opened("1", "2", "3", "4")
    queue.ok(claim(1, limit=2))
    assert queue.ok(next_one(2)) == BatchState(2, 2, (), 2)
    assert statuses(queue) == "ddrr"
    assert queue.job("1").outcome == "completed"
    assert batch_of(queue, 2) == ["3", "4"]
    queue.reload()
    assert batch_of(queue, 2) == ["3", "4"]


def test_a_repetition_gives_the_same_batch_and_acknowledges_nothing() -> None:
    queue = opened("1", "2", "3", "4", "5")
    queue.ok(claim(1, limit=2))
    queue.ok(next_one(2))
    for _ in range(2):
        assert queue.ok(next_one(2, limit=1, secret="c0ffee" * 6)) == BatchState(2, 2)
        queue.reload()
    assert statuses(queue) == "ddrrq"


def test_without_more_jobs_the_batch_is_acknowledged_all_the_same_and_once() -> None:
    queue = opened("1", "2")
    queue.ok(claim(1, limit=2))
    assert queue.ok(next_one(2)) == BatchState(2, 0, (), 2)
    assert statuses(queue) == "dd"
    assert queue.send(next_one(2)).changes == []
    queue.push_many("3")
    assert queue.ok(next_one(2)) == BatchState(2, 1)


def test_a_batch_that_was_acknowledged_before_does_not_matter() -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1, limit=2))
    queue.ok(ack(1))
    assert queue.ok(next_one(2)) == BatchState(2, 1)


def test_jobs_that_others_have_finished_are_reported_and_not_completed_again() -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1, limit=2))
    queue.complete(queue.job("1"))
    assert queue.ok(next_one(2)) == BatchState(2, 1, (), 1, ("1",))


def test_a_job_whose_lease_ran_out_can_be_in_the_next_batch() -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1, limit=2))
    queue.expire(queue.job("1"))
    assert queue.ok(next_one(2)) == BatchState(2, 2, (), 1, ("1",))
    assert batch_of(queue, 2) == ["1", "3"]
    assert statuses(queue) == "rdr"


@pytest.mark.parametrize(("batch", "acked"), [(2, 2), (3, 1), (3, 2), (2, -1), (4, 3), (1, 1)])
def test_only_the_open_batch_before_can_be_acknowledged(batch: int, acked: int) -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1, limit=2))
    queue.refused(claim(batch, acked=acked), InvalidRequestError)
    assert statuses(queue) == "rrq"


def test_an_older_driver_acknowledges_and_claims_nothing() -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1, limit=2))
    queue.ok(OpenConsumer(consumer="spark"))
    queue.refused(next_one(2), ConsumerFencedError)
    assert statuses(queue) == "rrq"


def test_in_a_pause_a_batch_is_acknowledged_and_none_is_claimed() -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1, limit=2))
    queue.ok(Pause())
    assert queue.ok(next_one(2)) == BatchState(2, 0, (), 2)
    assert statuses(queue) == "ddq"


def test_a_batch_without_jobs_is_closed() -> None:
    queue = opened("1", "2")
    queue.ok(claim(1, limit=1))
    settled = SettledJob(job="1", lease=queue.job("1").lease or "")
    queue.ok(SettleBatch(consumer="spark", batch=1, jobs=(settled,)))
    queue.refused(claim(2), InvalidRequestError)
    assert queue.ok(next_one(2)) == BatchState(2, 1)


def test_jobs_of_a_batch_that_was_taken_apart_come_one_by_one() -> None:
    queue = opened("1", "2", "3")
    queue.ok(claim(1, limit=2))
    queue.ok(OpenConsumer(consumer="spark"))
    assert queue.ok(claim(1, epoch=2, max_failures=1)) == BatchState(1, 0)
    for batch, done in ((2, 0), (3, 1), (4, 1)):
        assert queue.ok(next_one(batch, epoch=2)) == BatchState(batch, 1, (), done)
    assert batch_of(queue, 4) == ["3"]
    assert statuses(queue) == "ddr"


def test_jobs_that_waited_for_the_batch_are_in_the_next_claim() -> None:
    queue = opened("1", max_format=2)
    queue.ok(Push(jobs=(new_job("2", after=("1",)),)))
    queue.ok(claim(1))
    assert queue.ok(next_one(2)) == BatchState(2, 0, (), 1)
    assert queue.ok(next_one(2)) == BatchState(2, 1)


def test_a_limit_is_never_exceeded_and_what_it_held_up_is_in_the_next_claim() -> None:
    queue = opened("1", "2", "3", "4", max_format=2)
    queue.ok(SetLimit(target="kind=index", running=2))
    assert queue.ok(claim(1)).jobs == 2
    assert queue.ok(next_one(2)) == BatchState(2, 0, (), 2)
    assert queue.ok(next_one(2)) == BatchState(2, 2)


def test_a_claim_that_needs_rows_of_a_segment_changes_nothing_before_they_are_read() -> None:
    queue = opened("1", "2", "3", "4", max_format=2)
    queue.ok(claim(1, limit=2))
    deep = DeepState(queue.state)
    spill = deep.spill("ready", queue.now, 2)
    assert spill is not None
    assert deep.apply(Request(spill), queue.now).error is None
    deep.reload()
    before = rows_of(deep.state)
    with pytest.raises(ColdRowsNeededError):
        apply(deep.state, Request(next_one(2)), queue.now)
    assert rows_of(deep.state) == before
    assert deep.apply(Request(next_one(2)), queue.now).answer == BatchState(2, 2, (), 2)


def test_a_claim_of_many_jobs_asks_at_once_for_all_blocks_that_it_needs() -> None:
    queue = opened(max_format=2)
    for first in range(0, 6_000, 1_000):
        queue.push_many(*(f"job-{number:05d}" for number in range(first, first + 1_000)))
    deep = DeepState(queue.state)
    spill = deep.spill("ready", queue.now, 6_000)
    assert spill is not None
    assert deep.apply(Request(spill), queue.now).error is None
    deep.reload()
    asked = list[int]()
    fetch = deep.memory.fetch

    def count(parts: Sequence[SegmentPart]) -> None:
        asked.append(sum(isinstance(part.what, Block) for part in parts))
        fetch(parts)

    deep.memory.fetch = count  # type: ignore[method-assign]
    found = deep.apply(Request(claim(1, limit=5_000)), queue.now).answer
    assert found == BatchState(1, 5_000)
    assert len([blocks for blocks in asked if blocks]) == 1, asked
    assert max(asked) > READ_AHEAD
