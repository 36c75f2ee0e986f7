"""Jobs that a completion pushes: they exist if and only if the job was completed.

They are added in the commit that completes the job, under its lease. A repeated completion finds
the job completed and adds nothing; one whose lease was lost adds nothing either.

A completion is never refused because of jobs that are there or of a full queue. A follow-up whose
id, key or unique name belongs to another job is not added, whatever the content of that is, and
``replace`` takes effect as in a push. The limits of the queue do not apply.

The ids that workers make follow from the lease, which is new at each attempt: only this completion
can have pushed them, so they are not looked for in segments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from bucketq.model.base import NewJob, row_bytes
from bucketq.model.effects import unique_jobs
from bucketq.model.effects.push_keys import digest_of, is_valid_key, keys_to_drop
from bucketq.model.effects.pushes import add_some, look_up_unique, without
from bucketq.model.job_ids import is_made_by, made_by
from bucketq.model.operations import Complete, Completion
from bucketq.model.records import JobRecord
from bucketq.model.state import State


class _FollowUpPlan(NamedTuple):
    """What a completion adds, found before anything is changed."""

    known: dict[str, str]
    """The jobs that are not added, and the ids of those that are there instead."""
    keyed: dict[str, NewJob]
    """The jobs whose keys are new."""
    named: list[NewJob]
    """The jobs with unique names."""
    changed: Sequence[tuple[JobRecord, JobRecord]]
    """Jobs that wait, as they are and as they will be."""


def look_ahead(
    state: State,
    completions: Iterable[Complete | Completion],
    ending: Collection[str],
    now: datetime,
) -> None:
    """Look up all that ``push_follow_ups`` will, before anything is changed.

    ``ending`` are the jobs that are finished by then. Raises ``ColdRowsNeededError``.
    """
    for each in completions:
        _plan(state, each, ending, now)


def push_follow_ups(state: State, completion: Complete | Completion, now: datetime) -> None:
    """Add the jobs of a completion that was granted, after ``look_ahead``."""
    jobs = completion.follow_ups
    known, keyed, named, changed = _plan(state, completion, (), now)
    for key in keys_to_drop(state, keyed, now, must_fit=False) if keyed else ():
        state.forget_key(key)
    add_some(state, jobs, known, now, ())
    if named:
        unique_jobs.note_added(state, [job.id for job in without(known, named)])
        unique_jobs.change_waiting(state, changed)
        old, new = [old for old, _ in changed], [new for _, new in changed]
        state.added_bytes += row_bytes(new) - row_bytes(old)
    for key, job in keyed.items():
        digest = digest_of(job) if key == job.key else ""
        state.put_key(key, known.get(job.id, job.id), digest, now)


def _plan(
    state: State, completion: Complete | Completion, ending: Collection[str], now: datetime
) -> _FollowUpPlan:
    jobs, made = completion.follow_ups, made_by(completion.lease, 0)
    strangers = [job.id for job in jobs if not is_made_by(made, job.id)]
    known, keyed, named = _look_up(state, jobs, strangers, now)
    changed = look_up_unique(state, named, now, known, keyed, ending) if named else ()
    return _FollowUpPlan(known, keyed, named, changed)


def _look_up(
    state: State, jobs: Sequence[NewJob], strangers: Sequence[str], now: datetime
) -> tuple[dict[str, str], dict[str, NewJob], list[NewJob]]:
    """Find jobs that are there already by id or key; the others by their keys, and by names."""
    there = {job.id for job in jobs if job.id in state.jobs.by_id}
    if strangers and state.cold.rows.segments:
        there |= set(state.cold.find([each for each in strangers if each not in there]))
    wanted = [job.key for job in jobs if job.key is not None]
    keys = state.known_keys.find(wanted) if wanted else {}
    known, keyed, named = dict[str, str](), dict[str, NewJob](), list[NewJob]()
    for job in jobs:
        key = keys.get(job.key or "")
        if key is not None and is_valid_key(state, key, now):
            known[job.id] = key.job
        elif job.id in there:
            known[job.id] = job.id
        else:
            if job.key is not None:
                keyed[job.key] = job
            if job.unique is not None:
                named.append(job)
    return known, keyed, named
