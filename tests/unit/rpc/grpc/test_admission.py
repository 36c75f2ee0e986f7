"""Who is counted at a listener, who has to make room, and what is kept of unfinished requests."""

from __future__ import annotations

import asyncio

import pytest

from bucketq.errors import OverloadedError, UnavailableError
from bucketq.rpc.grpc import admission
from bucketq.rpc.grpc.admission import ActiveCall, Admission
from tests.unit.commit.worlds import virtual

PEER = "ipv4:127.0.0.1:5000"


def peer(number: int) -> str:
    return f"ipv4:127.0.0.{number // admission.MAX_UNAUTHENTICATED_EACH}:5000"


async def strangers(one: Admission, count: int) -> list[ActiveCall]:
    active_calls = [ActiveCall() for _ in range(count)]
    for number, active in enumerate(active_calls):
        await one.enter(active, peer(number), is_known=False)
    return active_calls


async def test_strangers_do_not_count_against_the_clients_of_their_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_ACTIVE_OF_A_HOST", 2)
    one, known = Admission(), [ActiveCall(), ActiveCall(), ActiveCall()]
    for _ in range(admission.MAX_UNAUTHENTICATED_EACH):
        await one.enter(ActiveCall(), PEER, is_known=False)
    await one.enter(known[0], PEER, is_known=True)
    await one.enter(known[1], PEER, is_known=True)
    with pytest.raises(OverloadedError, match="too many connections"):
        await one.enter(known[2], PEER, is_known=True)
    one.leave(known[0])
    await one.enter(known[2], PEER, is_known=True)


async def test_a_connection_has_few_strangers() -> None:
    one, active = Admission(), ActiveCall()
    await one.enter(active, PEER, is_known=False)
    for _ in range(admission.MAX_UNAUTHENTICATED_EACH - 1):
        await one.enter(ActiveCall(), PEER, is_known=False)
    with pytest.raises(OverloadedError, match="this connection"):
        await one.enter(ActiveCall(), PEER, is_known=False)
    one.admit(active)
    await one.enter(ActiveCall(), PEER, is_known=False)


NEWCOMER = "ipv4:127.0.0.99:5000"


def entering(one: Admission, active: ActiveCall, peer: str = NEWCOMER) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(one.enter(active, peer, is_known=False))


@virtual
async def test_a_newcomer_gets_the_place_of_the_oldest_stranger_after_a_moment() -> None:
    loop = asyncio.get_running_loop()
    one, newcomer = Admission(), ActiveCall()
    active_calls = await strangers(one, admission.MAX_UNAUTHENTICATED)
    began_s = loop.time()
    waiting = entering(one, newcomer)
    with pytest.raises(OverloadedError, match="at this broker already"):
        await active_calls[0].within(5.0, asyncio.sleep(5.0))
    assert loop.time() - began_s == pytest.approx(0.5)
    assert [active.stopped.done() for active in active_calls[1:]] == [False] * 7
    assert not waiting.done(), "what the oldest has sent is still kept"
    one.leave(active_calls[0])
    await waiting
    await asyncio.sleep(60)
    assert not active_calls[1].stopped.done(), "no other client waits for its place"


@virtual
async def test_honest_clients_take_turns_and_none_is_stopped() -> None:
    one = Admission()

    async def introduce(number: int) -> ActiveCall:
        active = ActiveCall()
        await one.enter(active, f"ipv4:127.0.0.{number}:5000", is_known=False)
        await active.within(5.0, asyncio.sleep(0.1))
        one.admit(active)
        return active

    count = admission.MAX_UNAUTHENTICATED + admission.MAX_WAITING
    active_calls = await asyncio.gather(*(introduce(number) for number in range(count)))
    assert not any(active.stopped.done() for active in active_calls)


@virtual
async def test_all_waiting_clients_are_served_although_strangers_stay_as_long_as_they_can() -> None:
    one, served = Admission(), list[float]()
    loop = asyncio.get_running_loop()

    async def hoard(number: int) -> None:
        active = ActiveCall()
        await one.enter(active, f"ipv4:127.0.0.{number}:5000", is_known=False)
        served.append(loop.time())
        try:
            await active.within(admission.TOKEN_S, asyncio.sleep(60))
        except OverloadedError:
            one.leave(active)

    began_s = loop.time()
    count = admission.MAX_UNAUTHENTICATED + admission.MAX_WAITING
    hoards = [loop.create_task(hoard(number)) for number in range(count)]
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError, match="at this broker already"):
        await one.enter(ActiveCall(), NEWCOMER, is_known=False)
    await asyncio.sleep(2.1)
    assert len(served) == count
    assert served[-1] - began_s < 2.1
    for task in hoards:
        task.cancel()
    await asyncio.gather(*hoards, return_exceptions=True)


@virtual
async def test_a_client_that_hangs_up_while_it_waits_leaves_nothing_behind() -> None:
    for steps in range(6):
        one = Admission()
        active_calls = await strangers(one, admission.MAX_UNAUTHENTICATED)
        waiting = entering(one, ActiveCall())
        await asyncio.sleep(0)
        one.leave(active_calls[0])
        for _ in range(steps):
            await asyncio.sleep(0)
        if waiting.done():
            break
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        for _ in range(admission.MAX_UNAUTHENTICATED_EACH):
            active = ActiveCall()
            await one.enter(active, NEWCOMER, is_known=False)
            one.leave(active)
        for active in active_calls[1:]:
            one.leave(active)
        async with asyncio.timeout(5.0):
            await one.close(0.0)
    assert steps, "it was cancelled at several moments"


@virtual
async def test_an_admitted_client_is_never_replaced() -> None:
    one = Admission()
    active_calls = await strangers(one, admission.MAX_UNAUTHENTICATED)
    for active in active_calls:
        one.admit(active)
    later = await strangers(one, admission.MAX_UNAUTHENTICATED)
    waiting = entering(one, ActiveCall())
    await asyncio.sleep(1)
    assert not any(active.stopped.done() for active in active_calls)
    assert later[0].stopped.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_closing_stops_strangers_at_once_and_lets_clients_finish() -> None:
    one, known, stranger = Admission(), ActiveCall(), ActiveCall()
    await one.enter(known, PEER, is_known=True)
    await one.enter(stranger, PEER, is_known=False)
    others = await strangers(one, admission.MAX_UNAUTHENTICATED - 1)
    waiting = entering(one, ActiveCall())
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(one.close(60.0))
    await asyncio.sleep(0)
    assert (known.stopped.done(), stranger.stopped.done()) == (False, True)
    with pytest.raises(UnavailableError, match="stopping"):
        await one.enter(ActiveCall(), PEER, is_known=True)
    with pytest.raises(UnavailableError, match="stopping"):
        await waiting
    for active in (known, stranger, *others):
        one.leave(active)
    await closing


async def test_parts_of_unfinished_requests_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_PARTS_BYTES", 100)
    one = Admission()
    one.keep_part(60)
    with pytest.raises(OverloadedError, match="unfinished"):
        one.keep_part(50)
    one.drop_parts(60)
    one.keep_part(100)
