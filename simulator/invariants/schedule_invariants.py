"""Whether schedules fired as they should, at every commit.

A due time is pushed once, in the commit that moves the decided time beyond it, and never later.
That time never goes back. With the policy ``all`` every due time is pushed (as many as one commit
makes up for), with ``latest`` the last one, and with ``skip`` that one or none. Before the
last one, these two push only what is not missed yet: what was due within a minute.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from bucketq.commit.due_times import last_due
from bucketq.commit.upkeep.schedule_firer import MISSED_AFTER
from bucketq.model.effects.schedule_changes import run_of
from bucketq.model.records import JobRecord
from bucketq.model.schedules import MOST_RUNS, ScheduleRecord
from bucketq.model.side_objects import is_side
from bucketq.model.state import State
from simulator.call_log import SCHEDULED

_MANY = 10_000
"""More due times than lie between two commits of a simulation."""


class ScheduleTracker:
    """Follows the schedules, and the jobs that they push."""

    def __init__(self) -> None:
        """Begin before the first commit."""
        self.fired = set[str]()
        """The jobs of all due times."""

    def follow(self, before: State | None, state: State) -> tuple[str, str] | None:
        """Check one version; return the broken promise and how it was broken, or None."""
        known = before.jobs.by_id if before is not None else {}
        new: dict[str, JobRecord] = {
            job.id: job
            for job in state.jobs
            if job.id not in known and is_scheduled(job) and not job.replay_of
        }
        if again := self.fired & new.keys():
            return "a due time fires once", f"{sorted(again)} were pushed before"
        self.fired |= new.keys()
        for row in state.schedules:
            old = before.schedules.get(row.id) if before is not None else None
            if old is None or (old.created_at, old.timing) != (row.created_at, row.timing):
                continue
            if row.decided_at < old.decided_at:
                return "what was decided stays decided", f"{row.id} was at {old.decided_at}"
            if _has_only_fired(old, row) and (problem := _check_runs(old, row, new)):
                return "what is due is pushed", f"{row.id} until {row.decided_at}: {problem}"
        return None


def is_scheduled(job: JobRecord) -> bool:
    """Whether a schedule has pushed a job."""
    if is_side(job.payload_encoding):
        return False
    return msgspec.json.decode(job.payload, type=str).startswith(SCHEDULED)


def _has_only_fired(old: ScheduleRecord, row: ScheduleRecord) -> bool:
    """Whether nothing else was done to a schedule in a version."""
    fields = {name: getattr(row, name) for name in ("decided_at", "last_job", "last_seq")}
    return replace(old, **fields) == row and not row.paused


def _check_runs(old: ScheduleRecord, row: ScheduleRecord, new: dict[str, JobRecord]) -> str:
    """Return what is wrong with the jobs that a version has pushed for a schedule, or nothing."""
    due = last_due(row, old.decided_at, row.decided_at, _MANY)
    ids = [run_of(old, at).id for at in due]
    pushed = [job_id for job_id in ids if job_id in new]
    own = [job for job in new.values() if job.payload == row.payload]
    if len(own) > len(pushed):
        return f"{len(own)} jobs were pushed, and {len(pushed)} of them were due"
    # A version may have fired several times, while the write before it was slow.
    if row.alone:
        is_right = len(pushed) <= 1
    elif row.missed == "all":
        is_right = pushed[-MOST_RUNS:] == ids[-MOST_RUNS:]
    else:
        is_right = row.missed == "skip" or pushed[-1:] == ids[-1:]
        fired: dict[datetime, list[datetime]] = {}
        for at, job_id in zip(due, ids, strict=True):
            if job_id in new:
                fired.setdefault(new[job_id].pushed_at, []).append(at)
        if older := [times[0] for times in fired.values() if times[-1] - times[0] > MISSED_AFTER]:
            return f"{older[0]} was missed, and was pushed"
    return "" if is_right else f"{len(pushed)} of {len(ids)} were pushed"
