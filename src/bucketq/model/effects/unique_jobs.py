"""Unique jobs: a push adds nothing if a job of its kind and unique name is in scope.

The name is a field of the job, so whether it is taken follows from the job itself: nothing has to
be tidied when the job ends, in whichever way. Jobs in the object are found by an index that is
derived from the rows, jobs in segments by a hash of kind and name beside those of ids. Only a
period outlives the job: it is an idempotency key of the queue's own, which expires like others.

It is checked at a push only: a redrive queues a job again although another has its name by now.
Then a push finds the newest of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob
from bucketq.model.check import RESERVED
from bucketq.model.id_hashes import unique_name
from bucketq.model.records import JobRecord, KeyRecord
from bucketq.model.requests.stateless_checks import check_unique_settings
from bucketq.model.state import State

FEATURE = "unique"
"""What an object with unique jobs requires of its readers: others would write segments in which
such jobs cannot be found by their names."""

_Times = tuple[datetime | None, datetime | None]
"""From when a job may run, and when it expires."""


class Taken(NamedTuple):
    """The unique names of a push that are taken, and what is replaced in jobs that wait."""

    ids: dict[str, str]
    """For each job of the push that is not added, the id of the one that is there."""
    changed: list[tuple[JobRecord, JobRecord]]
    """Jobs as they are, and as they will be."""


def period_key(job: NewJob) -> str | None:
    """Return the key under which a period is remembered; None: the job has none."""
    if job.unique is None or job.unique_s is None:
        return None
    return RESERVED + unique_name(job.kind, job.unique)


def check_unique(state: State, jobs: Sequence[NewJob]) -> None:
    """Refuse what the settings of the queue do not allow, and names that stand twice."""
    names = set[str]()
    for job in jobs:
        check_unique_settings(job, state.settings)
        if _name(job) in names:
            raise InvalidRequestError(
                f"unique name {job.unique!r} of kind {job.kind} stands twice in one push"
            )
        names.add(_name(job))


def find_taken(
    state: State,
    jobs: Sequence[NewJob],
    times: Mapping[str, _Times],
    periods: Mapping[str, KeyRecord],
    now: datetime,
    ending: Collection[str] = (),
) -> Taken:
    """Find the jobs that have the unique names of a push.

    ``times`` has the times of the jobs of the push, by their ids, and ``periods`` the keys that are
    valid. Running jobs in ``ending`` end with the push, so their names are free. Raises
    ``ColdRowsNeededError``; nothing is changed.
    """
    taken = Taken({}, [])
    waiting = _find_cold(state, jobs, now, ending)
    for job in jobs:
        if (key := period_key(job)) is not None:
            if key not in periods:
                continue
            found = periods[key].job
        else:
            there = waiting.get(_name(job)) or _in_scope(state, job, now, ending)
            if there is None:
                continue
            found = there.id
        taken.ids[job.id] = found
        if job.replace is not None:
            state.attach_cold()
            old = state.borrow_job(found)
            if old is not None and old.status == "queued" and old.unique == job.unique:
                new = _replaced(old, job, times[job.id])
                if new != old:
                    taken.changed.append((old, new))
    return taken


def note_added(state: State, ids: Sequence[str]) -> None:
    """Note that jobs with unique names were added, to the object or as rows of a segment."""
    for job_id in ids:
        state.requires[FEATURE] = None
        if (job := state.jobs.get(job_id)) is not None:
            state.unique.add(job)


def change_waiting(state: State, changed: Sequence[tuple[JobRecord, JobRecord]]) -> None:
    """Replace the payloads or the times of jobs that wait.

    If one gets another place, its entry at the old one stays; a claim takes it once all the same.
    """
    for old, new in changed:
        _change(state, old, new)


def _change(state: State, old: JobRecord, new: JobRecord) -> None:
    is_moved = (old.run_at, old.expires_at) != (new.run_at, new.expires_at)
    if is_moved or state.cold.is_lent(old.id):
        state.has_moved = True
        state.replace_job(old, new)
        return
    if state.recorder is not None:
        state.recorder.replace({new.id: old}, (new,))
    state.jobs.replace((new,))
    state.changes.append(("jobs", new.id))


def _find_cold(
    state: State, jobs: Sequence[NewJob], now: datetime, ending: Collection[str]
) -> dict[str, JobRecord]:
    """Find jobs in segments with the names of a push, newer than those in the object."""
    if not state.cold.rows.segments:
        return {}
    scoped = (job for job in jobs if job.unique_s is None)
    hot = {_name(job): _in_scope(state, job, now, ending) for job in scoped}
    newer_than = {name: 0 if job is None else job.seq for name, job in hot.items()}
    found = state.cold.rows.find_unique(newer_than) if newer_than else {}
    return {name: job for name, job in found.items() if not job.has_expired(now)}


def _in_scope(
    state: State, job: NewJob, now: datetime, ending: Collection[str]
) -> JobRecord | None:
    """Return the newest job of the object that has the name of one of a push, and is in scope."""
    statuses = ("queued",) if job.unique_scope == "queued" else ("queued", "running")
    there = (each for each in state.unique.find(_name(job)) if each.status in statuses)
    in_time = (each for each in there if not each.has_expired(now) and each.id not in ending)
    return max(in_time, key=lambda each: each.seq, default=None)


def _name(job: NewJob) -> str:
    return unique_name(job.kind, job.unique or "")


def _replaced(old: JobRecord, job: NewJob, times: _Times) -> JobRecord:
    new, (run_at, expires_at) = old, times
    if job.replace != "run_at":
        new = replace(new, payload=job.payload, payload_encoding=job.payload_encoding)
    if job.replace != "payload":
        new = replace(new, run_at=run_at, expires_at=expires_at)
    return new
