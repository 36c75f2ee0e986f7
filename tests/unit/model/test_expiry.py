"""Jobs that expire: claims skip them, and tidying finishes them, in the object and in segments."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bucketq.errors import InvalidRequestError, RejectedError
from bucketq.model.effects.operators import is_cold_untidy, is_untidy
from bucketq.model.indexes.cold_rows import ColdRowsNeededError
from bucketq.model.operations import (
    Cancel,
    Claim,
    Configure,
    Push,
    Redrive,
    Release,
    Request,
    Tidy,
)
from bucketq.model.segments import SegmentClass, TidySegments
from bucketq.model.state import State
from bucketq.model.transitions import apply
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import SECRET, START, Driver, lease_of, new_job


@pytest.fixture
def queue() -> Driver:
    return Driver(max_format=2)


def test_a_job_that_is_not_claimed_in_time_is_finished_as_expired(queue: Driver) -> None:
    queue.push("j1", expires_in_s=10.0)
    queue.push("j2")
    assert queue.job("j1").expires_at == START + timedelta(seconds=10)
    assert list(queue.state.requires) == ["expiry"]
    queue.wait(9.999)
    assert not is_untidy(queue.state, queue.now)
    queue.wait(0.001)
    assert is_untidy(queue.state, queue.now)
    assert queue.ok(Tidy()) == 1
    job = queue.job("j1")
    assert (job.status, job.outcome, job.finished_at) == ("done", "expired", queue.now)
    assert queue.state.counts == {("index", "done"): 1, ("index", "queued"): 1}
    assert not is_untidy(queue.state, queue.now)
    assert queue.claim_one().id == "j2"


def test_a_claim_skips_expired_jobs_and_changes_nothing_for_them(queue: Driver) -> None:
    queue.push("j1", expires_in_s=10.0)
    queue.push("j2", expires_in_s=20.0)
    queue.wait(10)
    assert queue.claim_one().id == "j2"
    assert queue.job("j1").status == "queued"
    assert queue.send(Claim(worker="w", secret=SECRET)).changes == []
    assert queue.ok(Tidy()) == 1


def test_a_job_that_was_claimed_never_expires(queue: Driver) -> None:
    queue.push("j1", expires_in_s=10.0, max_attempts=1)
    job = queue.claim_one()
    queue.wait(60)
    assert not is_untidy(queue.state, queue.now)
    queue.ok(Release(job=job.id, lease=lease_of(job)))
    assert not is_untidy(queue.state, queue.now)
    queue.fail(queue.claim_one())
    assert queue.job("j1").status == "dead"
    queue.ok(Redrive())
    assert queue.ok(Tidy()) == 0
    assert queue.claim_one().id == "j1"


def test_a_clock_that_is_set_back_brings_skipped_jobs_back(queue: Driver) -> None:
    queue.push("j1", expires_in_s=10.0)
    queue.push("j2", expires_in_s=20.0)
    queue.wait(30)
    assert queue.ok(Claim(worker="w", secret=SECRET)) == ()
    queue.wait(-15)
    assert queue.claim_one().id == "j2"
    queue.wait(-10)
    assert queue.claim_one().id == "j1"
    assert queue.ok(Claim(worker="w", secret=SECRET)) == ()


def test_a_delayed_job_expires_too_and_a_cancelled_one_does_not(queue: Driver) -> None:
    queue.push("j1", expires_in_s=10.0, delay_s=5.0)
    queue.push("j2", expires_in_s=10.0)
    queue.ok(Push(jobs=(new_job("j3", run_at=START + timedelta(60), expires_in_s=10.0),)))
    queue.ok(Cancel(job="j2"))
    queue.wait(10)
    assert queue.ok(Tidy()) == 2
    outcomes = [queue.job(name).outcome for name in ("j1", "j2", "j3")]
    assert outcomes == ["expired", "cancelled", "expired"]


def test_one_commit_finishes_a_page_of_them(queue: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketq.model.effects.expiry._PAGE_JOBS", 2)
    for n in range(5):
        queue.push(f"j{n}", expires_in_s=1.0)
    queue.wait(1)
    assert [queue.ok(Tidy()) for _ in range(4)] == [2, 2, 1, 0]


def test_the_name_of_an_expired_job_is_free(queue: Driver) -> None:
    queue.push("j1", unique="u", expires_in_s=10.0)
    queue.wait(10)
    assert queue.push("j2", unique="u", expires_in_s=10.0) == "j2"
    debounced = new_job("j3", unique="u", replace="run_at", expires_in_s=60.0)
    assert queue.ok(Push(jobs=(debounced,))) == ("j2",)
    assert queue.job("j2").expires_at == queue.now + timedelta(seconds=60)
    queue.wait(30)
    assert queue.ok(Tidy()) == 1  # The first one.
    assert queue.claim_one().id == "j2"


def test_what_makes_no_sense_is_refused(queue: Driver) -> None:
    for options in ({"expires_in_s": 0.0}, {"expires_in_s": -1.0}, {"expires_in_s": "1"}):
        queue.refused(Push(jobs=(new_job("j", **options),)), InvalidRequestError)
    both = new_job("j", expires_in_s=5.0, delay_s=5.0)
    assert "never run" in queue.refused(Push(jobs=(both,)), InvalidRequestError)


def test_a_queue_of_format_1_has_no_jobs_that_expire(queue: Driver) -> None:
    queue.push("j1", expires_in_s=10.0)
    reason = queue.refused(Configure(changes={"max_format": 1}), RejectedError)
    assert "jobs that expire" in reason
    queue.claim_one()
    queue.ok(Configure(changes={"max_format": 1}))
    assert not queue.state.requires
    refused = Push(jobs=(new_job("j2", expires_in_s=1.0),))
    assert "bucketq upgrade" in queue.refused(refused, RejectedError)


def deep_queue(count: int, cls: SegmentClass = "ready", **options: Any) -> DeepState:
    """A queue with jobs in one segment, which expire one second after the other."""
    deep = DeepState(State(incarnation="test", created_at=START))
    jobs = [new_job(f"j{n}", expires_in_s=10.0 + n, **options) for n in range(count)]
    deep.apply(Request(Push(jobs=tuple(jobs))), START)
    spill = deep.spill(cls, START, count)
    assert spill is not None
    deep.apply(Request(spill), START)
    assert not deep.state.jobs
    return deep


@pytest.mark.parametrize("cls", ["ready", "later"])
def test_jobs_in_segments_expire_when_the_first_is_due(cls: SegmentClass) -> None:
    deep = deep_queue(5, cls, **({"delay_s": 5.0} if cls == "later" else {}))
    deep.reload()
    (segment,) = deep.state.cold.rows.segments.values()
    assert segment.record.expires_at == START + timedelta(seconds=10)
    now = START + timedelta(seconds=20)
    assert not is_cold_untidy(deep.state, now - timedelta(microseconds=1)), "many at a time"
    assert is_cold_untidy(deep.state, now)
    at = START + timedelta(seconds=12)
    assert deep.apply(Request(TidySegments()), at).answer == 3
    assert {job.outcome for job in deep.state.jobs} == {"expired"}
    (segment,) = deep.state.cold.rows.segments.values()
    assert (segment.record.expires_at, segment.live) == (START + timedelta(seconds=13), 2)
    deep.reload()
    assert deep.apply(Request(TidySegments()), START + timedelta(seconds=60)).answer == 2
    assert not deep.state.cold.rows.segments


def test_a_claim_skips_expired_jobs_in_segments() -> None:
    deep = deep_queue(5)
    claim = Claim(worker="w", secret=SECRET, limit=1)
    (job,) = deep.apply(Request(claim), START + timedelta(seconds=12)).answer
    assert job.id == "j3"
    assert deep.apply(Request(Tidy()), START + timedelta(seconds=12)).answer == 3
    assert deep.apply(Request(TidySegments()), START + timedelta(seconds=60)).answer == 1


def test_nothing_is_read_before_something_expires() -> None:
    deep = deep_queue(5)
    deep.reload()
    assert not is_cold_untidy(deep.state, START + timedelta(seconds=9))
    with pytest.raises(ColdRowsNeededError):
        apply(deep.state, Request(TidySegments()), START + timedelta(seconds=11))


def test_rows_that_are_merged_expire_in_their_time() -> None:
    deep = deep_queue(3)
    later = tuple(new_job(f"k{n}", expires_in_s=5.0 + n) for n in range(3))
    deep.apply(Request(Push(jobs=later)), START)
    spill = deep.spill("ready", START, 3)
    assert spill is not None
    deep.apply(Request(spill), START)
    merge = deep.merge("ready", START, 2)
    assert merge is not None
    deep.apply(Request(merge), START)
    (segment,) = deep.state.cold.rows.segments.values()
    assert segment.record.expires_at == START + timedelta(seconds=5)
    assert deep.apply(Request(TidySegments()), START + timedelta(seconds=11)).answer == 5
