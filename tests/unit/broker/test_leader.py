"""The leader: group commit that knows its epoch, hears heartbeats, and proves that it leads."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.broker import leader as leader_module
from bucketq.broker.takeover import DeposedError
from bucketq.errors import InvalidRequestError, PayloadTooLargeError, UnavailableError
from bucketq.model.operations import LeaseRef, Pulse
from tests.unit.broker.leaders import ADA, BOB, Realm, now_s, until
from tests.unit.commit.worlds import (
    Gate,
    first,
    lose_request,
    say_nothing,
    settle,
    slowly,
    start,
    virtual,
)


@virtual
async def test_it_takes_over_when_it_is_opened_and_names_its_epoch() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        broker = (await realm.state()).broker
        assert broker is not None
        assert (broker.id, broker.epoch, broker.address) == ("ada", 1, ADA.address)
        assert (leader.epoch, leader.is_open) == (1, True)


@virtual
async def test_heartbeats_cause_no_write_and_are_answered_at_once_while_it_has_proof() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        ids = [await leader.push("mail", number) for number in range(100)]
        jobs = await leader.claim(limit=100)
        realm.store.calls.clear()
        began = now_s()
        for _ in range(20):
            pulses = await leader.heartbeat(jobs)
            assert pulses == [Pulse(job_id, held=True) for job_id in ids]
        assert now_s() == began
        assert realm.store.calls == []


@virtual
async def test_a_heartbeat_without_fresh_proof_waits_for_it() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        (job,) = await leader.claim()
        await asyncio.sleep(2.5)
        assert leader.unproven_s > 2
        gate = Gate()
        realm.store.plan("get_if_changed", gate)
        beating = start(leader.heartbeat(job))
        await gate.reached.wait()
        await asyncio.sleep(0.5)
        assert not beating.done()
        gate.open()
        assert await beating == [Pulse(job.id, held=True)]
        assert realm.writes() == 3, "the takeover, the push and the claim"


@virtual
async def test_while_the_storage_is_cut_nothing_is_answered_from_memory() -> None:
    realm = Realm()
    async with realm.leader(timeout_s=8.0) as leader:
        await leader.push("mail", 1)
        (job,) = await leader.claim()
        realm.store.break_down(lose_request)
        await asyncio.sleep(1)
        assert await leader.heartbeat(job) == [Pulse(job.id, held=True)], "it has proof"
        await asyncio.sleep(1.5)
        with pytest.raises(UnavailableError):
            await leader.heartbeat(job)
        with pytest.raises(UnavailableError):
            await leader.stats()
        with pytest.raises(UnavailableError):
            await leader.claim("index", wait_s=1)
        realm.store.break_down(None)
        await asyncio.sleep(5)
        assert await leader.heartbeat(job) == [Pulse(job.id, held=True)]


@virtual
async def test_a_lost_lease_is_reported_only_when_it_is_durable() -> None:
    """What is applied and not committed yet may never be: nobody stops working on account of it."""
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        (job,) = await leader.claim()
        gate = Gate()
        realm.store.plan("replace", gate)
        releasing = start(leader.release(job))
        await gate.reached.wait()
        beating = start(leader.heartbeat(job))
        await asyncio.sleep(1)
        assert not beating.done()
        gate.open()
        assert await beating == [Pulse(job.id, held=False)]
        await releasing


@virtual
async def test_a_request_to_stop_is_reported_when_it_is_durable() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        (job,) = await leader.claim()
        assert await leader.cancel(job.id) == "requested"
        assert await leader.heartbeat(job) == [Pulse(job.id, held=True, cancel_requested=True)]


@virtual
async def test_a_heartbeat_for_too_many_jobs_is_refused() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.configure(max_batch_jobs=2)
        with pytest.raises(InvalidRequestError, match="at most 2"):
            await leader.heartbeat([LeaseRef(f"job-{n}", "x" * 32) for n in range(3)])


@virtual
async def test_a_snapshot_of_a_queue_that_is_too_large_says_how_to_read_it() -> None:
    realm = Realm()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leader_module, "SNAPSHOT_BYTES", 20_000)
        async with realm.leader() as leader:
            await leader.configure(max_format=2, spill_bytes=2000)
            await leader.push("k", "x" * 1000)
            assert len((await leader.snapshot()).jobs) == 1
            for _ in range(30):
                await leader.push("k", "x" * 1000)
            await asyncio.sleep(10)
            stats = await leader.stats()
            assert stats.head_bytes < 20_000 < stats.bytes, "segments count too"
            with pytest.raises(PayloadTooLargeError, match=r"ls --all.* address of the queue"):
                await leader.snapshot()
            assert len((await leader.jobs(limit=100)).jobs) == 31


@virtual
async def test_a_worker_that_beats_keeps_its_job_and_a_silent_one_loses_it_within_a_sweep() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", "heard")
        await leader.push("mail", "silent")
        heard, silent = await leader.claim(limit=2)
        claimed_at = now_s()
        while (await leader.get(silent.id)).status == "running":
            await leader.heartbeat(heard)
            await asyncio.sleep(0.25)
        assert 30 <= now_s() - claimed_at <= 31.5
        assert (await leader.get(heard.id)).status == "running"
        assert [error.cause for error in (await leader.get(silent.id)).errors] == ["lost"]


@virtual
async def test_a_silent_worker_whose_claim_waits_gets_its_lost_job_only_after_others() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        await leader.claim(worker="frozen")
        frozen = start(leader.claim(wait_s=300, worker="frozen"))
        await settle()
        healthy = start(leader.claim(wait_s=300, worker="healthy"))
        [job] = await healthy
        assert (job.worker, job.attempt) == ("healthy", 2)
        assert not frozen.done()
        await leader.push("mail", 2)
        assert [job.worker for job in await frozen] == ["frozen"]


@virtual
async def test_an_idle_queue_recovers_the_job_of_a_dead_worker_by_itself() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        await asyncio.sleep(1.7)
        await leader.claim()
        assert 30 <= await until(realm.is_reclaimed) <= 31.5


@virtual
async def test_a_slow_write_costs_the_worker_nothing_of_its_lease() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        await asyncio.sleep(2)  # So that a sweep sees the job before its worker has it.
        realm.store.plan("replace", slowly(8))
        await leader.claim()
        assert 30 <= await until(realm.is_reclaimed) <= 31.5


@virtual
async def test_a_slow_write_costs_the_driver_of_a_batch_nothing_of_its_lease() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        await leader.open_consumer("spark")
        await asyncio.sleep(2)  # So that a sweep sees the job before its driver has it.
        realm.store.plan("replace", slowly(8))
        await leader.claim_batch("spark", 1, 1, lease_s=40)
        assert 40 <= await until(realm.is_reclaimed) <= 41.5


@virtual
async def test_claiming_a_batch_again_is_heard_as_a_heartbeat() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        await leader.open_consumer("spark")
        await leader.claim_batch("spark", 1, 1)
        await asyncio.sleep(25)
        assert (await leader.claim_batch("spark", 1, 1)).jobs == 1
        assert 30 <= await until(realm.is_reclaimed) <= 31.5
        assert (await leader.claim_batch("spark", 1, 1)).jobs == 1


@virtual
async def test_what_was_heard_is_written_down_every_third_of_a_lease_and_not_more_often() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        (job,) = await leader.claim()
        before = realm.writes()
        for _ in range(600):
            await leader.heartbeat(job)
            await asyncio.sleep(0.1)
        assert 5 <= realm.writes() - before <= 6
        (record,) = (await realm.state()).jobs
        assert record.heartbeat_at is not None
        assert (realm.clock.now() - record.heartbeat_at).total_seconds() < 11
        assert record.silent_s < 1


@virtual
async def test_a_successor_continues_from_the_written_silence_with_a_grace() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        await leader.claim()
        claimed_at = now_s()
        await asyncio.sleep(22)
    async with realm.usurper(after=1):
        took_s = await until(realm.is_reclaimed)
        assert 15 <= took_s <= 16.5, "no sooner than the grace, and no whole new lease"
        assert now_s() - claimed_at < 45


@virtual
async def test_an_idle_leader_proves_itself_every_five_seconds_and_writes_nothing() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        before, writes = realm.reads(), realm.writes()
        oldest = 0.0
        for _ in range(600):
            await asyncio.sleep(0.1)
            oldest = max(oldest, leader.unproven_s)
        assert 11 <= realm.reads() - before <= 13
        assert realm.writes() == writes
        assert 4.5 < oldest < 5.5


@virtual
async def test_a_parked_claim_that_ends_empty_is_answered_under_proof_and_without_a_write() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        writes = realm.writes()
        began = now_s()
        assert await leader.claim(wait_s=3.3) == []
        assert now_s() - began == pytest.approx(3.3, abs=0.1)
        assert realm.writes() == writes


@virtual
async def test_a_deposed_leader_does_not_answer_a_parked_claim_as_empty() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        waiting = start(leader.claim(wait_s=10))
        await settle()
        async with realm.usurper(after=1):
            with pytest.raises(DeposedError) as no:
                await waiting
            assert now_s() < 3, "it looks once a second while claims wait"
            assert no.value.leader == BOB.address


@pytest.mark.parametrize("asked", ["write", "read", "nothing"])
@virtual
async def test_it_steps_down_when_it_finds_another_epoch(asked: str) -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        async with realm.usurper(after=1) as usurper:
            if asked == "write":
                with pytest.raises(DeposedError):
                    await leader.push("mail", "never")
            elif asked == "read":
                with pytest.raises(DeposedError):
                    await leader.stats()
            async with asyncio.timeout(6):
                reason = await leader.committer.stopped()
            assert isinstance(reason, DeposedError)
            assert reason.leader == BOB.address
            assert not leader.is_open
            assert len((await usurper.jobs()).jobs) == 1
            with pytest.raises(DeposedError):
                await leader.push("mail", "never")


@virtual
async def test_a_direct_writer_beside_it_costs_another_try_and_nothing_else() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        for number in range(5):
            await realm.rival_pushes()
            await leader.push("mail", number)
        assert leader.is_open
        assert len(await realm.ids()) == 10
        assert (await realm.state()).epoch == 1


@virtual
async def test_its_retirement_clears_the_address_and_keeps_the_epoch() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        waiting = start(leader.claim("index", wait_s=60))
        await settle()
        pushing = start(leader.push("mail", 1))
        await asyncio.sleep(0)
        await leader.retire()
        await pushing
        with pytest.raises(DeposedError, match="find the next one"):
            await waiting
    state = await realm.state()
    assert state.broker is not None
    assert (state.broker.address, state.broker.epoch, state.is_served) == ("", 1, False)
    assert len(await realm.ids()) == 1


@virtual
async def test_a_late_retirement_leaves_its_successor_alone() -> None:
    realm = Realm()
    async with realm.leader() as leader, realm.usurper(after=1):
        await leader.retire()
        broker = (await realm.state()).broker
        assert broker is not None
        assert (broker.id, broker.address, broker.epoch) == ("bob", BOB.address, 2)


@virtual
async def test_a_retirement_that_storage_does_not_answer_ends_in_time() -> None:
    realm = Realm()
    async with realm.leader(timeout_s=5.0) as leader:
        realm.store.break_down(say_nothing)
        began = now_s()
        await leader.retire()
        assert now_s() - began == pytest.approx(5, abs=0.1)
        realm.store.break_down(None)


@virtual
async def test_slow_storage_shows_in_the_age_of_the_write_and_then_in_being_cut_off() -> None:
    realm = Realm()
    async with realm.leader(timeout_s=60.0) as leader:
        realm.store.break_down(say_nothing)
        pushing = start(leader.push("mail", 1))
        await asyncio.sleep(9)
        assert leader.commit_age_s == pytest.approx(9, abs=0.1)
        assert not leader.is_cut_off
        await asyncio.sleep(12)
        assert leader.is_cut_off
        await asyncio.sleep(25)
        assert leader.is_cut_off, "more time for the storage is no sign of life"
        realm.store.break_down(None)
        await pushing
        await settle()
        assert not leader.is_cut_off


@virtual
async def test_an_idle_leader_that_storage_does_not_answer_is_cut_off_and_stays_so() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        realm.store.break_down(say_nothing)
        await asyncio.sleep(19)
        assert not leader.is_cut_off
        for _ in range(100):
            await asyncio.sleep(3)
            assert leader.is_cut_off, "that the storage is given more time is no sign of life"
        realm.store.break_down(None)


@virtual
async def test_a_parked_claim_that_ends_while_storage_is_slow_waits_for_fresh_proof() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        realm.store.plan("get_if_changed", slowly(5), slowly(3))
        assert await leader.claim(wait_s=1.5) == []
        assert now_s() == pytest.approx(9, abs=0.1), "the first proof was too old when it came"


@virtual
async def test_a_freeze_of_the_process_gives_every_lease_the_grace() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        (job,) = await leader.claim()
        await asyncio.sleep(5)
        stopped = leader._hooks._heartbeats
        # As after SIGSTOP: the time has passed, and nothing of this process has run.
        stopped._ticked_s -= 100
        stopped._heard[job.id] = (1, now_s() - 100)
        leader._hooks._heartbeats.tick(now_s())
        assert 15 <= await until(realm.is_reclaimed) <= 16.5


@virtual
async def test_silence_that_was_lost_to_another_writer_is_written_at_the_next_sweep() -> None:
    """A successor needs it, also if direct writers outrun a leader without clients."""
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        await leader.claim()
        lease_s = (await leader.settings()).lease_s
        realm.store.plan("replace", first(realm.rival_pushes))
        await asyncio.sleep(lease_s / 3 + 2.5)
        job = next(iter((await realm.state()).jobs))
        assert job.silent_s > lease_s / 3
