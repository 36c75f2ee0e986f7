"""The clients of a broker: what they may ask for, and what they hear when it stops leading."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.broker.broker import Broker
from bucketq.broker.leader import Leader
from bucketq.errors import OverloadedError, SupersededError
from bucketq.model.operations import Claim, Lead, Push, ReadStats, Request, Retire
from bucketq.model.segments import Merge
from bucketq.rpc.messages import Answer, Answers, Call, Hello
from tests.unit.broker.land import Land, now_s
from tests.unit.commit.worlds import (
    settle,
    slowly,
    virtual,
)


class Line:
    """A connection with a broker, without a network."""

    def __init__(self, broker: Broker, expected: str = "") -> None:
        self.answers: list[Answer] = []
        self.messages = 0
        self.connection = broker.accept_connection(Hello(broker=expected), self._take)

    def _take(self, answers: Answers) -> None:
        self.messages += 1
        self.answers += answers.answers

    def call(self, *requests: Request, ttl_s: float = 60.0) -> None:
        self.connection.receive(
            [Call(tag, request, ttl_s) for tag, request in enumerate(requests, 1)]
        )


@virtual
async def test_a_connection_to_another_broker_is_rejected() -> None:
    land = Land()
    async with land.serving("host1") as broker:
        with pytest.raises(SupersededError):
            Line(broker)
        await land.until_led_by("host1")
        with pytest.raises(SupersededError, match="not another"):
            Line(broker, "another")
        welcome = Line(broker, (await land.record()).id).connection.welcome
        assert (welcome.epoch, welcome.incarnation) == (1, broker.incarnation)
        async with land.serving("host2") as second:
            await asyncio.sleep(1)
            with pytest.raises(SupersededError) as no:
                Line(second)
            assert no.value.leader == "host1:4001"


@virtual
async def test_what_is_a_brokers_own_is_not_for_clients_to_ask_for() -> None:
    land = Land()
    async with land.serving("host1") as broker:
        await land.until_led_by("host1")
        line, before = Line(broker), await land.body()
        record = await land.record()
        line.call(
            Request(Lead(id="me", address="me:1", host="me", after=1)),
            Request(Retire(id=record.id, epoch=1)),
            Request(Merge(sources=(), targets=(), origins=())),
            Request(Claim(worker="w", secret="s" * 32, wait_s=1e9)),
            Request(Claim(worker="w", secret="s" * 32, wait_s=-1.0)),
        )
        await settle()
        refusals = [answer.refusal for answer in line.answers]
        assert [refusal and refusal.kind for refusal in refusals] == ["InvalidRequestError"] * 5
        assert await land.body() == before


@virtual
async def test_what_comes_in_one_message_is_committed_and_answered_together() -> None:
    land = Land()
    async with land.serving("host1") as broker:
        await land.until_led_by("host1")
        line, writes = Line(broker), land.store.count("replace")
        line.call(
            *(Request(Push(jobs=()), f"session-{n}", 1) for n in range(2)), Request(ReadStats())
        )
        await settle()
        assert {answer.tag for answer in line.answers} == {1, 2, 3}
        assert land.store.count("replace") - writes <= 1
        assert line.messages <= 2


@virtual
async def test_a_client_whose_claims_wait_hears_of_its_broker() -> None:
    land = Land()
    async with land.serving("host1") as broker:
        await land.until_led_by("host1")
        waits, idle = Line(broker), Line(broker)
        waits.call(Request(Claim(worker="w", secret="s" * 32, wait_s=60.0)))
        await asyncio.sleep(31)
        assert (waits.messages, waits.answers) == (10, [])
        assert idle.messages == 0
        await asyncio.sleep(30)
        assert [answer.value for answer in waits.answers] == [()]


@virtual
async def test_claims_of_a_client_that_is_gone_get_nothing() -> None:
    land = Land()
    async with land.serving("host1") as broker:
        await land.until_led_by("host1")
        line = Line(broker)
        line.call(Request(Claim(worker="w", secret="s" * 32, wait_s=60.0)))
        await settle()
        assert broker.leader is not None
        assert broker.leader.parked == 1
        assert broker.idle_since is None
        line.connection.close()
        line.connection.close()
        assert broker.leader.parked == 0
        assert broker.idle_since == now_s()
        await land.rival_pushes()
        await asyncio.sleep(2)
        assert next(iter((await land.state()).jobs)).attempt == 0


@virtual
async def test_what_has_come_is_settled_before_a_broker_retires() -> None:
    land = Land()
    async with land.serving("host1") as broker:
        await land.until_led_by("host1")
        line = Line(broker)
        land.store.plan("replace", slowly(1))
        line.call(Request(ReadStats()), Request(Claim(worker="w", secret="s" * 32, wait_s=60.0)))
        await broker.retire()
        assert [answer.tag for answer in line.answers if answer.refusal is None] == [1]
        (claim,) = [answer.refusal for answer in line.answers if answer.tag == 2]
        assert claim is not None
        assert claim.kind == "SupersededError"
        line.call(Request(ReadStats()))
        await settle()
        assert line.answers[-1].refusal is not None
        with pytest.raises(SupersededError):
            Line(broker)


@virtual
async def test_a_deposed_broker_sends_all_clients_to_its_successor() -> None:
    land = Land()
    async with land.serving("host1") as first:
        await land.until_led_by("host1")
        line = Line(first)
        line.call(Request(Claim(worker="w", secret="s" * 32, wait_s=60.0)))
        async with land.serving("host2", takeover=True):
            await land.until_led_by("host2")
            await asyncio.sleep(3)
            (answer,) = line.answers
            assert answer.refusal is not None
            assert answer.refusal.kind == "SupersededError"
            assert answer.refusal.leader == "host2:4001"


@virtual
async def test_an_overloaded_broker_rejects_pushes_with_a_hint_and_accepts_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    land = Land()
    async with land.serving("host1") as broker:
        await land.until_led_by("host1")
        line = Line(broker)
        monkeypatch.setattr(Leader, "waiting", (15_000, 0))
        line.call(Request(Push(jobs=()), "session", 1), Request(ReadStats()))
        await settle()
        refusal = next(answer.refusal for answer in line.answers if answer.tag == 1)
        assert refusal is not None
        assert (refusal.kind, refusal.retry_after_s) == (OverloadedError.__name__, 0.05)
        assert next(answer for answer in line.answers if answer.tag == 2).refusal is None


@virtual
async def test_a_queue_that_is_deleted_ends_its_broker_and_is_not_made_again() -> None:
    land = Land()
    server = land.server("host1")
    await server.start("host1:0")
    await land.until_led_by("host1")
    await land.store.delete("queue.json")
    with pytest.raises(SupersededError, match="deleted"):
        async with asyncio.timeout(10):
            await server.until_over()
    await server.stop()
