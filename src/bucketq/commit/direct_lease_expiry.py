"""``DirectLeaseExpiry``: ends leases of silent workers if no broker serves the queue.

A worker is silent when its heartbeats stop changing the object. This process measures that with its
own monotonic clock, so no two hosts have to agree on the time: a lease is stale when its job was
seen unchanged for a lease and a grace period. A process that has not watched for long uses the wall
time in the object, with a margin that is wider than clocks are wrong.

Only a look at the object can show that a worker is silent. What is in memory is judged as of the
last look that was answered, even if that was long ago: while the storage is away no heartbeat can
arrive, and that is not silence.

After a gap without looks (the process was frozen, or the storage did not answer), every job keeps
at least the grace period: heartbeats could not be seen either.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bucketq.model.operations import Expire, Request
from bucketq.model.state import State
from bucketq.model.transitions import apply

_SCAN_S = 1.0
"""How often leases are judged, at most: short beside any lease that makes sense."""
_LONGEST_GAP_S = 5.0
"""The longest time between two looks for a claim that waits; a longer one is a gap."""
_OLDEST_LOOK_S = 10.0
"""An older look shows nothing new. Nor may it count as the first look, after which a job keeps the
grace period."""


class DirectLeaseExpiry:
    """Watches the running jobs of one queue."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, datetime | None, float]] = {}
        self._scanned_at: float | None = None
        self._watching_since = 0.0

    def end_silent(self, state: State, now: datetime, monotonic_s: float, looked_s: float) -> bool:
        """End the leases of silent workers; return whether there were any.

        If a broker serves the queue, only the broker does that.
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
        """Return the stale leases; judge one look a second at most.

        Args:
            state: What the last look showed.
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
        # If so, a job that was seen to change within the grace period is not stale.
        is_watching = last is not None and gap_s <= _LONGEST_GAP_S
        looked_at = now - timedelta(seconds=monotonic_s - looked_s)
        known, jobs, grace_s = self._seen, state.jobs.by_id, settings.grace_s
        seen: dict[str, tuple[int, datetime | None, float]] = {}
        stale = []
        for job_id in state.running:
            job = jobs[job_id]
            sight = known.get(job_id)
            if sight is None or sight[1] != job.heartbeat_at or sight[0] != job.attempt:
                # Or earlier: the look may have taken long.
                sight = (job.attempt, job.heartbeat_at, monotonic_s)
            seen[job_id] = sight
            if is_watching and looked_s - sight[2] < grace_s:
                continue  # As nearly all: a queue may have thousands of running jobs.
            lease_s = settings.lease_s if job.lease_s is None else job.lease_s
            since = sight[2]
            if _is_pause(gap_s, lease_s, settings.heartbeat_s):
                since = max(since, looked_s - lease_s)
                seen[job_id] = (job.attempt, job.heartbeat_at, since)
            silent_s = looked_s - since
            wall_s = (looked_at - job.heartbeat_at).total_seconds() if job.heartbeat_at else 0.0
            watched_s = min(silent_s, looked_s - self._watching_since)
            has_grace = last is not None and watched_s < grace_s
            if silent_s >= lease_s + grace_s or (
                wall_s >= lease_s + settings.clock_margin_s and not has_grace
            ):
                stale.append(Expire(job=job_id, attempt=job.attempt))
        self._seen = seen
        return stale


def _is_pause(gap_s: float, lease_s: float, heartbeat_s: float) -> bool:
    """Whether a healthy worker may seem silent for more than a lease after a gap between two looks.

    Its last heartbeat that was seen may be ``heartbeat_s`` older than the gap.
    """
    return gap_s > max(lease_s - heartbeat_s, _LONGEST_GAP_S)
