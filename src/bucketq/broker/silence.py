"""Whose worker is silent? Judged by a broker, which hears every heartbeat.

Only the broker's own monotonic clock counts. What it has heard lives beside the state, survives
its reload, and is written into the object as durations, for a successor to go on from: a wall
clock is never compared with another.

Nobody is judged before the *floor*: a grace period after the takeover, and after any moment in
which the broker stood still and could not hear. The floor does not forget what was silent before.
"""

from __future__ import annotations

from datetime import datetime

from bucketq.model.operations import Expire, Persist, Silence
from bucketq.model.state import State

_STOOD_STILL_S = 2.0


class SilenceWatch:
    """Listens for the workers of one queue."""

    def __init__(self, now_s: float) -> None:
        """Begin to listen; all times are the running loop's."""
        self._heard: dict[str, tuple[int, float]] = {}
        self._written: dict[str, datetime | None] = {}
        """The heartbeats in the object: a worker that writes directly is heard there alone."""
        self._own: dict[str, datetime | None] = {}
        """What this broker has written there itself, which is nobody's heartbeat."""
        self._listening_since_s = now_s
        self._ticked_s = now_s

    def tick(self, now_s: float) -> None:
        """Show that the process runs; a gap between two ticks means that it stood still."""
        if now_s - self._ticked_s > _STOOD_STILL_S:
            self._listening_since_s = now_s
        self._ticked_s = now_s

    def hear(self, job_id: str, attempt: int, now_s: float) -> None:
        """Note a heartbeat, or a claim that its worker has just been told of."""
        self._heard[job_id] = (attempt, now_s)

    def stale(self, state: State, now_s: float) -> list[Expire]:
        """The leases to be ended."""
        # Before anything else: after a standstill this may run before any tick does.
        self.tick(now_s)
        self._follow(state, now_s)
        if now_s < self._listening_since_s + state.settings.grace_s:
            return []
        lease_s, jobs = state.settings.lease_s, state.jobs.by_id
        stale = []
        for job_id, (attempt, heard_s) in self._heard.items():
            own_s = jobs[job_id].lease_s
            if heard_s <= now_s - (lease_s if own_s is None else own_s):
                stale.append(Expire(job=job_id, attempt=attempt))
        return stale

    def write_down(self, state: State, now_s: float) -> Persist:
        """What a successor must know: how long each worker has been silent."""
        self._follow(state, now_s)
        return Persist(
            silences=tuple(
                Silence(job_id, attempt, round(max(0.0, now_s - heard_s), 3))
                for job_id, (attempt, heard_s) in self._heard.items()
            )
        )

    def wrote_down(self, state: State) -> None:
        """Note what was just written of the workers, lest it be taken for their heartbeats."""
        self._own = {job_id: state.jobs.by_id[job_id].heartbeat_at for job_id in state.running}

    def _follow(self, state: State, now_s: float) -> None:
        """Keep to the jobs that run now; one that is new goes on from what is written down."""
        heard: dict[str, tuple[int, float]] = {}
        written: dict[str, datetime | None] = {}
        for job_id in state.running:
            job = state.jobs.by_id[job_id]
            known = self._heard.get(job_id)
            if known is None or known[0] != job.attempt:
                known = (job.attempt, now_s - job.silent_s)
            before = self._written.get(job_id, job.heartbeat_at)
            if job.heartbeat_at in (before, self._own.get(job_id)):
                written[job_id] = before
            else:
                written[job_id] = job.heartbeat_at
                if not job.silent_s:  # Else it is what a broker before this one wrote down.
                    known = (job.attempt, now_s)
            heard[job_id] = known
        self._heard, self._written = heard, written
