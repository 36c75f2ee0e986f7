"""A client whose request was sent before: a rejection of the next try decides nothing about it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bucketq.client.client_connection import ClientConnection
from bucketq.errors import (
    AccessDeniedError,
    ClosedError,
    OverloadedError,
    QueueNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.model.operations import Request
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop
from tests.unit.client.clients import FakeWay, Realm, client_over, committer_of
from tests.unit.commit.worlds import Gate, refuse, start, virtual


class Closed:
    """A finder of two ways: the first loses what it is sent, the second turns it away."""

    def __init__(self, error: Exception, *, finds: bool) -> None:
        self.error: Exception | None = error
        self.sent: list[Request] = []
        self._finds = finds

    async def find(self) -> Any:
        if self.sent and not self._finds and self.error is not None:
            raise self.error
        return TurnsAway(self)

    async def close(self) -> None:
        return


class TurnsAway(FakeWay):
    def __init__(self, ways: Closed) -> None:
        super().__init__(ways.sent, 7, loses=not ways.sent)
        self._ways = ways

    async def submit(self, request: Request, ttl_s: float) -> Any:
        answer = await super().submit(request, ttl_s)
        if self._ways.error is not None:
            raise self._ways.error
        return answer


TURNED_AWAY = [
    StoreRefusedError("403"),
    AccessDeniedError("the token was revoked"),
    OverloadedError("busy", retry_after_s=100.0),
    QueueNotFoundError("gone"),
]


@pytest.mark.parametrize("finds", [True, False], ids=["submitting", "finding"])
@pytest.mark.parametrize("error", TURNED_AWAY, ids=lambda error: type(error).__name__)
@virtual
async def test_what_was_sent_before_is_not_called_refused(error: Exception, finds: bool) -> None:
    ways = Closed(error, finds=finds)
    clock = SimulatedClock(current_loop())
    async with client_over(cast("Any", ways), clock) as queue:
        with pytest.raises(UnavailableError, match="outcome is unknown") as unknown:
            await queue.push("mail", 1)
        assert str(error) in str(unknown.value)
        request = unknown.value.request
        assert request is not None
        with pytest.raises(UnavailableError, match="outcome is unknown") as unknown:
            await queue.push("mail", 1, request=request)
        assert unknown.value.request == request
        ways.error = None
        assert await queue.push("mail", 1, request=request) == "job"
    first = ways.sent[0]
    assert {(sent.session, sent.number) for sent in ways.sent} == {(first.session, first.number)}


@pytest.mark.parametrize("error", TURNED_AWAY, ids=lambda error: type(error).__name__)
@virtual
async def test_what_was_never_sent_before_is_refused(error: Exception) -> None:
    ways = Closed(error, finds=True)
    ways.sent.append(cast("Any", None))  # The way that loses is past.
    clock = SimulatedClock(current_loop())
    async with client_over(cast("Any", ways), clock) as queue:
        with pytest.raises(type(error), match=str(error)):
            await queue.push("mail", 1)


@virtual
async def test_a_push_whose_answer_was_lost_is_not_refused_when_the_storage_refuses() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        await queue.push("mail", "before")
        realm.network.partition("client", "host1", way="in")
        pushing = start(queue.push("mail", "once"))
        await asyncio.sleep(1)
        assert len(await realm.ids()) == 2, "it landed"
        realm.store.break_down(refuse)
        realm.network.heal()
        assert isinstance(committer_of(queue), ClientConnection)
        cast("ClientConnection", committer_of(queue)).lose("reset")
        with pytest.raises(UnavailableError, match="outcome is unknown") as unknown:
            await pushing
        realm.store.break_down(None)
        job_id = await queue.push("mail", "once", request=unknown.value.request)
        assert (await realm.ids())[1:] == [job_id]


@virtual
async def test_a_push_pending_when_its_client_closes_has_an_unknown_outcome() -> None:
    realm = Realm()
    async with realm.serving("host1"):
        gate = Gate()
        async with realm.client() as queue:
            await queue.push("mail", "before")
            realm.store.plan("replace", gate)
            pushing = start(queue.push("mail", "once"))
            await gate.reached.wait()
        with pytest.raises(UnavailableError, match="outcome is unknown") as unknown:
            await pushing
        gate.open()
        async with realm.client() as queue:
            job_id = await queue.push("mail", "once", request=unknown.value.request)
        assert (await realm.ids())[1:] == [job_id]


@virtual
async def test_a_claim_pending_when_its_client_closes_is_withdrawn() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client("other") as other:
        await other.push("mail", 1)
        gate = Gate()
        realm.store.plan("replace", gate)
        async with realm.client() as queue:
            claiming = start(queue.claim(wait_s=600))
            await gate.reached.wait()
        with pytest.raises(ClosedError):
            await claiming
        gate.open()
        (job,) = await other.claim(wait_s=5)
        assert (job.attempt, job.record.lost_leases) == (2, 0)
