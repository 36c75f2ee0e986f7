"""A request whose commit was forgotten is applied again only if it cannot have been applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bucketq.errors import UnavailableError
from bucketq.model.state import RING_LENGTH
from tests.unit.commit.worlds import Fault, World, lost_then, then_lost, virtual

Open = Callable[[World], Any]
Meanwhile = Callable[[Callable[[], Any]], Fault]
WRITERS = pytest.mark.parametrize("open_queue", [World.direct, World.embedded])


class Amid:
    """A push amid many commits of others, so that neither ring nor sessions know about it."""

    def __init__(self, open_queue: Open) -> None:
        self.world = World()
        self.open_queue = open_queue
        self.base = 0
        """The version that the push was built on."""
        self.horizon = 0
        """The horizon after the others have committed."""

    async def push(self, meanwhile: Meanwhile) -> str:
        async with self.open_queue(self.world) as queue:
            await queue.configure(max_sessions=2)
            self.base = (await self.world.state()).version
            self.world.store.plan("replace", meanwhile(self._others))
            job_id: str = await queue.push("mail", 1)
            return job_id

    async def ids(self) -> list[str]:
        return [job.id for job in (await self.world.state()).jobs if job.kind == "mail"]

    async def _others(self) -> None:
        """Commit more often than the ring is long, in two sessions: only ours is forgotten."""
        await self.world.rival_pushes(RING_LENGTH)
        await self.world.rival_pushes(1)
        self.horizon = (await self.world.state()).sessions.horizon


@WRITERS
@virtual
async def test_a_request_that_may_have_been_applied_and_forgotten_is_unknown(
    open_queue: Open,
) -> None:
    """It landed as the version after its base; a ``since`` above the base would deny that."""
    amid = Amid(open_queue)
    with pytest.raises(UnavailableError, match="unknown"):
        await amid.push(then_lost)
    assert amid.horizon == amid.base + 1
    assert len(await amid.ids()) == 1


@WRITERS
@virtual
async def test_a_request_that_cannot_have_been_applied_is_applied(open_queue: Open) -> None:
    """What was forgotten is no newer than its base; a ``since`` below that would give up."""
    amid = Amid(open_queue)
    pushed = await amid.push(lost_then)
    assert amid.horizon == amid.base
    assert await amid.ids() == [pushed]
