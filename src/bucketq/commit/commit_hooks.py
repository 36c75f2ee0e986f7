"""``CommitHooks``: the decisions that a ``GroupCommitter`` leaves to its owner.

The defaults serve the callers of one process. A broker's leader overrides them, because it commits
under an epoch and decides by itself which workers are silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime

from bucketq.clock import Clock
from bucketq.codec.document import Document
from bucketq.commit.direct_lease_expiry import DirectLeaseExpiry
from bucketq.commit.objects.pacing import ALONE_S, FairnessPause
from bucketq.commit.objects.register import Register
from bucketq.commit.parked_claims import ParkedClaims
from bucketq.commit.pending_requests import PendingRequest
from bucketq.model.operations import READS, Request
from bucketq.model.records import JobRecord, Progress
from bucketq.model.state import State
from bucketq.model.transitions import Applied, apply
from bucketq.store.resolve_write import Verdict


class CommitHooks:
    """Hooks for an embedded queue, without an epoch.

    ``looked_s`` is always the time, by the loop's clock, at which the object was last known to be
    what is in memory.
    """

    reads = frozenset[type](READS)
    """Operations that are answered from what is committed, and change nothing."""
    leads = False
    """Whether this is the broker that the object names."""

    def __init__(self, clock: Clock, *, create: bool) -> None:
        """Begin; ``create`` is whether to create the queue if it does not exist."""
        self.fairness = FairnessPause(clock, ALONE_S, takes_turns=True)
        self._clock = clock
        self._create = create
        self._leases = DirectLeaseExpiry()

    async def load(self, register: Register) -> Document:
        """Read the object for the first time; here, create it if necessary."""
        return await register.open(create=self._create)

    def check(self, document: Document) -> None:
        """Raise if a document that was just read must not be committed to; here, never."""

    def intercept(self, pending: PendingRequest, state: State, looked_s: float) -> Applied | None:
        """Answer a request at once, instead of applying it; None: it is applied, as always here."""
        return None

    def read(self, state: State, request: Request, now: datetime) -> Applied:
        """Answer a read from the state that is about to be committed."""
        return apply(state, request, now)

    def progress_of(self, job: JobRecord) -> Progress | None:
        """Return how far a job has come; here, as the object says."""
        return job.progress

    def end_leases(self, state: State, looked_s: float) -> bool:
        """End the leases of silent workers for a claim; return whether there were any."""
        now_s = asyncio.get_running_loop().time()
        return self._leases.end_silent(state, self._clock.now(), now_s, looked_s)

    def before_commit(self, state: State, parked: ParkedClaims, looked_s: float) -> None:
        """Change the state without a request; here, end leases if a claim waits for the jobs."""
        if parked:
            self.end_leases(state, looked_s)

    def prepared(self, state: State) -> None:
        """Note the state that is about to be written, or confirmed if nothing changed."""

    def committed(self, answered: Collection[PendingRequest], state: State | None) -> None:
        """Note that requests are about to be answered."""

    def wrote(self, verdict: Verdict, took_s: float, size_bytes: int, requests: int) -> None:
        """Note a write of the object for so many requests, and what became of it."""

    def is_fresh(self, looked_s: float) -> bool:
        """Whether a parked claim may be answered without another look at the object.

        Not here: another process may have pushed a job.
        """
        return False

    def next_look_s(self, looked_s: float) -> float | None:
        """When to look at the object even if no claim is parked; None: never."""
        return None

    def next_duty_s(self, state: State | None) -> float | None:
        """When ``before_commit`` has something to do even if no request came; None: never."""
        return None
