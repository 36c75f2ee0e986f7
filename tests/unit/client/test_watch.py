"""The task that watches a client's broker: it outlives every fault, and no call hangs."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bucketq.broker.takeover import Sign
from bucketq.client.client_connection import ClientConnection
from bucketq.client.discovery import ObjectFinder
from bucketq.errors import AccessDeniedError, UnavailableError
from bucketq.rpc.transport import CannotDialError
from tests.unit.broker.land import now_s
from tests.unit.client.clients import Realm, client_over, committer_of, remote_of
from tests.unit.commit.worlds import say_nothing, slowly, virtual


class Faulty:
    """A finder whose look at a broker goes wrong a few times."""

    def __init__(self, inner: ObjectFinder, *errors: Exception) -> None:
        self._inner = inner
        self.errors = list(errors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def sign_of(self, route: ClientConnection) -> Sign:
        if self.errors:
            raise self.errors.pop(0)
        return await self._inner.sign_of(route)


@pytest.mark.parametrize(
    "error", [CannotDialError("ca.pem is missing"), OSError("too many files"), RuntimeError("bug")]
)
def test_calls_still_time_out_after_a_look_at_the_broker_went_wrong(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual
    async def story() -> None:
        realm = Realm()
        async with realm.serving("host1"):
            await realm.until_led_by("host1")
            finder = Faulty(realm.finder(), error, error, error)
            async with client_over(cast("Any", finder), realm.clock, timeout_s=8) as queue:
                realm.store.break_down(say_nothing)
                began = now_s()
                with pytest.raises(UnavailableError, match="8 s"):
                    await queue.push("mail", 1)
                assert now_s() - began < 9
                assert not finder.errors
                realm.store.break_down(None)
                await asyncio.sleep(20)
                assert await queue.push("mail", 2)

    story()
    logged = [record for record in caplog.records if record.name == "bucketq.client"]
    assert len(logged) == 1, "once for as long as it lasts"
    assert str(error) in (logged[0].getMessage() + str(logged[0].exc_info))


@virtual
async def test_a_broker_that_cannot_be_asked_is_not_given_up() -> None:
    realm = Realm()
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        finder = Faulty(realm.finder(), *[CannotDialError("ca.pem is missing")] * 20)
        async with client_over(cast("Any", finder), realm.clock) as queue:
            route = committer_of(queue)
            realm.store.break_down(slowly(8.0))
            await queue.push("mail", 1)
            assert len(finder.errors) < 18
            assert committer_of(queue) is route, "nothing is known against it"


@virtual
async def test_an_error_without_a_waiting_call_does_not_affect_a_later_one() -> None:
    realm = Realm()
    async with realm.serving("host1"):
        await realm.until_led_by("host1")
        async with realm.client(timeout_s=3.0) as queue:
            finder, route = cast("Any", remote_of(queue)._finder), committer_of(queue)
            assert route is not None

            async def refused() -> Any:
                await asyncio.sleep(4.0)
                raise AccessDeniedError("the token was revoked")

            found, finder.find = finder.find, refused
            cast("ClientConnection", route).lose("reset")
            with pytest.raises(UnavailableError):
                await queue.push("mail", 1)
            await asyncio.sleep(60)
            finder.find = found
            assert await queue.push("mail", 2)
