"""``JobExpirer``: finishes jobs that have expired, if nothing else is committed.

Every commit finishes the expired jobs of the object, and ``SegmentUpkeep`` those in segments. This
submits a ``Tidy`` if a job expires and no request comes. Without expiring jobs it does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from bucketq.clock import Clock
from bucketq.commit.upkeep.background import BackgroundLoop
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.model.effects.expiry import is_due
from bucketq.model.operations import Request, Tidy
from bucketq.model.state import State

_log = logging.getLogger("bucketq")

_PASS_S = 1.0
"""The longest pause between two passes, which may take twice as long: what others push, and a clock
that is set, are noticed after it."""
_LEAST_PASS_S = 0.01
"""A timer may fire a little early; this keeps the task from spinning until a job expires."""


class JobExpirer:
    """Finishes the expired jobs of one queue."""

    def __init__(
        self, submit: Callable[[Request], Awaitable[Any]], clock: Clock, where: str
    ) -> None:
        """Commit with ``submit``; ``where`` is what messages call the queue."""
        self._submit = submit
        self._clock = clock
        fault = TransientFault(clock, _log, f"{where}: expired jobs cannot be finished")
        self._loop = BackgroundLoop(clock, fault)
        self._is_idle = True

    def start(self, current: Callable[[], State | None]) -> None:
        """Begin; ``current`` returns the state in memory."""
        self._loop.start(partial(self._pass, current), None)

    def notice(self, state: State) -> None:
        """Look at a state that was read or committed: it may have the first job that expires."""
        if self._is_idle and state.expiring.first() is not None:
            self._is_idle = False
            self._loop.wake()

    async def stop(self) -> None:
        """Stop."""
        await self._loop.stop()

    async def _pass(self, current: Callable[[], State | None]) -> float | None:
        while (state := current()) is not None and is_due(state, self._clock.now()):
            await self._submit(Request(Tidy()))
        if state is None:
            return _PASS_S
        job = state.expiring.first()
        self._is_idle = job is None
        if job is None or job.expires_at is None:
            return None
        left_s = (job.expires_at - self._clock.now()).total_seconds()
        return max(_LEAST_PASS_S, min(left_s, _PASS_S))
