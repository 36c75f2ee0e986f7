"""A queue with partitions whose stores lose answers, one by one and at random, on virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from bucketq import JobSpec, KeyConflictError, Queue, UnavailableError
from bucketq.codec.decode import decode
from bucketq.commit.base import Committer
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.register import Register
from bucketq.commit.partitioned import divided_push
from bucketq.commit.partitioned.claim_turns import ClaimTurns
from bucketq.commit.partitioned.partitioned_committer import PartitionedCommitter
from bucketq.model.partitions import Partition, partition_at, partition_of
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop
from tests.unit.commit.worlds import (
    KEY,
    ScriptedStore,
    conflict_with_itself,
    late,
    lose_answer,
    lose_request,
    say_nothing,
    slowly,
    virtual,
)

COUNT = 3
KINDS: list[type[DirectCommitter | GroupCommitter]] = [DirectCommitter, GroupCommitter]


class SpreadWorld:
    """A queue with partitions, each on a store of its own."""

    def __init__(self, kind: type[DirectCommitter | GroupCommitter] = DirectCommitter) -> None:
        self.kind = kind
        self.clock = SimulatedClock(current_loop())
        self.stores = [ScriptedStore(self.clock, 0.0) for _ in range(COUNT)]

    def queue(self, timeout_s: float = 20.0, *, is_sound: bool = False) -> Queue[Any]:
        """Another client of the queue; nothing is wrong with the storage of a sound one."""

        def make(index: int) -> Committer:
            store = self.stores[index].memory if is_sound else self.stores[index]
            known = registers[0].partition if registers else None
            partition = Partition(index, COUNT, "" if known is None else known.queue)
            registers.append(Register(store, KEY, f"test://{index}", self.clock, partition))
            return self.kind(registers[-1], self.clock, timeout_s=timeout_s)

        registers: list[Register] = []
        committer = PartitionedCommitter(
            "test://queue", COUNT, make, self.clock, timeout_s=timeout_s
        )
        return Queue(committer, self.clock, timeout_s=timeout_s)


def group(index: int) -> str:
    """Return a group of a partition."""
    return next(f"g{n}" for n in range(100) if partition_at(f"group=g{n}", COUNT) == index)


def spread(count: int = 2) -> list[JobSpec[Any]]:
    """Jobs for each partition."""
    return [
        JobSpec(kind="mail", payload=[index, n], group=group(index))
        for n in range(count)
        for index in range(COUNT)
    ]


def go_dark(store: ScriptedStore, is_written: bool = True) -> None:
    """Let the next write land or not, and then answer nothing any more."""

    async def fault(effect: Any) -> None:
        store.break_down(lose_request)
        await (lose_answer if is_written else lose_request)(effect)

    store.plan("replace", fault)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_written", [True, False])
@virtual
async def test_a_push_is_repeated_in_all_partitions_and_takes_effect_once(
    kind: type[DirectCommitter | GroupCommitter],
    is_written: bool,
) -> None:
    world = SpreadWorld(kind)
    async with world.queue() as queue:
        go_dark(world.stores[1], is_written)
        with pytest.raises(UnavailableError) as raised:
            await queue.push_many(spread())
        world.stores[1].break_down(None)
        ids = await queue.push_many(spread(), request=raised.value.request)
        assert [partition_of(job_id, COUNT) for job_id in ids] == [0, 1, 2] * 2
    async with world.queue(is_sound=True) as sound:
        assert sorted(job.id for job in (await sound.jobs()).jobs) == sorted(ids)


@virtual
async def test_completions_of_several_partitions_are_repeated_as_one() -> None:
    world = SpreadWorld()
    async with world.queue() as queue:
        await queue.push_many(spread())
        jobs = await queue.claim(limit=6)
        assert len(jobs) == 6
        go_dark(world.stores[2])
        with pytest.raises(UnavailableError) as raised:
            await queue.complete_many(jobs)
        world.stores[2].break_down(None)
        assert await queue.complete_many(jobs, request=raised.value.request) == [True] * 6


@virtual
async def test_a_rejected_part_says_how_many_were_accepted() -> None:
    world = SpreadWorld()
    key = next(f"k{n}" for n in range(99) if partition_at(f"key=k{n}", COUNT) == 0)
    async with world.queue() as queue:
        await queue.push("mail", 1, key=key)
        jobs = [*spread(1)[1:], JobSpec(kind="mail", payload=2, key=key)]
        with pytest.raises(KeyConflictError, match="2 of 3 were accepted"):
            await queue.push_many(jobs)
        assert (await queue.stats()).total("queued") == 3


@virtual
async def test_a_part_without_an_answer_counts_more_than_a_rejected_one() -> None:
    world = SpreadWorld()
    key = next(f"k{n}" for n in range(99) if partition_at(f"key=k{n}", COUNT) == 2)
    async with world.queue() as queue:
        await queue.push("mail", 1, key=key)
        jobs = [*spread(1)[:2], JobSpec(kind="mail", payload=2, key=key)]
        go_dark(world.stores[1])
        with pytest.raises(UnavailableError) as raised:
            await queue.push_many(jobs)
        world.stores[1].break_down(None)
        with pytest.raises(KeyConflictError):
            await queue.push_many(jobs, request=raised.value.request)
        assert (await queue.stats()).total("queued") == 3


@pytest.mark.parametrize("kind", KINDS)
@virtual
async def test_a_partition_that_does_not_answer_holds_up_no_other(
    kind: type[DirectCommitter | GroupCommitter],
) -> None:
    world = SpreadWorld(kind)
    async with world.queue() as queue:
        await queue.push_many(spread(4))
        world.stores[0].break_down(say_nothing)
        began_s = asyncio.get_running_loop().time()
        jobs = [job for _ in range(4) for job in await queue.claim(limit=2)]
        assert asyncio.get_running_loop().time() - began_s < 10
        assert {job.payload[0] for job in jobs} == {1, 2}
        await queue.push("mail", 1, group=group(1))
        world.stores[0].break_down(None)
    # What the claims got from that partition after all was given back.
    async with world.queue(is_sound=True) as sound:
        assert (await sound.stats()).total("running") == len(jobs)


@virtual
async def test_a_claim_without_an_answer_is_repeated_for_the_same_jobs() -> None:
    world = SpreadWorld()
    async with world.queue() as queue:
        job_id = await queue.push("mail", 1, group=group(1))
        go_dark(world.stores[1])
        with pytest.raises(UnavailableError) as raised:
            await queue.claim(limit=2)
        world.stores[1].break_down(None)
        (job,) = await queue.claim(limit=2, request=raised.value.request)
        assert (job.id, job.attempt) == (job_id, 1)
        await queue.complete(job)


FAULTS = [lose_request, lose_answer, conflict_with_itself, late(0.5), slowly(2.5)]


class RandomLoad:
    """Producers and consumers that repeat what they have no answer of."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pushed: list[str] = []
        self.held: set[str] = set()
        self.done: list[str] = []

    async def fail_sometimes(self, effect: Any) -> Any:
        fault = self.chance.choice(FAULTS) if self.chance.random() < 0.25 else None
        return await (effect() if fault is None else fault(effect))

    async def produce(self, queue: Queue[Any]) -> None:
        chance = self.chance
        for number in range(15):
            specs = [
                JobSpec(kind="mail", payload=number, group=f"g{chance.randrange(9)}")
                for _ in range(chance.randrange(1, 5))
            ]
            if chance.random() < 0.3:
                specs = [JobSpec(kind="mail", payload=number)]
            token: str | None = None
            is_pushed = False
            while not is_pushed:
                try:
                    self.pushed.extend(await queue.push_many(specs, request=token))
                    is_pushed = True
                except UnavailableError as error:
                    token = error.request

    async def claim(self, queue: Queue[Any]) -> list[Any]:
        """Claim jobs, and now and then be cancelled."""
        limit = self.chance.randrange(1, 5)
        claim = asyncio.create_task(queue.claim(limit=limit, wait_s=3))
        try:
            if self.chance.random() < 0.2:
                await asyncio.wait([claim], timeout=self.chance.random())
                claim.cancel()
            await asyncio.wait([claim])
        finally:
            claim.cancel()
        return [] if claim.cancelled() or claim.exception() else claim.result()

    async def consume(self, queue: Queue[Any]) -> None:
        while True:
            jobs = await self.claim(queue)
            for job in jobs:
                assert job.id not in self.held
                self.held.add(job.id)
            await asyncio.sleep(self.chance.random())
            for job in jobs:
                await self.complete(queue, job)
                self.held.discard(job.id)

    async def complete(self, queue: Queue[Any], job: Any) -> None:
        token: str | None = None
        while True:
            try:
                await queue.complete(job, request=token)
            except UnavailableError as error:
                token = error.request
            else:
                self.done.append(job.id)
                return


async def check_places(world: SpreadWorld, pushed: list[str]) -> None:
    """See that every job is in one partition, once, and in that of its group or id."""
    found = list[str]()
    for index, store in enumerate(world.stores):
        for job in decode((await store.memory.get(KEY)).body, "a partition").state.jobs:
            place = f"group={job.group}" if job.group else f"id={job.id}"
            assert partition_at(place, COUNT) == index, f"{job.id} is in the wrong partition"
            assert partition_of(job.id, COUNT) == index, f"{job.id} names another partition"
            found.append(job.id)
    assert sorted(found) == sorted(pushed), "a job was lost, or is there twice"


async def play(seed: int, kind: type[DirectCommitter | GroupCommitter]) -> None:
    """Push and complete jobs while answers are lost, and look at what became of them."""
    world, load = SpreadWorld(kind), RandomLoad(seed)
    async with world.queue() as first, world.queue() as second:
        # So long that a job that is claimed, and was not returned, would not come again.
        await first.configure(lease_s=86400)
        for store in world.stores:
            for verb in ("replace", "get_if_changed"):
                store.stand(verb, load.fail_sometimes)
        consumers = [asyncio.create_task(load.consume(each)) for each in (first, second, second)]
        await asyncio.gather(load.produce(first), load.produce(second))
        for store in world.stores:
            store.break_down(None)
        async with asyncio.timeout(600):
            while set(load.done) != set(load.pushed):
                assert not any(task.done() for task in consumers)
                await asyncio.sleep(1)
        for task in consumers:
            task.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
    assert len(load.pushed) == len(set(load.pushed))
    assert len(load.done) == len(set(load.done))
    async with world.queue(is_sound=True) as sound:
        stats = await sound.stats()
        assert (stats.total("queued"), stats.total("running")) == (0, 0)
        assert stats.total("done") == len(load.pushed)
    await check_places(world, load.pushed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
@virtual
async def test_nothing_is_lost_or_doubled_if_answers_are_lost_at_random(
    seed: int, kind: type[DirectCommitter | GroupCommitter]
) -> None:
    await play(seed, kind)


@virtual
async def test_a_push_to_the_wrong_partition_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def next_one(place: str, count: int) -> int:
        return (partition_at(place, count) + (place == "group=g3")) % count

    monkeypatch.setattr(divided_push, "partition_at", next_one)
    with pytest.raises(AssertionError, match="is in the wrong partition"):
        await play(0, DirectCommitter)


@virtual
async def test_an_id_that_names_another_partition_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(divided_push, "id_in_partition", lambda job_id, _index: job_id)
    with pytest.raises(AssertionError, match="names another partition"):
        await play(0, DirectCommitter)


@virtual
async def test_an_id_of_the_users_own_is_unique_within_a_partition() -> None:
    names = [f"group-{number}" for number in range(COUNT * 8)]
    groups = {partition_at(f"group={name}", COUNT): name for name in names}
    other = next(name for name in names if name not in groups.values())
    async with SpreadWorld().queue(is_sound=True) as queue:
        for group in groups.values():
            await queue.push("mail", 1, id="mine", group=group)
        with pytest.raises(KeyConflictError, match="job id 'mine' belongs to a job"):
            await queue.push("mail", 1, id="mine", group=other)
        for _ in range(2):
            await queue.push("mail", 1, id="yours")
        ids = sorted([job.id for job in (await queue.jobs()).jobs])
        assert ids == [*["mine"] * COUNT, "yours"]


def test_empty_partitions_are_asked_now_and_then() -> None:
    turns = ClaimTurns(4)
    for index in (1, 2, 3):
        turns.note(index, found=False)
    assert [turns.order()[:2] for _ in range(4)] == [[1, 0], [2, 0], [3, 0], [1, 0]]
