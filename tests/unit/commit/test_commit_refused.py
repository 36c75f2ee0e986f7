"""Group commit on a store that refuses: it backs off, says so once, and answers what it can."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from bucketq.errors import StoreRefusedError
from tests.unit.broker.leaders import Realm
from tests.unit.commit.worlds import Gate, World, refuse, settle, start, virtual


def now_s() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_a_store_that_refuses_is_read_rarely_while_a_claim_is_parked_and_the_claim_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    async with world.embedded() as queue:
        waiting = start(queue.claim(wait_s=600))
        await settle()
        world.store.break_down(refuse)
        world.store.calls.clear()
        began = now_s()
        with pytest.raises(StoreRefusedError, match="no space left"):
            await waiting
        assert 4 < now_s() - began < 12
        assert len(world.store.calls) < 30
        assert len([line for line in caplog.messages if "no space left" in line]) == 1
        world.store.calls.clear()
        await asyncio.sleep(60)
        assert world.store.calls == [], "there is nothing to look for"
        world.store.break_down(None)
        await queue.push("mail", 1)
        assert len(await queue.claim(wait_s=5)) == 1


@virtual
async def test_a_claim_outlives_a_refusal_that_passes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bucketq")
    world = World()
    async with world.embedded() as queue:
        waiting = start(queue.claim(wait_s=600))
        for _ in range(2):
            await asyncio.sleep(20)
            world.store.break_down(refuse)
            await asyncio.sleep(4)
            world.store.break_down(None)
        await asyncio.sleep(5)
        assert not waiting.done()
        assert len([line for line in caplog.messages if "no space left" in line]) == 2
        assert len([line for line in caplog.messages if "passed" in line]) == 2
        await world.rival_pushes(1)
        assert len(await waiting) == 1


@virtual
async def test_a_broker_whose_store_refuses_asks_it_seldom_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    realm = Realm()
    async with realm.leader() as leader:
        waiting = start(leader.claim(wait_s=600))
        await settle()
        realm.store.break_down(refuse)
        realm.store.calls.clear()
        with pytest.raises(StoreRefusedError):
            await waiting
        await asyncio.sleep(60)
        assert len(realm.store.calls) < 60
        assert len([line for line in caplog.messages if "no space left" in line]) == 1
        assert leader.is_cut_off, "others may take over"
        realm.store.break_down(None)
        await asyncio.sleep(5)
        assert not leader.is_cut_off
        await leader.push("mail", 1)


@virtual
async def test_a_read_is_not_refused_because_of_a_write_beside_it() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        gate = Gate()
        world.store.plan("replace", gate)
        held = start(queue.push("mail", 2))
        await gate.reached.wait()
        world.store.stand("replace", refuse)
        calls = [
            start(queue.push("mail", 3)),
            start(queue.stats()),
            start(queue.push("mail", 4)),
            start(queue.jobs()),
        ]
        await settle()
        gate.open()
        await held
        answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer).__name__ for answer in answers] == [
            "StoreRefusedError",
            "Stats",
            "StoreRefusedError",
            "JobPage",
        ]
        assert answers[1].total("queued") == 2, "nothing of what was refused"
        assert len(answers[3].jobs) == 2


@virtual
async def test_a_read_that_cannot_be_confirmed_is_refused() -> None:
    world = World()
    async with world.embedded() as queue:
        await queue.push("mail", 1)
        world.store.break_down(refuse)
        answers = await asyncio.gather(queue.push("mail", 2), queue.stats(), return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreRefusedError] * 2


@virtual
async def test_heartbeats_are_heard_while_a_broker_can_write_nothing() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.configure(lease_s=3.0, heartbeat_s=1.0)
        await leader.push("mail", 1)
        (job,) = await leader.claim()
        realm.store.stand("replace", refuse)
        for _ in range(10):
            await asyncio.sleep(1)
            (pulse,) = await leader.heartbeat(job)
            assert pulse.held
        realm.store.stand("replace", None)
        await leader.complete(job)
