"""Requests that are joined in one: each is remembered, and can be repeated, by itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, RejectedError
from bucketq.model.base import NewJob
from bucketq.model.operations import (
    Claim,
    Complete,
    CompleteMany,
    Completion,
    Fail,
    Push,
    Request,
)
from bucketq.model.requests.plain_jobs import PlainJobs
from bucketq.model.state import State
from bucketq.model.transitions import Applied, apply

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "5" * 32


def new(number: int, **options: Any) -> NewJob:
    return NewJob(id=f"job-{number}", kind="k", payload=Raw(b"%d" % number), **options)


def ask(state: State, operation: Any, *numbers: int, **fields: Any) -> Applied:
    """Ask for one operation; several numbers are requests that are joined."""
    joined = numbers if len(numbers) > 1 else ()
    applied = apply(state, Request(operation, "s", numbers[0], numbers=joined, **fields), NOW)
    state.changes.clear()
    return applied


def claim(limit: int) -> Claim:
    return Claim(worker="w", secret=SECRET, limit=limit)


def joined_push(count: int) -> Push:
    return Push(jobs=tuple(map(new, range(count))))


def push_of(*numbers: int) -> Push:
    return Push(jobs=tuple(map(new, numbers)))


@pytest.fixture
def state() -> State:
    return State(incarnation="i", created_at=NOW)


def test_each_of_the_joined_pushes_can_be_repeated_by_itself(state: State) -> None:
    assert ask(state, joined_push(3), 1, 2, 5).answer == ("job-0", "job-1", "job-2")
    for number, job in ((1, 0), (2, 1), (5, 2)):
        assert ask(state, Push(jobs=(new(job),)), number).answer == (f"job-{job}",)
    assert len(state.jobs) == 3
    assert ask(state, Push(jobs=(new(9),)), 4).answer == ("job-9",)  # It was not among them.


def test_joined_requests_are_repeated_together(state: State) -> None:
    first = ask(state, joined_push(3), 1, 2, 3)
    again = ask(state, joined_push(3), 1, 2, 3, since=0)
    assert (again.answer, again.changes) == (first.answer, [])
    jobs = ask(state, claim(3), 4, 5, 6).answer
    assert ask(state, claim(3), 4, 5, 6, since=0).answer == jobs
    done = CompleteMany(jobs=tuple(Completion(job=j.id, lease=j.lease) for j in jobs))
    assert ask(state, done, 7, 8, 9).answer == (True, True, True)
    assert ask(state, done, 7, 8, 9, since=0).answer == (True, True, True)
    assert all(job.status == "done" for job in state.jobs)


def test_a_number_that_stood_for_another_request_is_rejected(state: State) -> None:
    ask(state, joined_push(2), 1, 2)
    for operation in (Push(jobs=(new(7),)), claim(1)):
        assert isinstance(ask(state, operation, 2).error, InvalidRequestError)
    other = Push(jobs=(new(0), new(7)))
    assert isinstance(ask(state, other, 1, 2).error, InvalidRequestError)
    assert len(state.jobs) == 2


def test_if_some_took_effect_before_all_are_rejected(state: State) -> None:
    ask(state, Push(jobs=(new(1),)), 2)
    applied = ask(state, joined_push(3), 1, 2, 3)
    assert type(applied.error) is RejectedError
    assert "send each by itself" in str(applied.error)
    assert [job.id for job in state.jobs] == ["job-1"]


def test_a_claim_that_found_no_job_is_not_remembered(state: State) -> None:
    ask(state, joined_push(2), 1, 2)
    jobs = ask(state, claim(3), 3, 4, 5).answer
    assert [job.id for job in jobs] == ["job-0", "job-1"]
    assert ask(state, claim(1), 4).answer == (jobs[1],)
    ask(state, Push(jobs=(new(7),)), 6)
    (later,) = ask(state, claim(1), 5).answer
    assert later.id == "job-7"
    assert type(ask(state, claim(2), 4, 8).error) is RejectedError


def test_claims_whose_jobs_are_gone_are_repeated_one_by_one(state: State) -> None:
    ask(state, joined_push(2), 1, 2)
    jobs = ask(state, claim(2), 3, 4).answer
    ask(state, Fail(job=jobs[0].id, lease=jobs[0].lease, error="e", retry=False), 5)
    assert "send each by itself" in str(ask(state, claim(2), 3, 4).error)
    assert ask(state, claim(1), 3).answer == ()
    assert ask(state, claim(1), 4).answer == (jobs[1],)


def test_a_completion_whose_lease_was_lost_is_not_remembered(state: State) -> None:
    ask(state, joined_push(1), 1)
    (job,) = ask(state, claim(1), 2).answer
    many = (Completion(job=job.id, lease="lost"), Completion(job=job.id, lease=job.lease))
    assert ask(state, CompleteMany(jobs=many), 3, 4).answer == (False, True)
    assert ask(state, Complete(job=job.id, lease="lost"), 3).error is not None
    assert ask(state, Complete(job=job.id, lease=job.lease), 4).error is None


@pytest.mark.parametrize(
    ("operation", "numbers", "number"),
    [
        (joined_push(2), (1, 2, 3), 1),
        (joined_push(2), (2, 1), 2),
        (joined_push(2), (1, 1), 1),
        (joined_push(2), (1, 2), 7),
        (claim(3), (1, 2), 1),
        (Claim(worker="w", secret=SECRET, limit=2, wait_s=1.0), (1, 2), 1),
        (Fail(job="j", lease="l", error="e"), (1,), 1),
        (CompleteMany(jobs=()), (1,), 1),
        (claim(1001), tuple(range(1, 1002)), 1),
    ],
)
def test_numbers_that_do_not_fit_are_rejected(
    state: State, operation: Any, numbers: tuple[int, ...], number: int
) -> None:
    applied = apply(state, Request(operation, "s", number, numbers=numbers), NOW)
    assert isinstance(applied.error, InvalidRequestError)
    assert not state.changes


@pytest.mark.parametrize("fields", [{"numbers": (0,)}, {"counts": (2,)}])
def test_joined_requests_need_a_session(state: State, fields: dict[str, Any]) -> None:
    applied = apply(state, Request(joined_push(2), **fields), NOW)
    assert isinstance(applied.error, InvalidRequestError)
    assert "session" in str(applied.error)
    assert not state.changes


@pytest.mark.parametrize("plain", [True, False])
def test_each_of_the_joined_batches_can_be_repeated_by_itself(state: State, plain: bool) -> None:
    kind = PlainJobs if plain else tuple
    joined = Push(jobs=kind(map(new, range(6))))
    first = ask(state, joined, 1, 2, 5, counts=(2, 1, 3))
    assert first.answer == tuple(f"job-{number}" for number in range(6))
    assert ask(state, joined, 1, 2, 5, counts=(2, 1, 3), since=0).answer == first.answer
    for number, jobs in ((1, (0, 1)), (2, (2,)), (5, (3, 4, 5))):
        again = ask(state, push_of(*jobs), number)
        assert again.answer == tuple(f"job-{job}" for job in jobs)
        assert not again.changes
    assert len(state.jobs) == 6
    for other in (push_of(0), push_of(1, 0), push_of(0, 1, 2)):
        assert isinstance(ask(state, other, 1).error, InvalidRequestError)
    other_cut = ask(state, joined, 1, 2, 5, counts=(1, 2, 3))
    assert isinstance(other_cut.error, InvalidRequestError)


def test_a_batch_that_took_effect_before_rejects_all_that_are_joined(state: State) -> None:
    ask(state, push_of(2, 3), 2)
    applied = ask(state, push_of(0, 1, 2, 3), 1, 2, counts=(2, 2))
    assert "send each by itself" in str(applied.error)
    assert [job.id for job in state.jobs] == ["job-2", "job-3"]


def test_answers_of_joined_batches_that_are_not_their_own_ids_are_remembered(state: State) -> None:
    ask(state, Push(jobs=(new(0, key="k"),)), 1)
    jobs = (new(1), replace(new(0, key="k"), id="mine"), new(3), new(4))
    first = ask(state, Push(jobs=jobs), 2, 3, counts=(2, 2))
    assert first.answer == ("job-1", "job-0", "job-3", "job-4")
    assert [getattr(each, "duplicate", False) for each in first.answer] == [
        False,
        True,
        False,
        False,
    ]
    assert ask(state, Push(jobs=jobs[:2]), 2).answer == ("job-1", "job-0")
    assert ask(state, Push(jobs=jobs[2:]), 3).answer == ("job-3", "job-4")


@pytest.mark.parametrize(
    ("operation", "counts"),
    [
        (joined_push(4), (2, 1)),
        (joined_push(4), (2, 3)),
        (joined_push(4), (2, 1, 1)),
        (joined_push(4), (4, 0)),
        (joined_push(4), (5, -1)),
        (joined_push(4), (2, True)),
        (claim(4), (2, 2)),
        (CompleteMany(jobs=(Completion(job="j", lease="l"),) * 4), (2, 2)),
    ],
)
def test_counts_that_do_not_fit_are_rejected(
    state: State, operation: Any, counts: tuple[int, ...]
) -> None:
    applied = apply(state, Request(operation, "s", 1, numbers=(1, 2), counts=counts), NOW)
    assert isinstance(applied.error, InvalidRequestError)
    assert not state.changes


def test_counts_without_numbers_are_rejected(state: State) -> None:
    applied = apply(state, Request(joined_push(4), "s", 1, counts=(2, 2)), NOW)
    assert isinstance(applied.error, InvalidRequestError)


def test_what_was_acknowledged_is_not_repeated(state: State) -> None:
    ask(state, joined_push(2), 1, 2)
    ask(state, Push(jobs=(new(9),)), 3, acknowledged_below=3)
    assert isinstance(ask(state, joined_push(2), 1, 2).error, InvalidRequestError)
