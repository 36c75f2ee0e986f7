"""A claim whose caller was cancelled: it takes no job, or gives it back."""

from __future__ import annotations

import asyncio

from tests.unit.broker.land import now_s, until
from tests.unit.client.clients import Realm
from tests.unit.commit.worlds import Gate, settle, start, virtual


@virtual
async def test_a_claim_that_was_withdrawn_after_a_failover_waits_no_longer() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.serving("host2"):
        async with realm.client() as queue:
            claiming = start(queue.claim(wait_s=3000))
            await asyncio.sleep(2)
            first.kill()
            await realm.until_led_by("host2")
            await asyncio.sleep(3)
            claiming.cancel()
            await settle()
            await queue.push("mail", 1)
            assert len(await queue.claim(wait_s=5)) == 1
        assert now_s() < 60, "closing does not wait for it"


@virtual
async def test_a_claim_withdrawn_while_there_is_no_broker_is_not_sent() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.client() as queue:
        claiming = start(queue.claim(wait_s=3000))
        await asyncio.sleep(2)
        first.kill()
        await asyncio.sleep(2)
        claiming.cancel()
        async with realm.serving("host2"):
            await realm.until_led_by("host2")
            await asyncio.sleep(5)
            leader = realm.brokers["host2"].leader
            assert leader is not None
            assert leader.parked == 0
            await queue.push("mail", 1)
            assert [job.attempt for job in await queue.claim(wait_s=5)] == [1]


@virtual
async def test_cancelled_claims_take_no_jobs() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        for _ in range(300):
            claiming = start(queue.claim(wait_s=60))
            await asyncio.sleep(0.01)
            claiming.cancel()
        leader = realm.brokers["host1"].leader
        assert leader is not None
        await until(lambda: leader.parked == 0, limit_s=1.0)
        began = now_s()
        await queue.push("mail", 1)
        (job,) = await queue.claim(wait_s=10)
        assert job.attempt == 1
        assert now_s() - began < 0.1


@virtual
async def test_a_cancelled_claim_in_flight_gives_its_job_back_in_the_next_commit() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue, realm.client("other") as other:
        await queue.push("mail", 1)
        gate = Gate()
        realm.store.plan("replace", gate)
        claiming = start(queue.claim(wait_s=60))
        await gate.reached.wait()
        claiming.cancel()
        await asyncio.sleep(0.1)
        writes = realm.store.count("replace")
        waiting = start(other.claim(wait_s=60))
        await asyncio.sleep(0.1)
        gate.open()
        (job,) = await waiting
        assert (job.attempt, job.record.lost_leases) == (2, 0)
        assert realm.store.count("replace") == writes + 1, "released and claimed in one commit"


@virtual
async def test_a_claim_in_flight_when_its_client_hangs_up_is_given_back() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client("other") as other:
        await other.push("mail", 1)
        gate = Gate()
        realm.store.plan("replace", gate)
        async with realm.client() as queue:
            claiming = start(queue.claim(wait_s=60))
            await gate.reached.wait()
            claiming.cancel()
        gate.open()
        (job,) = await other.claim(wait_s=5)
        assert (job.attempt, job.record.lost_leases) == (2, 0)


@virtual
async def test_a_claim_answered_while_its_client_closes_is_released() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client("other") as other:
        await other.push("mail", 1)
        async with realm.client() as queue:
            claiming = start(queue.claim(wait_s=60))
            while next(iter((await realm.state()).jobs)).status != "running":  # noqa: ASYNC110
                await asyncio.sleep(0.0001)
            claiming.cancel()
        (job,) = await other.claim(wait_s=5)
        assert (job.attempt, job.record.lost_leases) == (2, 0)
