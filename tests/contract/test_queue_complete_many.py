"""What every queue promises to those who finish many jobs in one call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq import (
    InvalidRequestError,
    Job,
    JobSpec,
    LeaseRef,
    PayloadError,
    PayloadTooLargeError,
    Pulse,
    Queue,
)
from bucketq.clock import SystemClock
from bucketq.commit.request_ids import RequestIds, token_of
from bucketq.model.operations import CompleteMany
from tests.contract.places import Place


async def claimed(queue: Queue[Any], count: int) -> list[Job[Any]]:
    await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(count)])
    return await queue.claim(limit=count)


async def test_jobs_are_finished_in_one_commit_and_keep_their_results(queue: Queue[Any]) -> None:
    jobs = await claimed(queue, 3)
    version = (await queue.stats()).version
    assert await queue.complete_many([jobs[0], (jobs[1], {"sent": 3}), (jobs[2].lease, b"\x00")])
    assert (await queue.stats()).version == version + 1
    done = [await queue.get(job.id) for job in jobs]
    assert [job.result for job in done] == [None, {"sent": 3}, b"\x00"]
    assert {(job.status, job.outcome) for job in done} == {("done", "completed")}


async def test_each_is_finished_for_itself_and_those_that_were_lost_are_told(
    queue: Queue[Any],
) -> None:
    first, lost, again, last = await claimed(queue, 4)
    await queue.release(lost)
    await queue.complete(again, "before")
    never = LeaseRef("never-pushed", "x" * 32)
    answer = await queue.complete_many([first, lost, (again, "after"), never, (last, "last")])
    assert answer == [True, False, True, False, True]
    assert (await queue.get(lost.id)).status == "queued"
    assert (await queue.get(again.id)).result == "before"
    assert (await queue.get(last.id)).result == "last"


async def test_a_worker_that_was_replaced_finishes_none_of_the_jobs_of_its_successor(
    queue: Queue[Any],
) -> None:
    (job,) = await claimed(queue, 1)
    await queue.release(job)
    (again,) = await queue.claim()
    assert await queue.complete_many([(job, "too late")]) == [False]
    assert await queue.heartbeat(again) == [Pulse(again.id, held=True)]
    assert await queue.complete_many([(again, "in time"), (job, "too late")]) == [True, False]
    assert (await queue.get(job.id)).result == "in time"


async def test_the_same_job_twice_in_one_call_is_finished_once(queue: Queue[Any]) -> None:
    (job,) = await claimed(queue, 1)
    assert await queue.complete_many([(job, "first"), (job, "second")]) == [True, True]
    assert (await queue.get(job.id)).result == "first"


async def test_finishing_none_changes_nothing(place: Place, queue: Queue[Any]) -> None:
    await queue.push("mail", 1)
    before = await place.stored()
    assert await queue.complete_many([]) == []
    assert await queue.complete_many(iter(())) == []
    assert await place.stored() == before


async def test_too_many_at_once_are_refused_and_all_of_them_go_on(queue: Queue[Any]) -> None:
    jobs = await claimed(queue, 3)
    await queue.configure(max_batch_jobs=2)
    with pytest.raises(InvalidRequestError, match="max_batch_jobs"):
        await queue.complete_many(jobs)
    assert [pulse.held for pulse in await queue.heartbeat(jobs[:2])] == [True, True]
    assert await queue.complete_many(job for job in jobs[:2]) == [True, True]


async def test_one_result_that_does_not_fit_keeps_all_of_them_running(queue: Queue[Any]) -> None:
    await queue.configure(max_result_bytes=65_536)
    jobs = await claimed(queue, 2)
    with pytest.raises(PayloadTooLargeError, match="max_result_bytes"):
        await queue.complete_many([(jobs[0], "short"), (jobs[1], "x" * 70_000)])
    with pytest.raises(PayloadError):
        await queue.complete_many([jobs[0], (jobs[1], float("nan"))])
    assert [pulse.held for pulse in await queue.heartbeat(jobs)] == [True, True]


@pytest.mark.parametrize("bad", [5, None, ["text"], [(1, 2, 3)], [None], [("job", "result")]])
async def test_what_is_not_a_claimed_job_is_rejected(queue: Queue[Any], bad: Any) -> None:
    with pytest.raises(InvalidRequestError):
        await queue.complete_many(bad)


async def test_the_same_request_again_has_the_effect_of_one(queue: Queue[Any]) -> None:
    """As after an ``UnavailableError``: the answer was lost, and the token names the request."""
    kept, lost = await claimed(queue, 2)
    await queue.release(lost)
    ids = RequestIds(SystemClock())
    version = (await queue.stats()).version
    token = token_of(ids.give().request(CompleteMany(jobs=())), version)
    assert await queue.complete_many([(kept, "once"), lost], request=token) == [True, False]
    version = (await queue.stats()).version
    assert await queue.complete_many([(kept, "once"), lost], request=token) == [True, False]
    with pytest.raises(InvalidRequestError, match="request id reused"):
        await queue.complete_many([(kept, "twice"), lost], request=token)
    assert (await queue.get(kept.id)).result == "once"
    assert (await queue.stats()).version == version


async def test_many_callers_at_once_finish_what_is_theirs(queue: Queue[Any]) -> None:
    jobs = await claimed(queue, 24)
    answers = await asyncio.gather(
        *(queue.complete_many((job, job.payload) for job in jobs[n::6]) for n in range(6))
    )
    assert answers == [[True] * 4] * 6
    assert (await queue.stats()).counts == {"mail": {"done": 24}}


def test_the_blocking_face_finishes_many_as_well(place: Place) -> None:
    with place.connect_sync() as queue:
        queue.push_many([JobSpec(kind="mail", payload=number) for number in range(2)])
        first, second = queue.claim(limit=2)
        queue.release(second)
        assert queue.complete_many([(first, "done"), second]) == [True, False]
        assert queue.complete_many([]) == []
        assert queue.get(first.id).result == "done"
