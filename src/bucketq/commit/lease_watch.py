"""Which workers are silent? Judged by processes that claim, if no broker serves the queue.

A worker is silent when its heartbeats stop changing the object. That is watched by this
process's own monotonic clock, so no two hosts have to agree on the time: a job is stale when it
was seen unchanged for a lease and a grace. A process that has not watched for long goes by
the wall time in the object, with a margin that is wider than clocks are wrong.

Only a look at the object can show that a worker is silent. What is in memory is judged as of the
last look that was answered, however long ago that was: while the storage is away no worker can be
heard, and that is not silence.

After a pause in which nothing was watched (the process stood still, or the storage could not
be reached), every job keeps at least the grace: the workers could not be heard either.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bucketq.model.operations import Expire, Request
from bucketq.model.state import State
from bucketq.model.transitions import apply

_SCAN_S = 1.0
_LONGEST_GAP_S = 5.0
"""What a claim that waits needs between two looks, at the most."""
_OLDEST_LOOK_S = 10.0
"""A look that is older shows nothing new. It must not count as the first one, either, after which a
job keeps the grace."""


class LeaseWatch:
    """Watches the running jobs of one queue."""

    def __init__(self) -> None:
        """Begin without having seen anything."""
        self._seen: dict[str, tuple[int, datetime | None, float]] = {}
        self._scanned_at: float | None = None
        self._watching_since = 0.0

    def end_silent(self, state: State, now: datetime, monotonic_s: float, looked_s: float) -> bool:
        """End the leases of silent workers; returns whether there were any.

        A broker that serves the queue does that by itself, and no other process does.
        """
        if state.is_served:
            return False
        stale = self.stale(state, now, monotonic_s, looked_s)
        for expire in stale:
            apply(state, Request(expire), now)
        return bool(stale)

    def stale(
        self, state: State, now: datetime, monotonic_s: float, looked_s: float
    ) -> list[Expire]:
        """The leases to be ended; judges one look a second at most.

        Args:
            state: What the last look has shown.
            now: The wall time.
            monotonic_s: The running loop's time.
            looked_s: When that look began, by the running loop's time.
        """
        last = self._scanned_at
        if last is not None and looked_s - last < _SCAN_S:
            return []
        if monotonic_s - looked_s > _OLDEST_LOOK_S:
            return []
        self._scanned_at = looked_s
        settings = state.settings
        gap_s = 0.0 if last is None else looked_s - last
        if last is None or _is_pause(gap_s, settings.lease_s, settings.heartbeat_s):
            self._watching_since = looked_s
        looked_at = now - timedelta(seconds=monotonic_s - looked_s)
        seen: dict[str, tuple[int, datetime | None, float]] = {}
        stale = []
        for job_id in state.running:
            job = state.jobs.by_id[job_id]
            attempt, heartbeat_at, since = self._seen.get(job_id, (0, None, monotonic_s))
            if (attempt, heartbeat_at) != (job.attempt, job.heartbeat_at):
                since = monotonic_s  # At the latest: the look may have taken long.
            lease_s = settings.lease_s if job.lease_s is None else job.lease_s
            if _is_pause(gap_s, lease_s, settings.heartbeat_s):
                since = max(since, looked_s - lease_s)
            seen[job_id] = (job.attempt, job.heartbeat_at, since)
            silent_s = looked_s - since
            wall_s = (looked_at - job.heartbeat_at).total_seconds() if job.heartbeat_at else 0.0
            watched_s = min(silent_s, looked_s - self._watching_since)
            has_grace = last is not None and watched_s < settings.grace_s
            if silent_s >= lease_s + settings.grace_s or (
                wall_s >= lease_s + settings.clock_margin_s and not has_grace
            ):
                stale.append(Expire(job=job_id, attempt=job.attempt))
        self._seen = seen
        return stale


def _is_pause(gap_s: float, lease_s: float, heartbeat_s: float) -> bool:
    """Whether a healthy worker may look silent for more than a lease after a gap between two looks.

    Its last heartbeat that was seen may be ``heartbeat_s`` older than the gap.
    """
    return gap_s > max(lease_s - heartbeat_s, _LONGEST_GAP_S)
