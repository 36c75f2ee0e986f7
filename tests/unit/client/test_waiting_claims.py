"""A claim that waits at a broker that stops: its client notices before the lease is over."""

from __future__ import annotations

import asyncio

from tests.unit.broker.land import now_s, until
from tests.unit.client.clients import Realm, remote_of
from tests.unit.commit.worlds import Effect, start, virtual


@virtual
async def test_a_claim_whose_broker_froze_after_its_commit_is_answered_by_the_next() -> None:
    """Only claims wait at the broker, so that no other call shows its client that it is silent."""
    realm = Realm()
    frozen = realm.spawn("host1")
    await realm.until_led_by("host1")
    async with realm.serving("host2", healthy=True), realm.client() as queue:
        await queue.configure(lease_s=10.0, heartbeat_s=2.0, grace_s=5.0)
        claiming = start(queue.claim(wait_s=20))
        await asyncio.sleep(4)

        async def freeze_once_written(effect: Effect) -> str:
            etag: str = await effect()
            if b'"running"' in realm.store.bodies[-1]:
                frozen.freeze()
                await asyncio.sleep(0)
            return etag

        realm.store.stand("replace", freeze_once_written)
        async with realm.client("other") as other:
            await other.push("mail", 1)
        await until(lambda: frozen.frozen)
        committed_s = now_s()
        (job,) = await claiming
        assert job.attempt == 1
        assert (await realm.record()).host == "host2"
        assert now_s() - committed_s < 7.0, "of the ten seconds that the lease has"
        (pulse,) = await queue.heartbeat([job])
        assert pulse.held
        frozen.kill()


@virtual
async def test_clients_whose_claims_wait_do_not_ping_a_broker_that_lives() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        asked = []
        sign_of = remote_of(queue)._finder.sign_of

        async def count(route: object) -> object:
            asked.append(route)
            return await sign_of(route)  # type: ignore[arg-type]

        remote_of(queue)._finder.sign_of = count  # type: ignore[method-assign, assignment]
        assert await queue.claim(wait_s=60) == []
        assert asked == []
