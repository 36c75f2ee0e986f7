"""``LeaseExpiry``: ends leases of silent workers for a broker, which receives all heartbeats.

Only the broker's own monotonic clock counts. The times of heartbeats are kept beside the state,
survive its reload, and are written into the object as durations, from which a successor continues.
Wall clocks are never compared.

No lease ends before the *floor*: a grace period after the takeover, and after any time in which the
broker was frozen and received nothing. The floor does not reset how long a worker was silent.
"""

from __future__ import annotations

from datetime import datetime

from bucketq.model.operations import Expire, Persist, Silence
from bucketq.model.records import JobRecord, Progress
from bucketq.model.state import State

_STOOD_STILL_S = 2.0
"""Four missed ticks: the process was frozen, and may have missed heartbeats."""


class LeaseExpiry:
    """Tracks the heartbeats of one queue's workers, and says whose leases have expired."""

    def __init__(self, now_s: float) -> None:
        """Begin; all times are those of the running loop."""
        self._heard: dict[str, tuple[int, float]] = {}
        self._progress: dict[str, tuple[int, Progress]] = {}
        """What the handlers of jobs reported, each with the attempt."""
        self._written: dict[str, datetime | None] = {}
        """Heartbeats in the object; those of workers that write directly are found only there."""
        self._own: dict[str, datetime | None] = {}
        """What this broker wrote there itself, which is not a heartbeat."""
        self._listening_since_s = now_s
        self._ticked_s = now_s

    def tick(self, now_s: float) -> None:
        """Note that the process runs; a gap between two ticks means that it was frozen."""
        if now_s - self._ticked_s > _STOOD_STILL_S:
            self._listening_since_s = now_s
        self._ticked_s = now_s

    def hear(self, job_id: str, attempt: int, now_s: float) -> None:
        """Note a heartbeat, or a claim whose answer was just sent to its worker."""
        self._heard[job_id] = (attempt, now_s)

    def come(self, job_id: str, attempt: int, progress: Progress) -> None:
        """Note how far a job has come."""
        self._progress[job_id] = (attempt, progress)

    def progress_of(self, job: JobRecord) -> Progress | None:
        """Return how far a job has come, as far as is known here or in the object."""
        attempt, progress = self._progress.get(job.id, (0, None))
        return progress if attempt == job.attempt and job.status == "running" else job.progress

    def stale(self, state: State, now_s: float) -> list[Expire]:
        """Return the leases that have expired."""
        # First: after the process was frozen, this may run before a tick does.
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
        """Return how long each worker has been silent, for a successor."""
        self._follow(state, now_s)
        return Persist(
            silences=tuple(
                Silence(
                    job_id,
                    attempt,
                    round(max(0.0, now_s - heard_s), 3),
                    self.progress_of(state.jobs.by_id[job_id]),
                )
                for job_id, (attempt, heard_s) in self._heard.items()
            )
        )

    def wrote_down(self, state: State) -> None:
        """Note what was just written, so that it is not mistaken for heartbeats."""
        self._own = {job_id: state.jobs.by_id[job_id].heartbeat_at for job_id in state.running}

    def _follow(self, state: State, now_s: float) -> None:
        """Track the jobs that run now; a new one continues from what is in the object."""
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
                if not job.silent_s:  # Otherwise an earlier broker wrote it.
                    known = (job.attempt, now_s)
            heard[job_id] = known
        self._heard, self._written = heard, written
        if self._progress:
            self._progress = {job: come for job, come in self._progress.items() if job in heard}
