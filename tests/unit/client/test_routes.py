"""A conversation with a broker as a way for requests: who is answered, who is told, who is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bucketq.client.routes import BrokerRoute, RouteLostError
from bucketq.commit.request_ids import token_of
from bucketq.errors import (
    InvalidRequestError,
    OverloadedError,
    QueueFullError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.job import JobRecord
from bucketq.model.operations import Claim, Push, ReadStats, Request, Withdraw
from bucketq.rpc.messages import Answer, Answers, Call, FlushArchive, Welcome
from bucketq.rpc.refusals import refusal_of
from bucketq.rpc.transport import ConnectionLostError
from tests.unit.commit.worlds import settle, start, virtual

READ = Request(ReadStats())
PUSH = Request(Push(jobs=()), "session", 1)
JOBS = ("a job", "another")
"""Nobody looks into them here."""


def claim(secret: str = "s", wait_s: float = 60.0) -> Request:
    return Request(Claim(worker="w", secret=secret * 32, wait_s=wait_s), "session", 2)


class FakeWire:
    """A wire whose other end is the test."""

    def __init__(self, version: int = 7) -> None:
        self.welcome = Welcome(incarnation="i", broker="ada", epoch=1, version=version)
        self.messages: list[list[Call]] = []
        self.is_closed = False
        self.is_stuck = asyncio.Event()
        self.is_stuck.set()
        self._answers: asyncio.Queue[Answers | ConnectionLostError] = asyncio.Queue()

    @property
    def calls(self) -> list[Call]:
        return [call for message in self.messages for call in message]

    async def send(self, calls: Sequence[Call]) -> None:
        self.messages.append(list(calls))
        await self.is_stuck.wait()

    async def receive(self) -> Answers:
        answers = await self._answers.get()
        if isinstance(answers, ConnectionLostError):
            raise answers
        return answers

    async def close(self) -> None:
        self.is_closed = True

    def answer(self, *answers: Answer, version: int = 0) -> None:
        self._answers.put_nowait(Answers(list(answers), version))

    def lose(self) -> None:
        self._answers.put_nowait(ConnectionLostError("reset"))


class Way:
    """A route over a fake wire."""

    def __init__(self) -> None:
        self.wire = FakeWire()
        self.strays: list[Any] = []
        self.route = BrokerRoute(self.wire, "host1:4001", self._stray)

    def _stray(self, records: Sequence[JobRecord]) -> None:
        self.strays.append(records)

    def submit(self, request: Request, ttl_s: float = 60.0) -> asyncio.Task[Any]:
        return start(self.route.submit(request, ttl_s))


@virtual
async def test_each_caller_gets_the_answer_to_his_own_call_in_any_order() -> None:
    way = Way()
    calls = [way.submit(READ) for _ in range(3)]
    await settle()
    assert [call.tag for call in way.wire.calls] == [1, 2, 3]
    way.wire.answer(Answer(3, "c"), Answer(1, "a"))
    way.wire.answer(Answer(2, "b"))
    assert await asyncio.gather(*calls) == ["a", "b", "c"]
    await way.route.close()


@virtual
async def test_what_is_asked_while_a_message_is_on_its_way_goes_together_in_the_next() -> None:
    way = Way()
    way.wire.is_stuck.clear()
    calls = [way.submit(READ)]
    await settle()
    calls += [way.submit(READ) for _ in range(2500)]
    await settle()
    way.wire.is_stuck.set()
    await settle()
    assert [len(message) for message in way.wire.messages] == [1, 1000, 1000, 500]
    way.wire.answer(*(Answer(tag, tag) for tag in range(1, 2502)))
    assert await asyncio.gather(*calls) == list(range(1, 2502))
    await way.route.close()


@virtual
async def test_a_refusal_arrives_as_the_error_that_it_was() -> None:
    way = Way()
    errors = [
        QueueFullError("full"),
        OverloadedError("busy", retry_after_s=0.5),
        SupersededError("go there", leader="host2:1"),
    ]
    calls = [way.submit(PUSH) for _ in errors]
    await settle()
    way.wire.answer(*(Answer(tag, None, refusal_of(e)) for tag, e in enumerate(errors, 1)))
    for call, error in zip(calls, errors, strict=True):
        with pytest.raises(type(error), match=str(error)) as raised:
            await call
        assert vars(raised.value) == vars(error)
    await way.route.close()


@virtual
async def test_an_unknown_outcome_names_the_request_if_it_may_be_repeated() -> None:
    way = Way()
    calls = [way.submit(PUSH), way.submit(PUSH)]
    await settle()
    forgotten = refusal_of(UnavailableError("forgotten"))
    unknown = refusal_of(UnavailableError("unknown", request="as the broker would name it"))
    way.wire.answer(Answer(1, None, forgotten), Answer(2, None, unknown))
    named = []
    for call in calls:
        with pytest.raises(UnavailableError) as raised:
            await call
        named.append(raised.value.request)
    assert named == [None, token_of(PUSH, 7)]
    await way.route.close()


@virtual
async def test_when_the_link_is_lost_everybody_is_told_that_nothing_is_known() -> None:
    way = Way()
    calls = [way.submit(PUSH), way.submit(claim())]
    await settle()
    way.wire.lose()
    for call in calls:
        with pytest.raises(RouteLostError, match="reset"):
            await call
    assert not way.route.is_up
    with pytest.raises(RouteLostError):
        await way.route.submit(READ, 1.0)
    await way.route.close()
    assert way.wire.is_closed


@virtual
async def test_a_call_whose_time_is_over_ends_and_its_late_answer_harms_nobody() -> None:
    way = Way()
    short, long = way.submit(READ, 1.0), way.submit(READ, 60.0)
    await settle()
    now = asyncio.get_running_loop().time()
    way.route.expire(now)
    assert not short.done()
    way.route.expire(now + 1)
    with pytest.raises(TimeoutError):
        await short
    way.wire.answer(Answer(1, "late"), Answer(2, "in time"))
    assert await long == "in time"
    assert way.strays == []
    await way.route.close()


@virtual
async def test_the_newest_version_that_was_heard_of_is_remembered() -> None:
    way = Way()
    assert way.route.version == 7
    for version in (9, 8):
        way.wire.answer(version=version)
        await settle()
        assert way.route.version == 9
    await way.route.close()


@virtual
async def test_a_withdrawn_claim_is_answered_at_once_and_what_it_gets_is_a_stray() -> None:
    way = Way()
    withdrawn, other = way.submit(claim("a")), way.submit(claim("b"))
    await settle()
    # As it is sent again after a way was lost: a copy, with less time to wait.
    copy = claim("a", wait_s=5.0).operation
    assert isinstance(copy, Claim)
    way.route.withdraw(copy)
    assert await withdrawn == ()
    await settle()
    sent = way.wire.calls[-1].request
    assert sent == Request(Withdraw(session="session", number=2, secret="a" * 32))
    # As by a broker that does not know the withdrawal, and lets the claim wait on.
    unknown = refusal_of(InvalidRequestError("the request names no operation"))
    way.wire.answer(Answer(3, None, unknown))
    way.wire.answer(Answer(1, JOBS), Answer(1, JOBS), Answer(2, JOBS))
    assert await other == JOBS
    await settle()
    assert way.strays == [JOBS], "once, though its answer came twice"
    await way.route.close()


@virtual
async def test_a_withdrawn_claim_that_gets_nothing_leaves_nothing() -> None:
    way = Way()
    withdrawn = way.submit(claim())
    await settle()
    operation = claim().operation
    assert isinstance(operation, Claim)
    way.route.withdraw(operation)
    way.route.withdraw(operation)
    await withdrawn
    way.wire.answer(Answer(1, ()))
    await settle()
    assert (way.strays, way.route.waits) == ([], False)
    await way.route.close()


@virtual
async def test_a_withdrawal_is_sent_before_the_conversation_ends() -> None:
    way = Way()
    withdrawn = way.submit(claim())
    await settle()
    way.wire.is_stuck.clear()
    way.submit(READ).add_done_callback(lambda task: task.exception())
    await settle()
    operation = claim().operation
    assert isinstance(operation, Claim)
    way.route.withdraw(operation)
    closing = start(way.route.close())
    await settle()
    way.wire.is_stuck.set()
    await closing
    await withdrawn
    assert isinstance(way.wire.calls[-1].request, Request)
    assert isinstance(way.wire.calls[-1].request.operation, Withdraw)


@virtual
async def test_a_broker_that_takes_no_messages_does_not_hold_up_the_end() -> None:
    way = Way()
    withdrawn = way.submit(claim())
    await settle()
    way.wire.is_stuck.clear()
    operation = claim().operation
    assert isinstance(operation, Claim)
    way.route.withdraw(operation)
    began_s = asyncio.get_running_loop().time()
    await way.route.close()
    assert asyncio.get_running_loop().time() - began_s < 1
    assert way.wire.is_closed
    await withdrawn


@virtual
async def test_the_jobs_of_a_claim_whose_caller_was_cancelled_are_strays() -> None:
    way = Way()
    cancelled, push = way.submit(claim()), way.submit(PUSH)
    await settle()
    cancelled.cancel()
    push.cancel()
    await settle()
    way.wire.answer(Answer(1, JOBS), Answer(2, ("id",)))
    await settle()
    assert way.strays == [JOBS]
    await way.route.close()


@virtual
async def test_a_claim_that_waits_is_no_reason_to_suspect_the_broker() -> None:
    way = Way()
    loop = asyncio.get_running_loop()
    calls = [way.submit(claim())]
    await asyncio.sleep(5)
    assert way.route.waits
    assert way.route.waits_since() is None
    asked_at = loop.time()
    calls += [way.submit(claim(wait_s=0.0)), way.submit(READ)]
    await asyncio.sleep(5)
    assert way.route.waits_since() == asked_at
    await way.route.close()
    await asyncio.gather(*calls, return_exceptions=True)


@virtual
async def test_the_archive_is_flushed_by_the_broker() -> None:
    way = Way()
    flushing = start(way.route.flush_archive())
    await settle()
    (call,) = way.wire.calls
    assert isinstance(call.request, FlushArchive)
    way.wire.answer(Answer(1, 42))
    assert await flushing == 42
    await way.route.close()


@virtual
async def test_closing_tells_everybody_and_leaves_no_task() -> None:
    way = Way()
    call = way.submit(READ)
    await settle()
    await way.route.close()
    await way.route.close()
    with pytest.raises(RouteLostError, match="closed"):
        await call
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("task", ["send", "receive"])
def test_a_task_that_dies_of_a_fault_of_ours_loses_the_route_and_says_why(
    task: str, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual
    async def story() -> None:
        wire = FakeWire()

        async def fail(*_: object) -> Any:
            raise RuntimeError("a fault of ours")

        setattr(wire, task, fail)
        route = BrokerRoute(wire, "host:1", lambda _: None)
        with pytest.raises(RouteLostError, match="a fault of ours"):
            await asyncio.wait_for(route.submit(READ, 60.0), 1.0)
        assert not route.is_up
        await route.close()

    story()
    [told] = [record for record in caplog.records if record.name == "bucketq.client"]
    assert told.exc_info is not None
