"""A request whose first write may have landed is not rejected by what a broker checks later."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from bucketq.model.base import NewJob
from bucketq.model.operations import Push, ReadStats, Request
from bucketq.model.state import RING_LENGTH
from bucketq.rpc.messages import Answer, Call, Hello
from tests.unit.broker.land import Land
from tests.unit.commit.worlds import Fault, lost_then, then_lost, virtual

PUSH = Push(jobs=(NewJob(id="1", kind="mail", payload=Raw(b"1")),))


async def answers_of(land: Land, *requests: Request) -> dict[int, Answer]:
    """Send requests together, without a token, and wait for all their answers."""
    wire = await land.network.host("client").open("host1:4001", Hello(), 5.0)
    try:
        await wire.send([Call(tag, request, 30.0) for tag, request in enumerate(requests)])
        found: dict[int, Answer] = {}
        while len(found) < len(requests):
            found.update({answer.tag: answer for answer in (await wire.receive()).answers})
        return found
    finally:
        await wire.close()


@pytest.mark.parametrize("fault", [then_lost, lost_then], ids=["landed", "lost"])
@virtual
async def test_a_write_in_doubt_stays_unknown_if_its_client_is_no_longer_allowed(
    fault: Any,
) -> None:
    land = Land()

    async def others_write() -> None:
        """Others commit more often than the object remembers, and ask for tokens from now on."""
        await land.rival_pushes(RING_LENGTH + 6)
        async with land.rival() as rival:
            await rival.create_token("admin", ["admin"])

    async with land.serving("host1"):
        await land.until_led_by("host1")
        await land.rival_pushes(RING_LENGTH)
        await answers_of(land, Request(ReadStats()))  # Its next write is of what is there.
        strikes: Fault = fault(others_write)
        land.store.plan("replace", strikes)
        push, stats = Request(PUSH, "s" * 26, 1), Request(ReadStats())
        found = await answers_of(land, push, stats)
    refusal = found[0].refusal
    assert refusal is not None
    assert (refusal.kind, refusal.is_repeatable) == ("UnavailableError", True)
    assert "asks for a token" in refusal.message
    read = found[1].refusal
    assert read is not None
    assert read.kind == "AccessDeniedError", "a read is as good as never asked"


@virtual
async def test_a_write_that_was_lost_to_another_is_rejected_if_its_client_is_not_allowed() -> None:
    land = Land()

    async def others_write() -> None:
        async with land.rival() as rival:
            await rival.create_token("admin", ["admin"])

    async with land.serving("host1"):
        await land.until_led_by("host1")
        land.store.plan("replace", lost_then(others_write))
        found = await answers_of(land, Request(PUSH, "s" * 26, 1))
    refusal = found[0].refusal
    assert refusal is not None
    assert refusal.kind == "AccessDeniedError"
