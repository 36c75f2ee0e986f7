"""Who is counted at a listener, who has to make room, and what is kept of unfinished requests."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.errors import OverloadedError, UnavailableError
from bucketq.rpc import admission
from bucketq.rpc.admission import Admission, Guest

PEER = "ipv4:127.0.0.1:5000"


def peer(number: int) -> str:
    return f"ipv4:127.0.0.{number // 16}:5000"


async def strangers(one: Admission, count: int) -> list[Guest]:
    guests = [Guest() for _ in range(count)]
    for number, guest in enumerate(guests):
        one.enter(guest, peer(number), is_known=False)
    return guests


async def test_strangers_do_not_count_against_the_clients_of_their_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_GUESTS_OF_A_HOST", 2)
    one, known = Admission(), [Guest(), Guest(), Guest()]
    for _ in range(5):
        one.enter(Guest(), PEER, is_known=False)
    one.enter(known[0], PEER, is_known=True)
    one.enter(known[1], PEER, is_known=True)
    with pytest.raises(OverloadedError, match="too many conversations"):
        one.enter(known[2], PEER, is_known=True)
    one.leave(known[0])
    one.enter(known[2], PEER, is_known=True)


async def test_a_connection_has_few_strangers() -> None:
    one, guest = Admission(), Guest()
    one.enter(guest, PEER, is_known=False)
    for _ in range(admission.MAX_STRANGERS_OF_A_CONNECTION - 1):
        one.enter(Guest(), PEER, is_known=False)
    with pytest.raises(OverloadedError, match="this connection"):
        one.enter(Guest(), PEER, is_known=False)
    one.admit(guest)
    one.enter(Guest(), PEER, is_known=False)


async def test_a_newcomer_replaces_the_oldest_stranger_but_none_that_came_a_moment_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Admission()
    guests = await strangers(one, admission.MAX_STRANGERS)
    newcomer = "ipv4:127.0.0.99:5000"
    with pytest.raises(OverloadedError, match="at this broker already"):
        one.enter(Guest(), newcomer, is_known=False)
    monkeypatch.setattr(admission, "_PATIENCE_S", 0.0)
    one.enter(Guest(), newcomer, is_known=False)
    assert [guest.stopped.done() for guest in guests[:2]] == [True, False]
    with pytest.raises(OverloadedError):
        await guests[0].within(5.0, asyncio.sleep(5.0))
    one.enter(Guest(), newcomer, is_known=False)
    assert guests[1].stopped.done()


async def test_an_admitted_client_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_PATIENCE_S", 0.0)
    one = Admission()
    guests = await strangers(one, admission.MAX_STRANGERS)
    for guest in guests:
        one.admit(guest)
    later = await strangers(one, admission.MAX_STRANGERS)
    one.enter(Guest(), "ipv4:127.0.0.99:5000", is_known=False)
    assert not any(guest.stopped.done() for guest in guests)
    assert later[0].stopped.done()


async def test_closing_stops_strangers_at_once_and_lets_clients_finish() -> None:
    one, known, stranger = Admission(), Guest(), Guest()
    one.enter(known, PEER, is_known=True)
    one.enter(stranger, PEER, is_known=False)
    closing = asyncio.ensure_future(one.close(60.0))
    await asyncio.sleep(0)
    assert (known.stopped.done(), stranger.stopped.done()) == (False, True)
    with pytest.raises(UnavailableError, match="stopping"):
        one.enter(Guest(), PEER, is_known=True)
    one.leave(stranger)
    one.leave(known)
    await closing


async def test_parts_of_unfinished_requests_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_PARTS_BYTES", 100)
    one = Admission()
    one.keep_part(60)
    with pytest.raises(OverloadedError, match="unfinished"):
        one.keep_part(50)
    one.drop_parts(60)
    one.keep_part(100)
