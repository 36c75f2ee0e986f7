"""A store that refuses: what was written before, with an unknown outcome, is not called refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.errors import OverloadedError, StoreRefusedError, UnavailableError
from bucketq.model.state import RING_LENGTH
from bucketq.queue.queue import Queue
from tests.unit.commit.worlds import Effect, World, lost_then, refuse, slowly, then_lost, virtual

KINDS = ["direct", "embedded"]


def opened(world: World, kind: str) -> Queue[Any]:
    return world.direct() if kind == "direct" else world.embedded()


async def until_refused(world: World) -> None:
    """Let more commits follow than the object remembers, allow one look, and refuse the rest."""
    await world.rival_pushes(RING_LENGTH + 6)
    world.store.plan("get_if_changed", slowly(0))
    world.store.break_down(refuse)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lands", [True, False])
@virtual
async def test_a_commit_that_was_forgotten_and_then_refused_has_an_unknown_outcome(
    kind: str, lands: bool
) -> None:
    world = World()
    async with opened(world, kind) as queue:
        await world.rival_pushes(RING_LENGTH)
        await queue.stats()  # Its next write is of what is there.
        fault = then_lost if lands else lost_then
        world.store.plan("replace", fault(lambda: until_refused(world)))
        with pytest.raises(UnavailableError, match="no space left") as unknown:
            await queue.push("mail", 1)
        request = unknown.value.request
        assert request is not None
        # Neither is a repetition that is refused, which may come from another process.
        world.store.break_down(refuse)
        with pytest.raises(UnavailableError, match="no space left") as unknown:
            await queue.push("mail", 1, request=request)
        assert unknown.value.request == request
        world.store.break_down(None)
        job_id = await queue.push("mail", 1, request=request)
        mail = [job.id for job in (await world.state()).jobs if job.kind == "mail"]
        assert mail == [job_id]


@pytest.mark.parametrize("kind", KINDS)
@virtual
async def test_a_request_that_was_lost_to_another_and_then_refused_is_refused(kind: str) -> None:
    world = World()
    async with opened(world, kind) as queue:

        async def rival_then_refused(effect: Effect) -> Any:
            await world.rival_pushes()
            world.store.stand("replace", refuse)
            return await effect()

        world.store.plan("replace", rival_then_refused)
        with pytest.raises(StoreRefusedError):
            await queue.push("mail", 1)


@virtual
async def test_a_retry_that_is_rejected_as_overload_has_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    async with world.embedded() as queue:

        def full(_: object) -> None:
            raise OverloadedError("full", retry_after_s=1.0)

        monkeypatch.setattr(queue._committer, "admit", full)
        with pytest.raises(OverloadedError):
            await queue.push("mail", 1)
        token = f"push.{'0' * 26}.1.1"
        with pytest.raises(UnavailableError, match="full") as unknown:
            await queue.push("mail", 1, request=token)
        assert unknown.value.request == token
        await asyncio.sleep(0)
