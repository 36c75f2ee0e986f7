"""A connection to a broker: which call gets which answer, and what happens when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Raw

from bucketq.client.client_connection import ClientConnection, NotOfferedError
from bucketq.commit.base import CommitterLostError
from bucketq.commit.request_ids import token_of
from bucketq.errors import (
    OverloadedError,
    QueueFullError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.base import NewJob
from bucketq.model.operations import (
    Claim,
    CompleteMany,
    Completion,
    Push,
    ReadStats,
    Release,
    Request,
    Withdraw,
)
from bucketq.model.records import JobRecord
from bucketq.model.requests.plain_jobs import PlainCompletions, PlainJobs
from bucketq.rpc.messages import ADDED, Answer, Answers, Call, FlushArchive, Welcome
from bucketq.rpc.refusals import refusal_of
from bucketq.rpc.transport import ConnectionLostError
from tests.unit.commit.worlds import settle, start, virtual

READ = Request(ReadStats())
PUSH = Request(Push(jobs=()), "session", 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOBS = tuple(
    JobRecord(
        id=name,
        seq=1,
        kind="mail",
        status="running",
        pushed_at=NOW,
        payload=Raw(b"1"),
        lease=f"lease-{name}",
    )
    for name in ("a", "b")
)
RELEASED = [Release(job=job.id, lease=job.lease or "") for job in JOBS]


def claim(secret: str = "s", wait_s: float = 60.0) -> Request:
    return Request(Claim(worker="w", secret=secret * 32, wait_s=wait_s), "session", 2)


class FakeWire:
    """A wire whose other end is the test."""

    def __init__(self, operations: tuple[str, ...]) -> None:
        self.welcome = Welcome(
            incarnation="i", broker="ada", epoch=1, version=7, operations=operations
        )
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
    """A connection over a fake wire."""

    def __init__(self, operations: tuple[str, ...] = ADDED) -> None:
        self.wire = FakeWire(operations)
        self.connection = ClientConnection(self.wire, "host1:4001", "test://queue")

    @property
    def sent(self) -> list[Any]:
        """The operations that were sent."""
        return [call.request.operation for call in self.wire.calls if call.tag]  # type: ignore[union-attr]

    def submit(self, request: Request, timeout_s: float = 60.0) -> asyncio.Task[Any]:
        return start(self.connection.submit(request, timeout_s))


@virtual
async def test_each_caller_gets_the_answer_to_his_own_call_in_any_order() -> None:
    way = Way()
    calls = [way.submit(READ) for _ in range(3)]
    await settle()
    assert [call.tag for call in way.wire.calls] == [1, 2, 3]
    way.wire.answer(Answer(3, "c"), Answer(1, "a"))
    way.wire.answer(Answer(2, "b"))
    assert await asyncio.gather(*calls) == ["a", "b", "c"]
    await way.connection.close()


@virtual
async def test_requests_made_while_a_message_is_sent_go_together_in_the_next() -> None:
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
    await way.connection.close()


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
    await way.connection.close()


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
    await way.connection.close()


@virtual
async def test_when_the_connection_is_lost_all_outcomes_are_unknown() -> None:
    way = Way()
    calls = [way.submit(PUSH), way.submit(claim())]
    await settle()
    way.wire.lose()
    for call in calls:
        with pytest.raises(CommitterLostError, match="reset"):
            await call
    assert not way.connection.is_open
    with pytest.raises(CommitterLostError):
        await way.connection.submit(READ, 1.0)
    await way.connection.close()
    assert way.wire.is_closed


@virtual
async def test_a_call_times_out_and_its_late_answer_is_ignored() -> None:
    way = Way()
    short, long = way.submit(READ, 1.0), way.submit(READ, 60.0)
    await settle()
    now = asyncio.get_running_loop().time()
    way.connection.expire(now)
    assert not short.done()
    way.connection.expire(now + 1)
    with pytest.raises(UnavailableError, match="in 1 s"):
        await short
    way.wire.answer(Answer(1, "late"), Answer(2, "in time"))
    assert await long == "in time"
    await way.connection.close()


@virtual
async def test_the_newest_version_that_was_heard_of_is_remembered() -> None:
    way = Way()
    assert way.connection.version == 7
    for version in (9, 8):
        way.wire.answer(version=version)
        await settle()
        assert way.connection.version == 9
    await way.connection.close()


@virtual
async def test_closing_withdraws_claims_that_have_no_answer() -> None:
    way = Way()
    claiming = way.submit(claim("a"))
    await settle()
    way.wire.is_stuck.clear()
    reading = way.submit(READ)
    await settle()
    closing = start(way.connection.close())
    await settle()
    way.wire.is_stuck.set()
    await closing
    assert way.sent[-1] == Withdraw(session="session", number=2, secret="a" * 32)
    for call in (claiming, reading):
        with pytest.raises(CommitterLostError):
            await call


@virtual
async def test_a_broker_that_takes_no_messages_does_not_hold_up_the_end() -> None:
    way = Way()
    claiming = way.submit(claim())
    await settle()
    way.wire.is_stuck.clear()
    began_s = asyncio.get_running_loop().time()
    await way.connection.close()
    assert asyncio.get_running_loop().time() - began_s < 1
    assert way.wire.is_closed
    with pytest.raises(CommitterLostError):
        await claiming


@pytest.mark.parametrize("operations", [(), ADDED])
@virtual
async def test_jobs_of_a_cancelled_claim_are_released_if_the_broker_cannot_withdraw(
    operations: tuple[str, ...],
) -> None:
    way = Way(operations)
    cancelled, push = way.submit(claim()), way.submit(PUSH)
    await settle()
    cancelled.cancel()
    push.cancel()
    await settle()
    way.wire.answer(Answer(1, JOBS), Answer(1, JOBS), Answer(2, ("id",)))
    await settle()
    assert way.sent[2:] == ([] if operations else RELEASED), "once, though its answer came twice"
    await way.connection.close()


@virtual
async def test_a_waiting_claim_does_not_make_the_broker_suspect() -> None:
    way = Way()
    loop = asyncio.get_running_loop()
    calls = [way.submit(claim())]
    await asyncio.sleep(5)
    assert way.connection.waits
    assert way.connection.waits_since() is None
    asked_at = loop.time()
    calls += [way.submit(claim(wait_s=0.0)), way.submit(READ)]
    await asyncio.sleep(5)
    assert way.connection.waits_since() == asked_at
    await way.connection.close()
    await asyncio.gather(*calls, return_exceptions=True)


@virtual
async def test_the_archive_is_flushed_by_the_broker() -> None:
    way = Way()
    flushing = start(way.connection.flush_archive())
    await settle()
    (call,) = way.wire.calls
    assert isinstance(call.request, FlushArchive)
    way.wire.answer(Answer(1, 42))
    assert await flushing == 42
    await way.connection.close()


@virtual
async def test_closing_fails_pending_calls_and_leaves_no_task() -> None:
    way = Way()
    call = way.submit(READ)
    await settle()
    await way.connection.close()
    await way.connection.close()
    with pytest.raises(CommitterLostError, match="closed"):
        await call
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("task", ["send", "receive"])
def test_a_task_that_dies_of_a_fault_of_ours_loses_the_route_and_says_why(
    task: str, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual
    async def story() -> None:
        wire = FakeWire(())

        async def fail(*_: object) -> Any:
            raise RuntimeError("a fault of ours")

        setattr(wire, task, fail)
        connection = ClientConnection(wire, "host:1", "test://queue")
        with pytest.raises(CommitterLostError, match="a fault of ours"):
            await asyncio.wait_for(connection.submit(READ, 60.0), 1.0)
        assert not connection.is_open
        await connection.close()

    story()
    [logged] = [record for record in caplog.records if record.name == "bucketq.client"]
    assert logged.exc_info is not None


@virtual
@pytest.mark.parametrize("operations", [ADDED, ()])
async def test_a_broker_gets_columns_only_if_it_reads_them(operations: tuple[str, ...]) -> None:
    way = Way(operations)
    job = NewJob(id="a", kind="mail", payload=Raw(b"1"))
    done = Completion(job="a", lease="l")
    calls = [
        way.submit(Request(Push(jobs=PlainJobs([job])), "session", 1)),
        way.submit(Request(CompleteMany(jobs=PlainCompletions([done])), "session", 2)),
    ]
    await settle()
    assert [each.jobs for each in way.sent] == [(job,), (done,)]
    types = (PlainJobs, PlainCompletions) if operations else (tuple, tuple)
    assert tuple(type(each.jobs) for each in way.sent) == types
    way.wire.answer(Answer(1, ("a",)), Answer(2, (True,)))
    await asyncio.gather(*calls)
    await way.connection.close()


@virtual
@pytest.mark.parametrize("knows", [True, False])
async def test_a_broker_gets_joined_batches_only_if_it_knows_them(knows: bool) -> None:
    way = Way(tuple(name for name in ADDED if knows or name != "joined_batches"))
    jobs = tuple(NewJob(id=name, kind="mail", payload=Raw(b"1")) for name in "abc")
    joined = Request(Push(jobs=jobs), "session", 1, numbers=(1, 2), counts=(1, 2))
    call = way.submit(joined)
    await settle()
    if knows:
        assert [each.jobs for each in way.sent] == [jobs]
        way.wire.answer(Answer(1, ("a", "b", "c")))
        assert await call == ("a", "b", "c")
    else:
        with pytest.raises(NotOfferedError, match="joined: upgrade it"):
            await call
        assert not way.sent
    await way.connection.close()
