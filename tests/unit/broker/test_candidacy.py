"""When a broker takes over: what is evidence against the one that leads, and what is not."""

from __future__ import annotations

import asyncio

from bucketq.broker.broker import Broker
from bucketq.broker.candidacy import DOUBT_S
from bucketq.broker.takeover import Identity
from bucketq.model.operations import Lead, Request, Retire
from bucketq.model.transitions import apply
from tests.unit.broker.land import Land, now_s, until
from tests.unit.commit.worlds import (
    Effect,
    Fault,
    lose_answer,
    lose_request,
    say_nothing,
    settle,
    slowly,
    virtual,
)


@virtual
async def test_if_no_broker_is_recorded_it_creates_the_queue_and_leads_at_once() -> None:
    land = Land()
    async with land.serving("host1") as broker:
        assert await land.until_led_by("host1") < 1
        record = await land.record()
        assert (record.epoch, record.host, record.address) == (1, "host1", "host1:4001")
        assert (broker.role, broker.incarnation) == ("leading", (await land.state()).incarnation)
    assert (await land.record()).address == ""


@virtual
async def test_it_stands_by_while_another_answers_and_never_writes() -> None:
    land = Land()
    async with land.serving("host1"):
        await land.until_led_by("host1")
        async with land.serving("host2") as second:
            before = await land.body()
            await asyncio.sleep(300)
            assert second.role == "standing by"
            assert await land.body() == before
            pong = await land.ping("host2")
            assert (pong.role, pong.leader, pong.epoch) == ("standing by", "host1:4001", 1)


@virtual
async def test_it_takes_over_soon_after_the_leader_was_killed() -> None:
    land = Land()
    leader = land.spawn("host1")
    await land.until_led_by("host1")
    async with land.serving("host2"):
        await asyncio.sleep(5)
        leader.kill()
        assert await land.until_led_by("host2") < 4
        assert (await land.record()).epoch == 2


@virtual
async def test_it_takes_over_at_once_from_one_that_has_retired() -> None:
    land = Land()
    async with land.serving("host2"):
        async with land.serving("host1", takeover=True):
            await land.until_led_by("host1")
            await asyncio.sleep(5)
        assert await land.until_led_by("host2") < 4


@virtual
async def test_it_takes_over_from_one_that_is_frozen_which_steps_down_when_it_wakes() -> None:
    land = Land()
    frozen = land.spawn("host1")
    await land.until_led_by("host1")
    async with land.serving("host2"):
        await asyncio.sleep(2)
        frozen.freeze()
        assert 1.5 <= await land.until_led_by("host2") < 8, "two pings have to go unanswered"
        frozen.thaw()
        await asyncio.sleep(8)
        assert land.brokers["host1"].role == "standing by"
        assert land.brokers["host2"].role == "leading"
        assert (await land.record()).epoch == 2


@virtual
async def test_a_single_lost_ping_is_not_evidence() -> None:
    land = Land()
    land.spawn("host1")
    await land.until_led_by("host1")
    async with land.serving("host2") as second:
        for _ in range(20):
            land.network.partition("host2")
            await asyncio.sleep(1.5)
            land.network.heal("host2")
            await asyncio.sleep(3)
        assert second.role == "standing by"
        assert (await land.record()).epoch == 1


@virtual
async def test_slow_storage_is_not_evidence() -> None:
    land = Land()
    async with land.serving("host1") as first:
        await land.until_led_by("host1")
        async with land.serving("host2", healthy=True) as second:
            await asyncio.sleep(2)
            land.store.break_down(slowly(9))
            await asyncio.sleep(120)
            assert (first.role, second.role) == ("leading", "standing by")
            land.store.break_down(None)
            await asyncio.sleep(20)


def breaking_down(land: Land) -> Fault:
    """Let a write land, and nobody who uses the store hear of it or of anything else."""

    async def land_and_break(effect: Effect) -> None:
        land.store.break_down(lose_request)
        await lose_answer(effect)

    return land_and_break


@virtual
async def test_a_takeover_in_doubt_is_not_evidence_against_its_broker() -> None:
    land = Land()
    async with land.serving("host2", healthy=True):
        await land.until_led_by("host2")
    land.store.plan("replace", breaking_down(land))
    async with land.serving("host1") as first:
        await until(lambda: land.store.count("replace") > 0)
        assert (await land.record()).host == "host1"
        async with land.serving("host2", healthy=True) as second:
            await asyncio.sleep(DOUBT_S - 5)
            assert (first.role, second.role) == ("standing by", "standing by")
            land.store.break_down(None)
            await land.until_led_by("host1")
            assert (await land.record()).epoch == 2


@virtual
async def test_a_broker_that_never_learns_the_outcome_of_its_takeover_is_replaced() -> None:
    land = Land()
    land.store.plan("replace", breaking_down(land))
    async with land.serving("host1"):
        await until(lambda: land.store.count("replace") > 0)
        async with land.serving("host2", healthy=True):
            assert await land.until_led_by("host2") > DOUBT_S / 2
            land.store.break_down(None)


@virtual
async def test_a_leader_that_is_cut_off_says_so_and_is_replaced() -> None:
    land = Land()
    async with land.serving("host1") as first:
        await land.until_led_by("host1")
        async with land.serving("host2", healthy=True):
            await asyncio.sleep(1)
            land.store.break_down(say_nothing)
            cut_at = now_s()
            await until(lambda: first.role != "leading")
            assert 15 <= now_s() - cut_at <= 21
            assert (await land.ping("host1")).role == "cut off"
            assert await land.until_led_by("host2") < 4
            land.store.break_down(None)
            await asyncio.sleep(20)
            assert first.role == "standing by"


@virtual
async def test_what_listens_at_the_address_now_and_is_another_is_evidence() -> None:
    land = Land()
    first = land.spawn("host1")
    await land.until_led_by("host1")
    first.kill()
    land.network.squat("host1:4001")
    async with land.serving("host2"):
        assert await land.until_led_by("host2") < 4


@virtual
async def test_a_loopback_address_of_another_host_is_never_taken_over() -> None:
    land = Land()
    register = land.register()
    document = await register.open(create=True)
    lead = Lead(id="far", address="127.0.0.1:4001", host="elsewhere", after=0)
    apply(document.state, Request(lead), land.clock.now())
    await register.commit(document, register.prepare(document))
    async with land.serving("host1") as broker:
        await asyncio.sleep(600)
        assert broker.role == "standing by"
        assert (await land.record()).id == "far"
        document = await register.load()
        apply(document.state, Request(Retire(id="far", epoch=1)), land.clock.now())
        await register.commit(document, register.prepare(document))
        assert await land.until_led_by("host1") < 6, "when it is gone, it is gone"


@virtual
async def test_who_starts_it_may_have_the_evidence_already() -> None:
    land = Land()
    gone = land.spawn("host1")
    await land.until_led_by("host1")
    gone.freeze()
    server = land.server("host2")
    land.brokers["host2"].has_evidence_against(1)
    await server.start("host2:0")
    assert await land.until_led_by("host2") < 0.5
    await server.stop()


@virtual
async def test_evidence_against_an_earlier_epoch_is_none() -> None:
    land = Land()
    async with land.serving("host1"):
        await land.until_led_by("host1")
        server = land.server("host2")
        land.brokers["host2"].has_evidence_against(0)
        await server.start("host2:0")
        await asyncio.sleep(10)
        assert land.brokers["host2"].role == "standing by"
        await server.stop()


@virtual
async def test_a_forced_takeover_needs_no_evidence_and_happens_once() -> None:
    land = Land()
    async with land.serving("host1") as first:
        await land.until_led_by("host1")
        async with land.serving("host2", takeover=True) as second:
            assert await land.until_led_by("host2") < 0.5
            await asyncio.sleep(10)
            assert (first.role, second.role) == ("standing by", "leading")
            async with land.serving("host3", takeover=True):
                await land.until_led_by("host3")
                await asyncio.sleep(30)
                assert (await land.record()).epoch == 3, "nobody fights back"


@virtual
async def test_a_forced_takeover_is_tried_until_it_has_happened() -> None:
    land = Land()
    async with land.serving("host1", healthy=True):
        await land.until_led_by("host1")
        land.store.plan("get", *[lose_request] * 3)
        server = land.server("host2", takeover=True)
        await server.start("host2:0")
        await settle()
        assert await land.until_led_by("host2") < 10
        await server.stop()


async def depose(land: Land, broker: Broker) -> float:
    """Take over from a broker that is alive, retire at once; return when it leads again."""
    register = land.register()
    document = await register.load()
    usurper = Identity("usurper", "nowhere:1", "nowhere")
    lead = Lead(usurper.id, usurper.address, usurper.host, document.state.epoch)
    apply(document.state, Request(lead), land.clock.now())
    apply(document.state, Request(Retire("usurper", document.state.epoch)), land.clock.now())
    await register.commit(document, register.prepare(document))
    await until(lambda: broker.leader is None)
    began = now_s()
    await broker.leading.wait()
    return now_s() - began


@virtual
async def test_who_is_deposed_while_alive_cools_down_twice_as_long_each_time() -> None:
    land = Land()
    async with land.serving("host1") as broker:
        await land.until_led_by("host1")
        pauses = [await depose(land, broker) for _ in range(5)]
    for number, pause_s in enumerate(pauses):
        assert 0.5 * 2**number <= pause_s <= 1.6 * 2**number, pauses


@virtual
async def test_what_was_long_ago_does_not_count_for_the_cool_down() -> None:
    land = Land()
    async with land.serving("host1") as broker:
        await land.until_led_by("host1")
        for _ in range(3):
            await depose(land, broker)
        await asyncio.sleep(70)
        assert await depose(land, broker) <= 1.6
