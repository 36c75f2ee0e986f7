"""Batches: the callback is pushed once, by the commit that ends the last job of a closed batch."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from bucketq.errors import (
    BatchNotFoundError,
    InvalidRequestError,
    KeyConflictError,
    RejectedError,
)
from bucketq.model.base import NewJob
from bucketq.model.effects.operators import is_untidy
from bucketq.model.job_batches import (
    BatchRecord,
    CancelBatch,
    CloseBatch,
    OpenBatch,
    ReadBatches,
)
from bucketq.model.operations import (
    Cancel,
    CompleteMany,
    Completion,
    Configure,
    Purge,
    Push,
    Redrive,
    Request,
    Tidy,
)
from bucketq.model.records import BatchCounts, JobRecord
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import START, Driver, lease_of, new_job

DONE = new_job("", "report", {"mail": "ada"}, priority=3, tags={"team": "red"})


@pytest.fixture
def queue() -> Driver:
    return Driver(max_format=2)


def batch(queue: Driver, name: str = "b1") -> BatchRecord:
    (found,) = queue.ok(ReadBatches(batch=name))
    assert isinstance(found, BatchRecord)
    return found


def callbacks(queue: Driver) -> list[JobRecord]:
    return [job for job in queue.state.jobs if job.kind == "report"]


def test_the_callback_comes_with_the_end_of_the_last_job(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    queue.push_many("j1", "j2", "j3", "j4", batch_id="b1", max_attempts=1)
    queue.push("other")
    assert list(queue.state.requires) == ["batches"]
    queue.ok(CloseBatch(batch="b1"))
    assert batch(queue).status == "closed"
    queue.complete(queue.claim_one())
    queue.fail(queue.claim_one())
    queue.ok(Cancel(job="j3"))
    assert not callbacks(queue)
    queue.reload()
    queue.wait(5)
    queue.complete(queue.claim_one())
    (job,) = callbacks(queue)
    assert job.done_batch == BatchCounts("b1", jobs=4, completed=2, cancelled=1, dead=1)
    assert job.done_batch.failed == 2
    assert (bytes(job.payload), job.priority, job.tags) == (b'{"mail":"ada"}', 3, {"team": "red"})
    assert (job.status, job.seq, job.pushed_at) == ("queued", 6, queue.now)
    row = batch(queue)
    assert (row.status, row.ended_at, row.callback, row.on_done) == (
        "done",
        queue.now,
        job.id,
        None,
    )
    queue.reload()
    assert [each.id for each in queue.claim(limit=9)] == ["other", job.id]


def test_an_open_batch_is_never_done(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    queue.push("j1", batch_id="b1")
    queue.complete(queue.claim_one())
    assert not callbacks(queue)
    assert batch(queue).status == "open"
    queue.push("j2", batch_id="b1")
    queue.complete(queue.claim_one())
    answer = queue.ok(CloseBatch(batch="b1"))
    assert (answer.status, answer.counts) == ("done", BatchCounts("b1", jobs=2, completed=2))
    assert len(callbacks(queue)) == 1


def test_an_empty_batch_is_done_when_it_is_closed(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    queue.ok(CloseBatch(batch="b1"))
    assert [job.done_batch for job in callbacks(queue)] == [BatchCounts("b1")]
    assert queue.send(CloseBatch(batch="b1")).changes == []
    assert len(callbacks(queue)) == 1


def test_a_batch_without_callback_is_only_counted(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1"))
    queue.push("j1", batch_id="b1", expires_in_s=1.0)
    queue.ok(CloseBatch(batch="b1"))
    queue.wait(2)
    queue.ok(Tidy())
    assert batch(queue).counts == BatchCounts("b1", jobs=1, expired=1)
    assert batch(queue).status == "done"
    assert len(queue.state.jobs) == 1


def test_a_redrive_before_the_end_is_counted_and_after_it_changes_nothing(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    queue.push_many("j1", "j2", batch_id="b1", max_attempts=1)
    queue.ok(CloseBatch(batch="b1"))
    queue.fail(queue.claim_one())
    assert batch(queue).counts == BatchCounts("b1", jobs=2, dead=1)
    queue.ok(Redrive())
    assert batch(queue).counts == BatchCounts("b1", jobs=2)
    queue.fail(queue.claim_one())
    queue.complete(queue.claim_one())
    counts = BatchCounts("b1", jobs=2, completed=1, dead=1)
    assert [job.done_batch for job in callbacks(queue)] == [counts]
    queue.ok(Redrive())
    queue.complete(queue.claim_one("index"))
    assert batch(queue).counts == counts
    assert len(callbacks(queue)) == 1


def test_a_purge_of_a_dead_job_is_not_its_end(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    queue.push("j1", batch_id="b1", max_attempts=1)
    queue.fail(queue.claim_one())
    queue.ok(Purge())
    assert batch(queue).counts == BatchCounts("b1", jobs=1, dead=1)


def test_a_cancelled_batch_has_no_callback_and_its_jobs_stay(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    queue.push("j1", batch_id="b1")
    assert queue.ok(CancelBatch(batch="b1")).status == "cancelled"
    assert queue.send(CancelBatch(batch="b1")).changes == []
    queue.complete(queue.claim_one())
    assert not callbacks(queue)
    assert "cancelled" in queue.refused(CloseBatch(batch="b1"), RejectedError)
    queue.ok(OpenBatch(batch="b2"))
    queue.ok(CloseBatch(batch="b2"))
    assert "done" in queue.refused(CancelBatch(batch="b2"), RejectedError)


@pytest.mark.parametrize("end", [CloseBatch, CancelBatch])
def test_no_job_is_added_to_a_batch_that_is_not_open(queue: Driver, end: Any) -> None:
    queue.ok(OpenBatch(batch="b1"))
    queue.push("j0", batch_id="b1")
    queue.ok(end(batch="b1"))
    push = Push(jobs=(new_job("j1", batch_id="b1"),))
    assert "no more jobs" in queue.refused(push, RejectedError)
    push = Push(jobs=(new_job("j1"), new_job("j2", batch_id="b9")))
    assert "no batch 'b9'" in queue.refused(push, BatchNotFoundError)
    for operation in (CloseBatch(batch="b9"), CancelBatch(batch="b9"), ReadBatches(batch="b9")):
        queue.refused(operation, BatchNotFoundError)


def test_jobs_that_are_there_already_are_not_counted_again(queue: Driver) -> None:
    queue.push("j1", key="k")
    queue.ok(OpenBatch(batch="b1"))
    queue.push("j2", "index", None, batch_id="b1")
    push = (new_job("j2"), new_job("j4", batch_id="b1"))
    assert queue.ok(Push(jobs=push)) == ("j2", "j4")
    assert batch(queue).jobs == 2
    queue.push("j5", unique="u", batch_id="b1")
    assert queue.push("j6", unique="u", batch_id="b1") == "j5"
    assert batch(queue).jobs == 3


def test_opening_is_idempotent_and_an_id_belongs_to_one_batch(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=DONE), "s", number=1)
    assert queue.send(OpenBatch(batch="b1", on_done=DONE)).changes == []
    assert queue.send(OpenBatch(batch="b1", on_done=DONE), "s", number=1).changes == []
    queue.refused(OpenBatch(batch="b1"), KeyConflictError)


def test_a_retried_close_answers_with_the_batch_as_it_is(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    first = queue.ok(CloseBatch(batch="b1"), "s", number=1)
    again = queue.send(CloseBatch(batch="b1"), "s", number=1)
    assert again.answer == first
    assert again.changes == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"key": "k"}, "key"),
        ({"unique": "u"}, "unique"),
        ({"delay_s": 1.0}, "delay_s"),
        ({"batch_id": "b2"}, "batch_id"),
        ({"after": ("j1",)}, "after"),
        ({"expires_in_s": 1.0}, "expires_in_s"),
        ({"kind": "no kind"}, "kind"),
        ({"payload": Raw(b'"%s"' % (b"x" * 20_000))}, "16,384"),
    ],
)
def test_a_callback_is_a_plain_job(queue: Driver, fields: dict[str, Any], reason: str) -> None:
    job = NewJob(**({"id": "", "kind": "a", "payload": Raw(b"1")} | fields))
    assert reason in queue.refused(OpenBatch(batch="b1", on_done=job), InvalidRequestError)


def test_batches_are_bounded_and_those_that_ended_make_room(queue: Driver) -> None:
    queue.ok(Configure(changes={"max_batches": 2}))
    queue.ok(OpenBatch(batch="b1"))
    queue.ok(OpenBatch(batch="b2"))
    assert "max_batches" in queue.refused(OpenBatch(batch="b3"), RejectedError)
    queue.ok(CloseBatch(batch="b2"))
    queue.ok(OpenBatch(batch="b3"))
    assert [each.id for each in queue.ok(ReadBatches())] == ["b1", "b3"]


def test_counts_are_forgotten_after_a_while_but_not_those_of_a_batch_that_is_not_done(
    queue: Driver,
) -> None:
    queue.ok(Configure(changes={"batch_retention_s": 60.0}))
    queue.ok(OpenBatch(batch="b1"))
    queue.push("j1", batch_id="b1", max_attempts=1)
    queue.ok(OpenBatch(batch="b2"))
    queue.ok(CloseBatch(batch="b2"))
    queue.wait(61)
    assert is_untidy(queue.state, queue.now)
    assert queue.ok(Tidy()) == 1
    assert [each.id for each in queue.ok(ReadBatches())] == ["b1"]
    queue.wait(10_000_000)
    assert queue.ok(Tidy()) == 0
    queue.ok(CloseBatch(batch="b1"))
    queue.fail(queue.claim_one())
    queue.wait(61)
    queue.ok(Tidy())
    queue.ok(Redrive())
    queue.complete(queue.claim_one())  # It is not counted any more.
    assert queue.ok(ReadBatches()) == ()


def test_a_queue_of_format_1_has_no_batches() -> None:
    queue = Driver()
    assert "upgrade" in queue.refused(OpenBatch(batch="b1"), RejectedError)
    push = Push(jobs=(new_job("j1", batch_id="b1"),))
    assert "upgrade" in queue.refused(push, RejectedError)


def test_format_1_comes_back_only_without_batches(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1"))
    assert "batches" in queue.refused(Configure(changes={"max_format": 1}), RejectedError)


def test_many_jobs_of_a_batch_that_end_at_once_are_one_change(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    queue.push_many(*(f"j{n}" for n in range(50)), batch_id="b1")
    queue.ok(CloseBatch(batch="b1"))
    jobs = queue.claim(limit=100)
    done = tuple(Completion(job=job.id, lease=lease_of(job)) for job in jobs)
    applied = queue.send(CompleteMany(jobs=done))
    assert applied.answer == (True,) * 50
    assert [job.done_batch for job in callbacks(queue)] == [
        BatchCounts("b1", jobs=50, completed=50)
    ]
    assert sum(table == "batches" for table, _ in applied.changes) == 2


def test_the_callback_passes_the_limits_of_a_full_queue(queue: Driver) -> None:
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    queue.push("j1", batch_id="b1")
    queue.ok(CloseBatch(batch="b1"))
    job = queue.claim_one()
    queue.push_many("j2", "j3")
    queue.ok(Configure(changes={"max_jobs": 1, "max_kinds": 1, "max_bytes": 1}))
    queue.complete(job)
    assert len(callbacks(queue)) == 1


def test_a_job_with_the_id_of_a_callback_does_not_prevent_it(queue: Driver) -> None:
    twin = Driver(max_format=2)
    for each in (twin, queue):
        each.ok(OpenBatch(batch="b1", on_done=DONE))
    twin.ok(CloseBatch(batch="b1"))
    (known,) = callbacks(twin)
    queue.push(known.id)
    queue.ok(CloseBatch(batch="b1"))
    (job,) = callbacks(queue)
    assert job.id != known.id


def test_jobs_in_segments_are_counted() -> None:
    queue = Driver(max_format=2)
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    queue.push_many(*(f"j{n}" for n in range(6)), batch_id="b1")
    queue.ok(CloseBatch(batch="b1"))
    deep = DeepState(queue.state)
    spilled = deep.spill("ready", START, 6)
    assert spilled is not None
    assert deep.apply(Request(spilled), START).answer == 6
    assert not list(deep.state.jobs)
    for number in range(6):
        assert deep.apply(Request(Cancel(job=f"j{number}")), START).answer == "cancelled"
    (job,) = (job for job in deep.state.jobs if job.kind == "report")
    assert job.done_batch == BatchCounts("b1", jobs=6, cancelled=6)


@pytest.mark.parametrize("ends", ["cancelled", "done"])
def test_jobs_of_a_forgotten_batch_do_not_count_in_one_that_has_its_id(
    queue: Driver, ends: str
) -> None:
    queue.ok(OpenBatch(batch="b1"))
    queue.push("old", batch_id="b1", max_attempts=1)
    if ends == "done":
        queue.fail(queue.claim_one())
        queue.ok(CloseBatch(batch="b1"))
    else:
        queue.ok(CancelBatch(batch="b1"))
    queue.wait(2 * 86400)
    queue.ok(Tidy())
    queue.ok(OpenBatch(batch="b1", on_done=DONE))
    queue.push("new", batch_id="b1", priority=1)
    queue.ok(CloseBatch(batch="b1"))
    if ends == "done":
        queue.ok(Redrive(jobs=("old",)))
    queue.reload()
    old = queue.claim_one()
    queue.complete(old)
    assert old.id == "old"
    queue.reload()
    assert batch(queue).counts == BatchCounts("b1", jobs=1)
    assert not callbacks(queue)
    queue.complete(queue.claim_one())
    assert callbacks(queue)[0].done_batch == BatchCounts("b1", jobs=1, completed=1)
