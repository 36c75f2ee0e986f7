"""``DirectUpkeep``: what a writer that commits by itself does for the queue, in its own commits.

If no broker serves the queue, its writers keep the object small: each puts what is to leave the
object, and its next commit names that.

The puts take as long as the commits of several other writers. A commit on what was read before them
would hardly ever land, and if all writers tried that, each would wait for seconds. So they come
before the queue is read for the commit, and what was put is kept until a commit has named it: after
a lost race nothing is put again. Each operation is judged by the state that it is applied to,
however old it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from bucketq.commit.cold_reads import apply_reading
from bucketq.commit.objects.register import Register
from bucketq.commit.upkeep.history_keeper import HistoryKeeper
from bucketq.commit.upkeep.segment_upkeep import SegmentUpkeep
from bucketq.commit.upkeep.spiller import Spiller
from bucketq.model.operations import Request
from bucketq.model.state import State


class DirectUpkeep:
    """The upkeep of one direct writer: what it has put, and no commit has named yet."""

    def __init__(
        self, register: Register, spiller: Spiller, segments: SegmentUpkeep, history: HistoryKeeper
    ) -> None:
        """Do the steps of these three."""
        self._register = register
        self._sources: tuple[Callable[[State], Awaitable[list[Any]]], ...] = (
            history.step_before,
            spiller.spill_before,
            segments.step_before,
        )
        self._put: tuple[list[Any], ...] = ([], [], [])
        """The operations of each source that name what was put."""

    async def put(self, state: State) -> bool:
        """Put what is due, unless that was done before; return whether something was put.

        Nothing was applied to the state since it was read.
        """
        has_put = False
        for step, put in zip(self._sources, self._put, strict=True):
            if not put:
                put.extend(await step(state))
                has_put = has_put or bool(put)
        return has_put

    async def apply(self, state: State, now: datetime) -> None:
        """Name what was put, as a part of the next commit; forget what is of no use any more."""
        for put in self._put:
            put[:] = [each for each in put if await self._has_effect(state, each, now)]

    async def _has_effect(self, state: State, operation: Any, now: datetime) -> bool:
        applied = await apply_reading(self._register, state, Request(operation), now)
        return applied.error is None and bool(applied.answer)

    def landed(self) -> None:
        """Note that a commit has named all of it."""
        for put in self._put:
            put.clear()
