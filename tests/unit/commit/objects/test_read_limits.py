"""How long a read of the object may take: longer after one that timed out, but with an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bucketq.admin import QueueObject
from bucketq.commit.objects.heading_reader import HeadingReader
from bucketq.errors import UnavailableError
from tests.unit.commit.worlds import (
    KEY,
    Fault,
    World,
    lose_request,
    say_nothing,
    slowly,
    virtual,
)

Read = Callable[[], Awaitable[Any]]


async def make_readers() -> tuple[World, dict[str, Read]]:
    """Return readers of a queue that have read it once."""
    world = World()
    register = world.register()
    await register.open(create=True)
    heading = HeadingReader(world.store, KEY, "q")
    await heading.read()
    return world, {"heading": heading.read, "whole object": register.load}


@virtual
async def test_an_administrator_reads_an_object_that_takes_long() -> None:
    world, _ = await make_readers()
    world.store.stand("get", slowly(20))
    url = "test://queue"
    assert (await QueueObject(world.store, KEY, url, world.clock).read()).body.endswith(b"}\n")


def break_reads(world: World, fault: Fault | None) -> None:
    for verb in ("get", "get_if_changed"):
        world.store.stand(verb, fault)


async def time_of(read: Read) -> float:
    """Return how long a read takes that fails."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(UnavailableError):
        await read()
    return loop.time() - began_s


@pytest.mark.parametrize("name", ["heading", "whole object"])
@virtual
async def test_a_storage_that_refuses_reads_for_long_does_not_change_the_limit(name: str) -> None:
    world, readers = await make_readers()
    break_reads(world, lose_request)
    for _ in range(1100):
        await time_of(readers[name])
    break_reads(world, say_nothing)
    assert await time_of(readers[name]) == pytest.approx(10, abs=0.1)
    break_reads(world, None)
    await readers[name]()


@pytest.mark.parametrize(("name", "most_s"), [("heading", 27), ("whole object", 530)])
@virtual
async def test_a_read_that_hangs_ends_however_long_others_hung(name: str, most_s: float) -> None:
    world, readers = await make_readers()
    break_reads(world, say_nothing)
    took = [await time_of(readers[name]) for _ in range(40)]
    assert took[0] == pytest.approx(10, abs=0.1)
    assert took[0] < took[1] <= max(took) <= most_s
    break_reads(world, None)
    await readers[name]()
    break_reads(world, say_nothing)
    assert await time_of(readers[name]) == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize("name", ["heading", "whole object"])
@virtual
async def test_an_object_that_takes_longer_than_expected_is_read_at_the_next_try(name: str) -> None:
    world, readers = await make_readers()
    break_reads(world, slowly(20))
    await time_of(readers[name])
    await readers[name]()
