"""What an embedded queue and a broker's leader do differently while they commit in groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from bucketq.clock import Clock
from bucketq.codec import Document
from bucketq.commit.lease_watch import LeaseWatch
from bucketq.commit.pacing import ALONE_S, Courtesy
from bucketq.commit.parking import Parking
from bucketq.commit.register import Register
from bucketq.commit.waiting import Waiting
from bucketq.model.operations import READS, Request
from bucketq.model.state import State
from bucketq.model.transitions import Applied, apply


class Policy(Protocol):
    """The decisions that a ``GroupCommitter`` leaves to its owner.

    ``looked_s`` is always the time, by the loop's clock, at which the object was last known to be
    what is in memory.
    """

    @property
    def reads(self) -> frozenset[type]:
        """Operations that are answered from what is committed, and change nothing."""
        ...

    @property
    def courtesy(self) -> Courtesy:
        """The pauses that are made for other writers."""
        ...

    async def load(self, register: Register) -> Document:
        """Read the object for the first time."""
        ...

    def check(self, document: Document) -> None:
        """Raise if a document that was just read must not be committed to."""
        ...

    def intercept(self, waiting: Waiting, state: State, looked_s: float) -> Applied | None:
        """Answer a request at once, instead of applying it; None: it is to be applied."""
        ...

    def read(self, state: State, request: Request, now: datetime) -> Applied:
        """Answer a read from the state that is about to be committed."""
        ...

    def end_leases(self, state: State, looked_s: float) -> bool:
        """End the leases of silent workers for a claim; returns whether there were any."""
        ...

    def before_commit(self, state: State, parked: Parking[Waiting], looked_s: float) -> None:
        """Change the state without a request, before it is written."""
        ...

    def committed(self, answered: Sequence[Waiting], state: State | None) -> None:
        """Note that requests are about to be answered."""
        ...

    def is_fresh(self, looked_s: float) -> bool:
        """Whether a parked claim may be answered without another look at the object."""
        ...

    def next_look_s(self, looked_s: float) -> float | None:
        """When the object is looked at although no claim is parked; None: never."""
        ...

    def next_duty_s(self, state: State | None) -> float | None:
        """When ``before_commit`` has something to do although no request came; None: never."""
        ...


class EmbeddedPolicy:
    """Serves the callers of this process, without an epoch."""

    reads = frozenset[type](READS)

    def __init__(self, clock: Clock, *, create: bool) -> None:
        """Begin; ``create`` is whether to create the queue if there is none."""
        self.courtesy = Courtesy(ALONE_S, takes_turns=True)
        self._clock = clock
        self._create = create
        self._leases = LeaseWatch()

    async def load(self, register: Register) -> Document:
        """Load the object, or create it."""
        return await register.open(create=self._create)

    def check(self, document: Document) -> None:
        """Accept every document."""

    def intercept(self, waiting: Waiting, state: State, looked_s: float) -> Applied | None:
        """Apply every request."""
        return None

    def read(self, state: State, request: Request, now: datetime) -> Applied:
        """Answer a read."""
        return apply(state, request, now)

    def end_leases(self, state: State, looked_s: float) -> bool:
        """End the leases of workers whose heartbeats have stopped changing the object."""
        now_s = asyncio.get_running_loop().time()
        return self._leases.end_silent(state, self._clock.now(), now_s, looked_s)

    def before_commit(self, state: State, parked: Parking[Waiting], looked_s: float) -> None:
        """End leases only if a claim waits for the jobs."""
        if parked:
            self.end_leases(state, looked_s)

    def committed(self, answered: Sequence[Waiting], state: State | None) -> None:
        """Keep no record."""

    def is_fresh(self, looked_s: float) -> bool:
        """Look again: another process may have pushed a job."""
        return False

    def next_look_s(self, looked_s: float) -> float | None:
        """Look only if a request came or a claim waits."""
        return None

    def next_duty_s(self, state: State | None) -> float | None:
        """Have no duties."""
        return None
