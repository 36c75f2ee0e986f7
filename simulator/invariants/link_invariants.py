"""Whether batches and jobs that wait for others keep their promises, at every commit.

A batch counts its jobs, and how they have ended, exactly. Its callback exists if and only if it is
closed and all its jobs have ended, and exactly once. A job that waits for others is not started
before these have completed, or have ended if it says so, and it never waits for one that has ended.
"""

from __future__ import annotations

from collections import Counter

from bucketq.model.job_batches import BatchRecord
from bucketq.model.records import JobRecord
from bucketq.model.state import State

_OVER = ("done", "dead")
_OUTCOMES = ("completed", "cancelled", "dead", "expired")


class LinkTracker:
    """Follows batches and held jobs through the chain of commits."""

    def __init__(self) -> None:
        """Begin before the first commit."""
        self._jobs: dict[str, dict[str, str]] = {}
        """Of each batch, the jobs that were added to it, and how they have ended."""
        self._callbacks = Counter[str]()
        self._after: dict[str, set[str]] = {}
        """What each job has waited for, and what has not ended since in the way that it needs."""
        self._ended: dict[str, bool] = {}
        """Jobs that have ended, and whether they were completed."""

    def follow(self, before: State | None, state: State) -> tuple[str, str] | None:
        """Check one version; return the broken promise and how it was broken, or None."""
        old_jobs = before.jobs.by_id if before is not None else {}
        changed = [job for job in state.jobs if old_jobs.get(job.id) != job]
        for job in changed:
            self._note(job, old_jobs.get(job.id))
        for job in changed:
            self._release(state, job.id)
        for job in state.jobs:
            if (reason := self._check_held(state, job, old_jobs.get(job.id))) is not None:
                return reason
        old_batches = before.batches.by_id if before is not None else {}
        for batch in state.batches:
            if (reason := self._check_batch(batch, old_batches.get(batch.id))) is not None:
                return reason
        return None

    def _note(self, job: JobRecord, old: JobRecord | None) -> None:
        if job.batch_id is not None:
            outcome = "dead" if job.status == "dead" else job.outcome or ""
            self._jobs.setdefault(job.batch_id, {})[job.id] = outcome
        if job.done_batch is not None and old is None:
            self._callbacks[job.done_batch.id] += 1
        if job.after:
            self._after.setdefault(job.id, set()).update(job.after)
        if old is not None and old.status == "dead" and job.status not in _OVER:
            # A redriven job waits for what is in its row, and for nothing else.
            self._after[job.id] = set(job.after)
        if job.status in _OVER:
            self._ended[job.id] = job.outcome == "completed"
        else:
            self._ended.pop(job.id, None)

    def _check_held(
        self, state: State, job: JobRecord, old: JobRecord | None
    ) -> tuple[str, str] | None:
        if job.is_held:
            gone = [name for name in job.after if name in self._ended or name not in state.jobs]
            if gone:
                return "a job waits for nothing that has ended", f"{job.id} waits for {gone}"
        is_started = job.status == "running" and (old is None or old.status != "running")
        if is_started and (left := self._after.get(job.id)):
            return "a job starts after those that it waits for", f"{job.id} before {left}"
        return None

    def _release(self, state: State, ended: str) -> None:
        """Note which jobs need not wait any more for one that has changed."""
        job = state.jobs.by_id[ended]
        for name, left in self._after.items():
            waiting = state.jobs.get(name)
            if ended not in left or waiting is None:
                continue
            # One that died may have been redriven in the same commit; it has an error then.
            has_ended = ended in self._ended or bool(job.errors)
            if self._ended.get(ended) or (waiting.on_failed is not None and has_ended):
                left.discard(ended)

    def _check_batch(self, batch: BatchRecord, old: BatchRecord | None) -> tuple[str, str] | None:
        ends = self._jobs.get(batch.id, {})
        found = Counter(ends.values())
        counts = [getattr(batch, name) for name in _OUTCOMES]
        is_over = batch.closed_at is not None and not found[""]
        callbacks = self._callbacks[batch.id]
        if batch.status in ("open", "closed"):
            if (batch.jobs, counts) != (len(ends), [found[name] for name in _OUTCOMES]):
                return "a batch counts its jobs", f"{batch} has {dict(found)}"
            if is_over:
                return "a batch whose jobs have ended is done", f"{batch}"
        elif batch.status == "done" and (old is None or old.ended_at is None) and not is_over:
            return "a batch is done when all its jobs have ended", f"{batch} has {dict(found)}"
        if callbacks != int(batch.status == "done"):
            return "a batch has one callback, at its end", f"{batch} has {callbacks}"
        return None
