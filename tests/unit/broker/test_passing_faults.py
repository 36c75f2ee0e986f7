"""Faults that pass: a broker that stands by retries them, and says so once."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.errors import StoreRefusedError, SupersededError
from bucketq.rpc.messages import Ping, Pong
from bucketq.rpc.transport import CannotDialError
from tests.unit.broker.land import Land, until
from tests.unit.commit.worlds import refuse, say_nothing, virtual


def said(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in record.getMessage() for record in caplog.records)


@virtual
async def standby_outlives_a_refusal(caplog: pytest.LogCaptureFixture, refused_s: float) -> None:
    land = Land()
    leader = land.spawn("host1", healthy=True)
    await land.until_led_by("host1")
    async with land.serving("host2") as second:
        await asyncio.sleep(2)
        land.store.break_down(refuse)
        leader.kill()
        await asyncio.sleep(refused_s)
        assert second.failure is None
        assert second.role == "standing by"
        assert said(caplog, "no space left") == 1
        land.store.break_down(None)
        assert await land.until_led_by("host2") < 8
        assert (await land.record()).epoch == 2


@pytest.mark.parametrize("refused_s", [5.0, 120.0])
def test_a_standby_outlives_a_store_that_refuses_for_a_while(
    caplog: pytest.LogCaptureFixture, refused_s: float
) -> None:
    standby_outlives_a_refusal(caplog, refused_s)


def test_a_leader_that_is_cut_off_logs_that_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @virtual
    async def story() -> None:
        land = Land()
        async with land.serving("host1") as broker:
            await land.until_led_by("host1")
            land.store.break_down(say_nothing)
            await until(lambda: broker.role == "cut off")
            await asyncio.sleep(60)
            said_so = said(caplog, "cut off: the storage has not answered")
            assert 4 <= said_so <= 7, "every ten seconds, as the messages to clients allow"
            land.store.break_down(None)

    story()


@virtual
async def test_a_takeover_that_the_store_refuses_is_tried_again() -> None:
    land = Land()
    leader = land.spawn("host1", healthy=True)
    await land.until_led_by("host1")
    async with land.serving("host2") as second:
        await asyncio.sleep(2)
        land.store.stand("replace", refuse)
        leader.kill()
        await until(lambda: land.store.count("replace") > 2)
        assert second.failure is None
        assert (await land.ping("host2")).leader != "host2:4001", "it does not claim to lead"
        land.store.stand("replace", None)
        await land.until_led_by("host2")


@virtual
async def test_a_store_that_refuses_at_the_start_ends_the_broker_at_once() -> None:
    land = Land()
    land.store.break_down(refuse)
    server = land.server("host1")
    await server.start("host1:0")
    with pytest.raises(StoreRefusedError, match="no space left"):
        await asyncio.wait_for(server.until_over(), 1.0)
    await server.stop()


@virtual
@pytest.mark.unhandled
async def test_what_can_never_pass_ends_a_standby() -> None:
    land = Land()
    land.spawn("host1", healthy=True)
    await land.until_led_by("host1")
    server = land.server("host2")
    await server.start("host2:0")
    await asyncio.sleep(2)
    await land.store.memory.delete("queue.json")
    with pytest.raises(SupersededError, match="deleted"):
        await asyncio.wait_for(server.until_over(), 10.0)
    await server.stop()


class Shortsighted:
    """The transport of a host whose certificate files are missing now and then."""

    def __init__(self, land: Land, host: str) -> None:
        self._inner = land.network.host(host)
        self.is_blind = False
        self.pings = 0

    async def ping(self, address: str, ping: Ping, timeout_s: float) -> Pong:
        self.pings += 1
        if self.is_blind:
            message = "cannot use the certificates in ca.pem: no such file or directory"
            raise CannotDialError(message)
        return await self._inner.ping(address, ping, timeout_s)


@virtual
async def blind_standby(caplog: pytest.LogCaptureFixture) -> None:
    land = Land()
    leader = land.spawn("host1")
    await land.until_led_by("host1")
    async with land.serving("host2") as second:
        eyes = Shortsighted(land, "host2")
        second._standby._transport = eyes  # type: ignore[assignment]
        await until(lambda: eyes.pings > 2)
        eyes.is_blind = True
        await asyncio.sleep(120)
        assert (second.role, second.failure) == ("standing by", None)
        assert (await land.record()).epoch == 1, "that it cannot ask is no evidence"
        assert said(caplog, "ca.pem") == 1
        leader.kill()
        await asyncio.sleep(20)
        assert (await land.record()).epoch == 1
        eyes.is_blind = False
        assert await land.until_led_by("host2") < 8


def test_a_standby_that_cannot_ask_waits_until_it_can(caplog: pytest.LogCaptureFixture) -> None:
    blind_standby(caplog)


@virtual
async def test_a_server_lets_a_broker_live_again_that_the_store_had_refused() -> None:
    land = Land()
    land.store.break_down(refuse)
    server = land.server("host1")
    await server.start("host1:0")
    with pytest.raises(StoreRefusedError):
        await server.until_over()
    server.revive()
    with pytest.raises(StoreRefusedError):
        await server.until_over()
    land.store.break_down(None)
    server.revive()
    server.revive()
    await land.until_led_by("host1")
    assert (await land.record()).epoch == 1
    await server.stop()
