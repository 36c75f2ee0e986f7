"""Calls that are made at the same time are joined in one request, and answered one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import bucketq
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.request_ids import token_of
from bucketq.errors import (
    InvalidRequestError,
    JobGoneError,
    KeyConflictError,
    OverloadedError,
    QueueFullError,
    RejectedError,
    UnavailableError,
)
from bucketq.model.operations import Claim, CompleteMany, Push, Request
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue

Submit = Callable[[GroupCommitter, Request, float], Awaitable[Any]]
_SUBMIT: Submit = GroupCommitter.submit


class Spy:
    """Sees requests on their way to a committer, and may lose or refuse some."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.loses_answers = False
        self.refusal: Exception | None = None

    def joined(self) -> list[tuple[str, int]]:
        """The operation and the number of calls of each request that was joined."""
        return [
            (type(request.operation).__name__, len(request.numbers))
            for request in self.requests
            if request.numbers
        ]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy()

    async def submit(self: GroupCommitter, request: Request, timeout_s: float) -> Any:
        spy.requests.append(request)
        if spy.refusal is not None:
            raise spy.refusal
        answer = await _SUBMIT(self, request, timeout_s)
        if spy.loses_answers:
            token = token_of(request, 0)
            raise UnavailableError("lost", request=token)
        return answer

    monkeypatch.setattr(GroupCommitter, "submit", submit)
    return spy


@pytest.fixture
async def queue(spy: Spy) -> AsyncIterator[Queue[Any]]:
    async with bucketq.connect("memory://", mode="embedded", worker="w") as queue:
        spy.requests.clear()
        yield queue


async def push(queue: Queue[Any], count: int, **options: Any) -> list[Any]:
    pushes = (queue.push("k", number, **options) for number in range(count))
    return await asyncio.gather(*pushes, return_exceptions=True)


async def test_calls_of_one_moment_are_one_request_and_one_commit(
    queue: Queue[Any], spy: Spy
) -> None:
    before = (await queue.stats()).version
    ids = await push(queue, 20)
    claimed = await asyncio.gather(*(queue.claim() for _ in range(20)))
    jobs = [job for (job,) in claimed]
    await asyncio.gather(*(queue.complete(job, {"n": job.payload}) for job in jobs))
    assert spy.joined() == [("Push", 20), ("Claim", 20), ("CompleteMany", 20)]
    assert [job.id for job in jobs] == ids
    assert [job.payload for job in jobs] == list(range(20))
    stats = await queue.stats()
    assert stats.version == before + 3
    assert stats.counts == {"k": {"done": 20}}
    assert [(await queue.wait(job_id))["n"] for job_id in ids[:3]] == [0, 1, 2]


async def test_a_call_alone_is_an_ordinary_request(queue: Queue[Any], spy: Spy) -> None:
    await queue.push("k", 1)
    assert [request.numbers for request in spy.requests] == [()]


async def test_calls_that_differ_in_what_they_share_are_not_joined(
    queue: Queue[Any], spy: Spy
) -> None:
    await push(queue, 8)
    claims = [queue.claim(worker=name, lease_s=s) for name in "ab" for s in (10, 20)]
    await asyncio.gather(*claims, queue.claim(limit=2), queue.claim(wait_s=1), queue.claim("k"))
    assert spy.joined() == [("Push", 8)]


async def test_many_calls_are_several_requests(queue: Queue[Any], spy: Spy) -> None:
    assert len(set(await push(queue, 450))) == 450
    assert spy.joined() == [("Push", 200), ("Push", 200), ("Push", 50)]
    spy.requests.clear()
    await asyncio.gather(*(queue.push("k", "x" * 30_000) for _ in range(4)))
    assert spy.joined() == [("Push", 2), ("Push", 2)]


async def push_several(queue: Queue[Any], calls: int, *counts: int, size: int = 1) -> list[Any]:
    """Push some jobs a call, in turns as many as the counts say."""
    jobs = [
        [JobSpec(kind="k", payload="x" * size)] * counts[call % len(counts)]
        for call in range(calls)
    ]
    return await asyncio.gather(*map(queue.push_many, jobs), return_exceptions=True)


async def test_pushes_of_several_jobs_are_one_request(queue: Queue[Any], spy: Spy) -> None:
    answers = await push_several(queue, 4, 3, 2)
    assert [len(ids) for ids in answers] == [3, 2, 3, 2]
    assert spy.joined() == [("Push", 4)]
    assert spy.requests[0].counts == (3, 2, 3, 2)
    pushed = [job_id for ids in answers for job_id in ids]
    assert [job.id for job in (await queue.jobs()).jobs] == pushed
    assert not any(job_id.duplicate for job_id in pushed)


async def test_pushes_of_several_jobs_are_not_joined_with_single_ones(
    queue: Queue[Any], spy: Spy
) -> None:
    await asyncio.gather(push(queue, 2), push_several(queue, 2, 5), queue.push_many([]))
    assert sorted(spy.joined()) == [("Push", 2), ("Push", 2)]
    assert sorted(request.counts for request in spy.requests) == [(), (5, 5)]


async def test_what_makes_a_segment_is_joined_and_no_more(queue: Queue[Any], spy: Spy) -> None:
    await push_several(queue, 8, 1000, size=100)
    assert spy.joined() == [("Push", 3), ("Push", 3), ("Push", 2)]
    assert (await queue.stats()).segments == 3
    assert (await queue.stats()).counts == {"k": {"queued": 8000}}


async def test_a_large_push_of_several_jobs_is_sent_alone(queue: Queue[Any], spy: Spy) -> None:
    await push_several(queue, 2, 20, size=60_000)
    assert spy.joined() == []


async def test_pushes_of_jobs_with_options_are_joined_as_well(queue: Queue[Any], spy: Spy) -> None:
    jobs = [JobSpec(kind="k", payload=1, priority=5), JobSpec(kind="k", payload=2, delay_s=9)]
    await asyncio.gather(*(queue.push_many(jobs) for _ in range(3)))
    assert spy.joined() == [("Push", 3)]
    stored = (await queue.jobs()).jobs
    assert [(job.priority, job.run_at is None) for job in stored] == [(5, True), (0, False)] * 3


async def test_jobs_that_wait_for_others_are_pushed_by_their_own_request(
    queue: Queue[Any], spy: Spy
) -> None:
    (first,) = await push(queue, 1)
    jobs = [JobSpec(kind="k", payload=1), JobSpec(kind="k", payload=2, after=[first])]
    await asyncio.gather(*(queue.push_many(jobs) for _ in range(3)))
    assert spy.joined() == []


async def test_only_the_batch_with_the_reason_is_rejected(queue: Queue[Any]) -> None:
    await queue.configure(max_jobs=7)
    answers = await push_several(queue, 4, 3)
    full = [answer for answer in answers if isinstance(answer, QueueFullError)]
    assert len(full) == 2
    assert (await queue.stats()).counts == {"k": {"queued": 6}}


async def test_every_caller_can_retry_its_own_batch(queue: Queue[Any], spy: Spy) -> None:
    spy.loses_answers = True
    lost = await push_several(queue, 3, 2)
    spy.loses_answers = False
    batch = [JobSpec(kind="k", payload="x")] * 2
    again = [await queue.push_many(batch, request=error.request) for error in lost]
    assert [job.id for job in (await queue.jobs()).jobs] == [each for ids in again for each in ids]
    with pytest.raises(InvalidRequestError, match="reused"):
        await queue.push_many([*batch, *batch], request=lost[0].request)


async def test_a_batch_that_is_cancelled_leaves_the_others_alone(queue: Queue[Any]) -> None:
    batch = [JobSpec(kind="k", payload="x")] * 2
    pushes = [asyncio.ensure_future(queue.push_many(batch)) for _ in range(3)]
    await asyncio.sleep(0)
    pushes[0].cancel()
    _, *others = await asyncio.gather(*pushes, return_exceptions=True)
    assert len({job_id for ids in others for job_id in ids}) == 4  # type: ignore[union-attr]


async def test_only_the_reason_of_a_rejection_is_rejected(queue: Queue[Any]) -> None:
    await queue.push("k", "first", key="taken")
    with_key = queue.push("k", "other", key="taken")
    *good, bad = await asyncio.gather(
        queue.push("k", 1), queue.push("k", 2), with_key, return_exceptions=True
    )
    assert isinstance(bad, KeyConflictError)
    assert len(set(good)) == 2
    assert (await queue.stats()).counts == {"k": {"queued": 3}}


async def test_a_queue_is_filled_to_its_limit_and_not_further(queue: Queue[Any]) -> None:
    await queue.configure(max_jobs=7)
    answers = await push(queue, 10)
    full = [answer for answer in answers if isinstance(answer, QueueFullError)]
    assert len(full) == 3
    assert (await queue.stats()).counts == {"k": {"queued": 7}}


async def test_a_key_that_is_pushed_twice_at_the_same_moment_is_one_job(queue: Queue[Any]) -> None:
    first, second = await asyncio.gather(*(queue.push("k", 1, key="same") for _ in range(2)))
    assert first == second
    assert sorted([first.duplicate, second.duplicate]) == [False, True]


async def test_a_lost_lease_is_the_error_of_its_own_completion(queue: Queue[Any]) -> None:
    await push(queue, 2)
    (first,), (second,) = await asyncio.gather(queue.claim(), queue.claim())
    await queue.complete(second)
    await queue.flush_archive()
    done, lost = await asyncio.gather(
        queue.complete(first), queue.complete(second), return_exceptions=True
    )
    assert done == []
    assert isinstance(lost, JobGoneError)


async def test_claims_that_find_nothing_are_answered_with_nothing(queue: Queue[Any]) -> None:
    await push(queue, 2)
    answers = await asyncio.gather(*(queue.claim() for _ in range(4)))
    assert [len(jobs) for jobs in answers] == [1, 1, 0, 0]


async def test_every_caller_can_retry_what_has_no_answer(queue: Queue[Any], spy: Spy) -> None:
    spy.loses_answers = True
    lost = await push(queue, 3)
    tokens = [error.request for error in lost]
    assert all(isinstance(error, UnavailableError) for error in lost)
    assert len(set(tokens)) == 3
    spy.loses_answers = False
    pushed = [await queue.push("k", n, request=token) for n, token in enumerate(tokens)]
    assert [job.id for job in (await queue.jobs()).jobs] == pushed
    with pytest.raises(InvalidRequestError, match="reused"):
        await queue.push("k", "other", request=tokens[0])
    spy.loses_answers = True
    lost = await asyncio.gather(*(queue.claim() for _ in range(3)), return_exceptions=True)
    spy.loses_answers = False
    claimed = [await queue.claim(request=error.request) for error in lost]
    assert [job.id for (job,) in claimed] == pushed
    spy.loses_answers = True
    ends = (queue.complete(job) for (job,) in claimed)
    lost = await asyncio.gather(*ends, return_exceptions=True)
    spy.loses_answers = False
    for (job,), error in zip(claimed, lost, strict=True):
        await queue.complete(job, request=error.request)
    assert (await queue.stats()).counts == {"k": {"done": 3}}


async def test_a_refusal_that_is_about_none_of_them_is_for_all(queue: Queue[Any], spy: Spy) -> None:
    spy.refusal = OverloadedError("too many", retry_after_s=3.0)
    answers = await push(queue, 3)
    assert [(type(error), error.retry_after_s) for error in answers] == [(OverloadedError, 3.0)] * 3
    assert len({id(error) for error in answers}) == 3
    assert len(spy.requests) == 1


async def test_a_committer_that_does_not_know_joined_requests_gets_each(
    queue: Queue[Any], spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = GroupCommitter.submit

    async def refuse_joined(self: GroupCommitter, request: Request, timeout_s: float) -> Any:
        if request.numbers:
            raise RejectedError("an older broker has taken over")
        return await submit(self, request, timeout_s)

    monkeypatch.setattr(GroupCommitter, "submit", refuse_joined)
    assert len(set(await push(queue, 3))) == 3
    assert [type(request.operation) for request in spy.requests] == [Push] * 3
    # It may have been applied before that broker took over.
    assert all(request.since is not None for request in spy.requests)


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_a_claim_that_is_cancelled_releases_its_job_and_no_other(
    queue: Queue[Any], turns: int
) -> None:
    await push(queue, 3)
    claims = [asyncio.ensure_future(queue.claim()) for _ in range(3)]
    for _ in range(turns):
        await asyncio.sleep(0)
    claims[1].cancel()
    first, second, third = await asyncio.gather(*claims, return_exceptions=True)
    if isinstance(second, list):
        return  # It was answered before it was cancelled.
    assert isinstance(second, asyncio.CancelledError)
    held = {job.id for jobs in (first, third) for job in jobs}  # type: ignore[union-attr]
    assert len(held) == 2
    (left,) = await queue.claim(wait_s=5)
    assert left.id not in held
    assert await queue.claim() == []


async def test_a_push_that_is_cancelled_leaves_the_others_alone(queue: Queue[Any]) -> None:
    pushes = [asyncio.ensure_future(queue.push("k", number)) for number in range(3)]
    await asyncio.sleep(0)
    pushes[0].cancel()
    _, *others = await asyncio.gather(*pushes, return_exceptions=True)
    assert {job.id for job in (await queue.jobs()).jobs} >= set(others)
    assert len(set(others)) == 2


async def test_closing_answers_everything_that_was_joined() -> None:
    async with bucketq.connect("memory://", mode="embedded") as queue:
        pushes = [asyncio.ensure_future(queue.push("k", number)) for number in range(3)]
        await asyncio.sleep(0)
    assert len(set(await asyncio.gather(*pushes))) == 3


async def test_operations_of_joined_requests_are_the_bulk_ones(queue: Queue[Any], spy: Spy) -> None:
    await push(queue, 2)
    (first,), (second,) = await asyncio.gather(queue.claim(), queue.claim())
    await asyncio.gather(queue.complete(first), queue.complete(second))
    assert [type(request.operation) for request in spy.requests] == [Push, Claim, CompleteMany]
    numbers = [number for request in spy.requests for number in request.numbers]
    assert numbers == sorted(set(numbers))


async def test_ids_of_jobs_in_segments_are_known(queue: Queue[Any]) -> None:
    await queue.configure(spill_bytes=1000)
    names = [f"own-{number}" for number in range(30)]
    await asyncio.gather(*(queue.push("k", "x" * 500, id=name) for name in names))
    while not (await queue.stats()).segments:
        await queue.push("k", "more")
    again = await asyncio.gather(*(queue.push("k", "x" * 500, id=name) for name in names))
    assert all(job_id.duplicate for job_id in again)
