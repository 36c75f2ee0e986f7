"""Group commit: one write for all who wait, and no answer before the write that holds it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from bucketq.errors import (
    BucketQError,
    ClosedError,
    JobNotFoundError,
    KeyConflictError,
    UnavailableError,
)
from bucketq.model.job_ids import JobId
from bucketq.model.state import RING_LENGTH
from bucketq.queue.push_options import JobSpec
from tests.unit.commit.worlds import (
    Fault,
    Gate,
    World,
    first,
    late,
    lose_answer,
    lose_request,
    lost_then,
    say_nothing,
    settle,
    slowly,
    start,
    then_lost,
    virtual,
)


@virtual
async def test_while_one_write_is_in_flight_the_next_batch_collects() -> None:
    world = World()
    async with world.embedded() as queue:
        world.store.stand("replace", slowly(0.1))
        ids = await asyncio.gather(*(queue.push("mail", number) for number in range(1000)))
        assert world.store.count("replace") <= 2
        assert sorted(await world.ids()) == sorted(ids)
        assert asyncio.get_running_loop().time() < 0.3


@virtual
async def test_callers_that_come_all_the_time_share_the_writes() -> None:
    world = World()
    async with world.embedded() as queue:
        world.store.stand("replace", slowly(0.1))

        async def producer() -> None:
            for number in range(10):
                await queue.push("mail", number)
                await asyncio.sleep(0.03)

        await asyncio.gather(*(producer() for _ in range(20)))
        assert len(await world.ids()) == 200
        assert world.store.count("replace") <= 25


@pytest.mark.shallow
@virtual
async def test_a_queue_opened_on_a_store_with_a_pace_writes_once_a_second() -> None:
    world = World(write_interval_s=1.0)
    async with world.embedded() as queue:

        async def producer() -> None:
            for number in range(10):
                await queue.push("mail", number)

        await asyncio.gather(*(producer() for _ in range(5)))
        at = world.store.written_at
        assert len(at) == 10
        assert all(after - before >= 1 for before, after in itertools.pairwise(at))


@virtual
async def test_no_request_is_answered_before_the_write_has_landed() -> None:
    world = World()
    async with world.embedded() as queue:
        known = await queue.push("mail", 0, key="k")
        gate = Gate()
        world.store.plan("replace", gate)
        waiting = [
            start(queue.push("mail", 1)),
            start(queue.claim()),
            start(queue.get(known)),
            start(queue.stats()),
            start(queue.snapshot()),
            start(queue.jobs()),
            start(queue.settings()),
            start(queue.claim("nothing-of-this-kind")),
            start(queue.push("mail", "other content", key="k")),
            start(queue.get("nobody")),
        ]
        await gate.reached.wait()
        # These come while it is in flight, and rest on what it holds.
        waiting += [
            start(queue.get(known)),
            start(queue.claim()),
            start(queue.push("mail", 2)),
            start(queue.cancel("nobody")),
        ]
        await asyncio.sleep(5)
        assert [task.done() for task in waiting] == [False] * len(waiting)
        gate.open()
        answers: list[Any] = await asyncio.gather(*waiting, return_exceptions=True)
    refused = [type(answer) for answer in answers if isinstance(answer, BaseException)]
    assert refused == [KeyConflictError, JobNotFoundError, JobNotFoundError]
    assert answers[10].status == "running"
    assert len(answers[4].jobs) == 2


@virtual
async def test_what_was_applied_to_a_lost_commit_is_applied_again_and_never_shown() -> None:
    world = World()
    async with world.embedded() as queue:
        known = await queue.push("mail", 0)
        async with world.rival() as rival:

            async def rival_claims() -> None:
                assert [job.id for job in await rival.claim()] == [known]

            world.store.plan("replace", first(rival_claims))
            claim, read, pushed = await asyncio.gather(
                queue.claim(), queue.get(known), queue.push("mail", 1)
            )
        # Its own claim of the job was lost, and so was the look at it.
        assert claim == [] or claim[0].id == pushed
        assert (read.worker, read.attempt) == ("rival", 1)
        assert set(await world.ids()) == {known, pushed}


@virtual
async def test_a_read_is_never_older_than_its_question() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.stats()
        rivals = await world.rival_pushes(3)
        assert (await queue.stats()).total("queued") == 3
        assert (await queue.get(rivals[2])).payload == 2
        assert len(await queue.claim("rival", limit=5)) == 3
        assert world.store.count("replace") == 1


@virtual
async def test_requests_that_change_nothing_write_nothing() -> None:
    world = World()
    async with world.embedded() as queue:
        answers = await asyncio.gather(
            *(queue.claim() for _ in range(50)),
            *(queue.stats() for _ in range(50)),
            *(queue.get("nobody") for _ in range(50)),
            return_exceptions=True,
        )
        assert answers[:50] == [[]] * 50
        assert world.store.count("replace") == 0
        assert world.store.count("get_if_changed") <= 2


@virtual
async def test_one_bad_request_fails_alone() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.configure(max_payload_bytes=100)
        writes = world.store.count("replace")
        answers = await asyncio.gather(
            queue.push("mail", 1),
            queue.push("mail", "x" * 200),
            queue.cancel("nobody"),
            queue.configure(lease_s=-1),
            queue.push("mail", 2),
            return_exceptions=True,
        )
        assert [isinstance(answer, BucketQError) for answer in answers] == [
            False,
            True,
            True,
            True,
            False,
        ]
        assert await world.ids() == [answers[0], answers[4]]
        assert world.store.count("replace") == writes + 1


@pytest.mark.parametrize("fault", [lose_answer, lose_request, late(3), say_nothing])
@virtual
async def test_what_goes_wrong_below_shows_only_in_the_time_it_takes(fault: Fault) -> None:
    world = World()
    async with world.embedded() as queue:
        world.store.plan("replace", fault, fault)
        ids = await asyncio.gather(*(queue.push("mail", number) for number in range(5)))
        jobs = await queue.claim(limit=9)
        assert [job.id for job in jobs] == ids
        await asyncio.gather(*(queue.complete(job) for job in jobs))
        assert await world.ids() == ids
        assert {job.status for job in (await world.state()).jobs} == {"done"}


@pytest.mark.parametrize("fault", [then_lost, lost_then], ids=["landed", "lost"])
@virtual
async def test_requests_whose_commit_was_forgotten_are_known_again_by_their_ids(
    fault: Callable[..., Fault],
) -> None:
    world = World()
    async with world.embedded() as queue:
        await world.rival_pushes(RING_LENGTH)
        await queue.pause("rival")
        old = await queue.push("mail", "old")
        gate = Gate()
        world.store.plan("replace", gate, fault(lambda: world.rival_pushes(RING_LENGTH + 6)))
        held = start(queue.push("index", 1))
        await gate.reached.wait()
        batch = [start(queue.push("mail", 1)), start(queue.claim("mail"))]
        await settle()
        gate.open()
        await held
        pushed, claimed = await asyncio.gather(*batch)
        assert (await world.ids()).count(pushed) == 1
        assert [(job.id, job.attempt) for job in claimed] == [(old, 1)]
        await queue.complete(claimed[0])


@virtual
async def test_a_cancelled_push_does_not_affect_other_callers() -> None:
    world = World()
    async with world.embedded() as queue:
        gate = Gate()
        world.store.plan("replace", gate)
        in_flight = [start(queue.push("mail", number)) for number in range(3)]
        await gate.reached.wait()
        collecting = [start(queue.push("mail", number)) for number in range(3, 6)]
        await settle()
        for task in (in_flight[1], collecting[1]):
            task.cancel()
        gate.open()
        answers = await asyncio.gather(*in_flight, *collecting, return_exceptions=True)
        assert [type(answer) for answer in answers].count(JobId) == 4
        assert isinstance(answers[1], asyncio.CancelledError)
        stored = await world.ids()
        assert all(answer in stored for answer in answers if isinstance(answer, str))
        await queue.push("mail", "next")


@pytest.mark.parametrize("moment", ["collecting", "in flight", "answered"])
@virtual
async def test_the_jobs_of_a_claim_whose_caller_is_cancelled_are_given_back(moment: str) -> None:
    world = World()
    async with world.embedded() as queue:
        ids = [await queue.push("mail", number) for number in range(2)]
        gate = Gate()
        world.store.plan("replace", gate)
        if moment == "collecting":
            start(queue.push("index", 1))
            await gate.reached.wait()
        claim = start(queue.claim("mail", limit=2))
        if moment == "in flight":
            await gate.reached.wait()
        await settle()
        if moment == "answered":
            gate.open()
            while not (await world.state()).running:  # noqa: ASYNC110 - a step of the loop each
                await asyncio.sleep(0)
        claim.cancel()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await claim
        async with asyncio.timeout(0.5):
            again = await queue.claim("mail", limit=2, wait_s=30)
            if len(again) < 2:
                again += await queue.claim("mail", wait_s=30)
        assert [job.id for job in again] == ids
        assert {job.record.lost_leases for job in again} == {0}


@virtual
async def test_closing_commits_what_was_asked_for() -> None:
    world = World()
    async with world.embedded() as queue:
        world.store.stand("replace", slowly(2))
        pushes = [start(queue.push("mail", number)) for number in range(3)]
        await settle()
        pushes.append(start(queue.push("mail", "later")))
        await settle()
    assert await world.ids() == [push.result() for push in pushes]
    with pytest.raises(ClosedError, match="is closed"):
        await queue.push("mail", 4)


@pytest.mark.parametrize("fault", [say_nothing, lose_request])
@virtual
async def test_closing_with_dead_storage_ends_and_answers_every_caller(fault: Fault) -> None:
    world = World()
    async with world.embedded(timeout_s=60) as queue:
        await queue.push("mail", 0)
        world.store.break_down(fault)
        pushes = [start(queue.push("mail", 1))]
        await asyncio.sleep(30)
        pushes.append(start(queue.push("mail", 2)))
        claim = start(queue.claim())
        await settle()
        claim.cancel()
        closed_at = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - closed_at <= 121
    errors = await asyncio.gather(*pushes, return_exceptions=True)
    assert [type(error) for error in errors] == [UnavailableError] * 2
    world.store.break_down(None)
    async with world.embedded() as queue:
        again = [
            await queue.push("mail", number, request=error.request)
            for number, error in enumerate(errors, start=1)
            if isinstance(error, UnavailableError)
        ]
        assert (await world.ids())[1:] == again
        assert len(again) == 2


@virtual
async def test_a_request_that_timed_out_can_be_retried_and_takes_effect_once() -> None:
    world = World()
    async with world.embedded(timeout_s=20) as queue:
        old = await queue.push("mail", "old")
        world.store.plan("replace", slowly(25), late(40))
        world.store.stand("get_if_changed", lose_request)
        with pytest.raises(UnavailableError, match="outcome is unknown") as push:
            await queue.push("mail", 1)
        with pytest.raises(UnavailableError) as claim:
            await queue.claim()
        assert push.value.request
        assert claim.value.request
        world.store.stand("get_if_changed", None)
        pushed = await queue.push("mail", 1, request=push.value.request)
        (job,) = await queue.claim(request=claim.value.request)
        assert (job.id, job.attempt) == (old, 1)
        await queue.complete(job)
        assert await world.ids() == [old, pushed]
        await asyncio.sleep(100)
        assert await world.ids() == [old, pushed]


@virtual
async def test_many_jobs_of_a_cancelled_claim_are_given_back_together() -> None:
    """One after the other they would take longer than their leases last."""
    world = World()
    async with world.embedded() as queue:
        await queue.push_many(JobSpec(kind="mail", payload=number) for number in range(50))
        gate = Gate()
        world.store.plan("replace", gate)
        claim = start(queue.claim("mail", limit=50))
        await gate.reached.wait()
        claim.cancel()
        world.store.stand("replace", slowly(1))
        gate.open()
        await asyncio.sleep(6)
        assert not (await world.state()).running
