"""What a leader keeps of its counts for charts."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from msgspec.structs import replace

from bucketq import JobSpec
from bucketq.broker import sample_ring
from bucketq.broker.commit_meter import CommitMeter
from bucketq.commit.objects.register import Register
from bucketq.commit.partitioned.answer_sums import add_stats
from bucketq.errors import StoreRefusedError
from bucketq.model.queue_stats import StatsSample
from bucketq.model.state import State
from tests.unit.broker.leaders import Led, Realm
from tests.unit.commit.worlds import KEY, first, refuse, start, virtual


async def samples(leader: Led) -> tuple[StatsSample, ...]:
    found = (await leader.stats(samples=True)).samples
    assert found is not None
    return found


@virtual
async def test_a_leader_counts_every_ten_seconds_even_if_it_is_idle() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push_many([JobSpec(kind="mail", payload=n) for n in range(3)])
        await leader.push("later", 1, delay_s=600)
        await asyncio.sleep(100)
        (job,) = await leader.claim("mail", worker="w")
        await leader.fail(job, "no", retry=False)
        await asyncio.sleep(20)
        found = await samples(leader)
        assert (await leader.stats()).samples is None
    assert found[0].age_s >= 119
    assert all(9 < before.age_s - after.age_s <= 16 for before, after in pairwise(found))
    assert (found[-1].queued, found[-1].delayed, found[-1].dead) == (3, 1, 1)
    assert found[5].queued == 4
    assert found[-1].pushed == 4
    assert 100 < (found[-1].oldest_queued_s or 0) <= 121
    assert found[-1].bytes > 500
    assert found[1].commit_p99_s is not None
    assert found[7].commit_p99_s is None, "there were no commits in the minute before"


@virtual
async def test_samples_are_of_what_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that waits gets a job in the commit of its push: the job was never queued."""
    monkeypatch.setattr(sample_ring, "_FINE_S", 0.0)
    realm = Realm()
    async with realm.leader() as leader:
        for _ in range(3):
            waiting = asyncio.create_task(leader.claim("mail", worker="w", wait_s=30))
            await asyncio.sleep(3)
            await leader.push("mail", 1)
            (job,) = await waiting
            await leader.complete(job)
        found = await samples(leader)
    assert {each.queued for each in found} == {0}
    assert 1 in {each.running for each in found}


@virtual
async def test_what_was_lost_or_refused_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_ring, "_FINE_S", 0.0)
    realm = Realm()
    async with realm.leader() as leader:
        await asyncio.sleep(11)
        realm.store.plan("replace", first(realm.rival_pushes))
        await leader.push("mail", 1)
        lost = await samples(leader)
        assert (lost[-1].queued, lost[-1].version) == (2, (await leader.stats()).version)
        assert 1 not in {each.queued for each in lost}
        realm.store.plan("replace", refuse)
        pushing, reading = start(leader.push("mail", 1)), start(samples(leader))
        with pytest.raises(StoreRefusedError):
            await pushing
        assert {each.queued for each in await reading} == {0, 2}
        await asyncio.sleep(11)
        assert {each.queued for each in await samples(leader)} == {0, 2}


@virtual
async def test_a_day_is_kept_in_a_bounded_number_of_samples() -> None:
    realm = Realm()
    meter = CommitMeter(Register(realm.store, KEY, "test://queue", realm.clock))
    ring = sample_ring.SampleRing(realm.clock, meter)
    state = State(incarnation="test", created_at=realm.clock.now())
    for _ in range(30 * 360):
        await asyncio.sleep(10)
        ring.take(state)
        ring.keep()
    found = ring.read()
    assert len(found) <= 360 + 720
    assert 23.9 * 3600 < found[0].age_s <= 24 * 3600
    assert [each.age_s for each in found[-360:]] == [10.0 * each for each in range(359, -1, -1)]
    assert max(before.age_s - after.age_s for before, after in pairwise(found)) <= 120


@virtual
async def test_a_queue_that_cannot_be_counted_is_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> StatsSample:
        raise ValueError("a bug")

    monkeypatch.setattr(sample_ring, "sample", fail)
    async with Realm().leader() as leader:
        await leader.push("mail", 1)
        assert await samples(leader) == ()
    assert "cannot be counted" in caplog.text


@virtual
async def test_samples_of_partitions_are_paired_and_added_up() -> None:
    async with Realm().leader() as leader:
        led = await leader.stats()
    one = StatsSample(0.0, 1, 1, 1, 1, 1, 1, 5.0, 100, 9, 0.1, 0.2)
    earlier = tuple(replace(one, age_s=age) for age in (500.0, 130.0, 20.0, 10.0))
    second = tuple(
        replace(one, age_s=age, oldest_queued_s=8.0, delayed=None, commit_p50_s=None)
        for age in (160.0, 24.0, 13.0)
    )
    both = add_stats([replace(led, samples=earlier), replace(led, samples=second)]).samples
    assert both is not None
    assert [each.age_s for each in both] == [130.0, 20.0, 10.0]
    assert both[0] == StatsSample(130.0, 2, 2, 2, 2, 2, None, 8.0, 200, 18, 0.1, 0.2)
    assert add_stats([replace(led, samples=earlier), led]).samples is None
