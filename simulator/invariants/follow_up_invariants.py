"""Whether follow-up jobs exist if and only if their job was completed, at every commit.

They appear in the version that completes the job, all of them, and never before or after. The
invariant about payloads, which no two jobs share, shows that none is pushed twice.
"""

from __future__ import annotations

import msgspec

from bucketq.model.records import JobRecord
from bucketq.model.state import State

FOLLOWS = "follows "
"""How the payload of a follow-up job begins; then come the id of its job, and its place."""


def count_follow_ups(payload: str, seq: int) -> int:
    """How many jobs a job pushes; those that were pushed by others push none."""
    return 0 if payload.startswith(FOLLOWS) else 1 + seq % 2


class FollowUpTracker:
    """Follows the versions of a queue."""

    def __init__(self, pushing: set[str]) -> None:
        """Judge the completions of the workers in ``pushing``."""
        self._pushing = pushing
        self.count = 0
        """How many follow-up jobs there were."""

    def follow(self, before: State | None, state: State) -> tuple[str, str] | None:
        """Check one version; return the broken promise and how it was broken, or None."""
        old_jobs = before.jobs.by_id if before is not None else {}
        pushed: dict[str, int] = {}
        completed: dict[str, JobRecord] = {}
        for job in state.jobs:
            old = old_jobs.get(job.id)
            if old == job:
                continue
            if job.failures + job.lost_leases + job.snoozes > job.attempt:
                return "an attempt ends once", f"{job.id}: {job}"
            payload = _text(job)
            if old is None and payload.startswith(FOLLOWS):
                parent = payload.removeprefix(FOLLOWS).split()[0]
                pushed[parent] = pushed.get(parent, 0) + 1
            if job.outcome == "completed" and (old is None or old.outcome != "completed"):
                completed[job.id] = job
        for parent, count in pushed.items():
            self.count += count
            if parent not in completed:
                return "a follow-up needs a completion", f"{parent} was not completed just now"
        for job in completed.values():
            payload = _text(job)
            wanted = count_follow_ups(payload, job.seq) if job.worker in self._pushing else 0
            if pushed.get(job.id, 0) != wanted:
                reason = f"{job.id} has pushed {pushed.get(job.id, 0)}, and not {wanted}"
                return "a completion pushes its follow-ups", reason
        return None


def _text(job: JobRecord) -> str:
    """The payload of a job; empty if it is not a token."""
    payload = msgspec.json.decode(job.payload)
    return payload if isinstance(payload, str) else ""
