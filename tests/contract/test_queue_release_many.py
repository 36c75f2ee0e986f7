"""What every queue promises to workers that give many jobs back in one call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq import InvalidRequestError, Job, JobSpec, LeaseRef, Pulse, Queue
from bucketq.clock import SystemClock
from bucketq.commit.request_ids import RequestIds, token_of
from bucketq.model.operations import ReleaseMany
from tests.contract.places import Place


async def claimed(queue: Queue[Any], count: int) -> list[Job[Any]]:
    await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(count)])
    return await queue.claim(limit=count)


@pytest.mark.shallow
async def test_jobs_are_given_back_in_one_commit_and_keep_their_attempts(queue: Queue[Any]) -> None:
    jobs = await claimed(queue, 3)
    version = (await queue.stats()).version
    assert await queue.release_many([jobs[0], jobs[1].lease, jobs[2]]) == [True, True, True]
    assert (await queue.stats()).version == version + 1
    again = await queue.claim(limit=3)
    assert [job.id for job in again] == [job.id for job in jobs]
    assert {(job.attempt, job.failures, job.lost_leases) for job in again} == {(2, 0, 0)}


async def test_each_is_given_back_for_itself_and_lost_leases_are_reported(
    queue: Queue[Any],
) -> None:
    first, lost, last = await claimed(queue, 3)
    await queue.release(lost)
    (successor,) = await queue.claim()
    never = LeaseRef("never-pushed", "x" * 32)
    assert await queue.release_many([first, lost, never, last]) == [True, False, False, True]
    assert await queue.heartbeat(successor) == [Pulse(successor.id, held=True)]
    assert (await queue.stats()).counts == {"mail": {"queued": 2, "running": 1}}


async def test_they_can_be_kept_back_for_a_while(queue: Queue[Any]) -> None:
    jobs = await claimed(queue, 2)
    assert await queue.release_many(jobs, delay_s=600.0) == [True, True]
    assert await queue.claim() == []


async def test_giving_back_none_changes_nothing(place: Place, queue: Queue[Any]) -> None:
    await queue.push("mail", 1)
    before = await place.stored()
    assert await queue.release_many([]) == []
    assert await queue.release_many(iter(())) == []
    assert await place.stored() == before


async def test_too_many_at_once_are_refused_and_all_of_them_are_still_held(
    queue: Queue[Any],
) -> None:
    jobs = await claimed(queue, 3)
    await queue.configure(max_batch_jobs=2)
    with pytest.raises(InvalidRequestError, match="max_batch_jobs"):
        await queue.release_many(jobs)
    assert [pulse.held for pulse in await queue.heartbeat(jobs[:2])] == [True, True]
    assert await queue.release_many(job for job in jobs[:2]) == [True, True]


@pytest.mark.parametrize("bad", [5, None, ["text"], [None], [("job", "lease")]])
async def test_what_is_not_a_claimed_job_is_rejected(queue: Queue[Any], bad: Any) -> None:
    with pytest.raises(InvalidRequestError):
        await queue.release_many(bad)
    with pytest.raises(InvalidRequestError):
        await queue.release_many([LeaseRef("j", "l")], delay_s=-1)


async def test_the_same_request_again_has_the_effect_of_one(queue: Queue[Any]) -> None:
    """As after an ``UnavailableError``: the answer was lost, and the token names the request."""
    kept, lost = await claimed(queue, 2)
    await queue.release(lost)
    version = (await queue.stats()).version
    request = RequestIds(SystemClock()).give().request(ReleaseMany(leases=(kept.lease, lost.lease)))
    token = token_of(request, version)
    assert await queue.release_many([kept, lost], request=token) == [True, False]
    held = await queue.claim(limit=2)
    assert await queue.release_many([kept, lost], request=token) == [True, False]
    assert [pulse.held for pulse in await queue.heartbeat(held)] == [True, True]


async def test_many_callers_at_once_give_back_what_is_theirs(queue: Queue[Any]) -> None:
    jobs = await claimed(queue, 24)
    answers = await asyncio.gather(*(queue.release_many(jobs[n::6]) for n in range(6)))
    assert answers == [[True] * 4] * 6
    assert (await queue.stats()).counts == {"mail": {"queued": 24}}


async def test_the_jobs_of_a_cancelled_claim_are_given_back_in_one_commit(
    place: Place, queue: Queue[Any]
) -> None:
    """One commit for each of them takes longer than their leases last, if writes are slow."""
    await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(50)])
    before = (await queue.stats()).version
    async with place.connect(worker="hasty") as other:
        claiming = asyncio.ensure_future(other.claim(limit=50))
        await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
    stats = await queue.stats()
    assert stats.counts == {"mail": {"queued": 50}}
    assert stats.version <= before + 4  # A claim, its release, and a broker that comes and goes.


def test_the_blocking_face_gives_back_many_as_well(place: Place) -> None:
    with place.connect_sync() as queue:
        queue.push_many([JobSpec(kind="mail", payload=number) for number in range(2)])
        first, second = queue.claim(limit=2)
        queue.release(second)
        assert queue.release_many([first, second]) == [True, False]
        assert queue.release_many([]) == []
