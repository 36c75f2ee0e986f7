"""What a push links its jobs to: the batch that they belong to, and jobs that they wait for.

A job can wait only for jobs that exist when it is pushed, or stand before it in the same push, so
no circle can arise. Those that are in the archive were looked up by the client, which says how they
ended; all others are in the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from bucketq.errors import DependencyNotFoundError, QueueFullError, RejectedError
from bucketq.model.base import NewJob
from bucketq.model.effects.links.batch_changes import existing_batch, put_batch
from bucketq.model.effects.links.job_ends import give_up, why_failed
from bucketq.model.indexes.followed_jobs import held_bytes
from bucketq.model.records import JobRecord
from bucketq.model.state import State

_FORMAT = 2
"""The first format with a list of features."""
_SHOWN = 3  # An error names so many of the jobs that it did not find.


class Links(NamedTuple):
    """What the jobs of a push are linked to, as the state has it."""

    batches: dict[str, int]
    """How many jobs are added to each batch."""
    waiting: dict[str, NewJob]
    """The jobs with ``after``, by id, as they are added: with those that they must wait for."""
    failed: dict[str, str]
    """The jobs that will never run, by id, and why."""

    def resolved(self, jobs: tuple[NewJob, ...]) -> tuple[NewJob, ...]:
        """Return the jobs of the push as they are added."""
        return tuple([self.waiting.get(job.id, job) for job in jobs]) if self.waiting else jobs


_NO_LINKS = Links({}, {}, {})


def find_circle(state: State) -> list[str]:
    """Return the ids of jobs of which each waits for the next, and the last for the first.

    None of them would ever run. No push makes such a circle, but an edit by hand can.
    """
    waiting = {job.id: job.after for job in state.jobs if job.after and job.status == "queued"}
    clear: set[str] = set()
    for first, others in waiting.items():
        path = {} if first in clear else {first: iter(others)}
        while path:
            last = next(reversed(path))
            other = next((name for name in path[last] if name in waiting), None)
            if other is None:
                clear.add(last)
                del path[last]
            elif other in path:
                names = list(path)
                return names[names.index(other) :]
            elif other not in clear:
                path[other] = iter(waiting[other])
    return []


def circle_text(circle: Sequence[str]) -> str:
    """Say which jobs wait for each other."""
    others = circle[1:] if len(circle) <= _SHOWN else [*circle[1:_SHOWN], "..."]
    return f"{circle[0]} waits for {', which waits for '.join([*others, circle[0]])}"


def find_links(
    state: State, jobs: Sequence[NewJob], fresh: Sequence[NewJob], known: Mapping[str, str]
) -> Links:
    """Find what the ``fresh`` among the jobs of a push are linked to; nothing is changed.

    ``known`` has the ids of jobs that are there already, by those in the push.

    Raises:
        RejectedError: A batch is not open, a job is in neither queue nor archive, or too many wait.
        ColdRowsNeededError: A segment that decides it has not been read.
    """
    for job in fresh:
        if job.after or job.batch_id is not None:
            break
    else:
        return _NO_LINKS  # As in nearly every push.
    linked = [job for job in fresh if job.after or job.batch_id is not None]
    if state.settings.max_format < _FORMAT:
        raise RejectedError(
            f"batches and jobs that wait for others need max_format {_FORMAT}: run `bucketq "
            "upgrade` once every process of the queue has been upgraded"
        )
    batches = Counter(job.batch_id for job in linked if job.batch_id is not None)
    for batch in batches:
        _check_open(state, batch)
    links = Links(batches, {}, {})
    waiting = [job for job in linked if job.after]
    if waiting:
        _find_waiting(state, jobs, waiting, known, links)
        _check_held(state, [job for job in links.waiting.values() if job.after])
    return links


def add_links(state: State, links: Links, now: datetime) -> None:
    """Count the jobs that were added to batches, and end those that will never run."""
    if links is _NO_LINKS:
        return
    for name, count in links.batches.items():
        batch = state.batches.by_id[name]
        put_batch(state, replace(batch, jobs=batch.jobs + count))
    for job_id, error in links.failed.items():
        give_up(state, state.jobs.by_id[job_id], error, now)


def _check_open(state: State, name: str) -> None:
    batch = existing_batch(state, name)
    if batch.status != "open":
        raise RejectedError(f"batch {name} is {batch.status}: no more jobs can be added to it")


def _find_waiting(
    state: State,
    jobs: Sequence[NewJob],
    waiting: Sequence[NewJob],
    known: Mapping[str, str],
    links: Links,
) -> None:
    """Find what jobs wait for, and what became of that."""
    names = {known.get(name, name) for job in waiting for name in job.after}
    there, missing = find_jobs(state, names), dict[str, None]()
    places = {job.id: place for place, job in enumerate(jobs)}
    for job in waiting:
        left = []
        for name in job.after:
            other, end = there.get(known.get(name, name)), (job.ends or {}).get(name)
            is_new = other is None and name not in known and name in places
            if is_new and places[name] < places[job.id]:
                left.append(name)
                continue
            if other is None and end is None:
                missing[name] = None
                continue
            if other is None:
                reason = None if end else f"job {name}, which it was to follow, was not completed"
                is_over = True
            else:
                reason, is_over = why_failed(other), other.status in ("done", "dead")
            if not is_over or (reason is not None and job.on_failed is None):
                left.append(name)
            if reason is not None and job.on_failed is None:
                links.failed.setdefault(job.id, reason)
        on_failed = job.on_failed if left else None
        links.waiting[job.id] = replace(job, after=tuple(left), on_failed=on_failed, ends=None)
    if missing:
        raise _not_found(list(missing))


def find_jobs(state: State, names: Collection[str]) -> dict[str, JobRecord]:
    """Find jobs by their ids, wherever they are. Raises ``ColdRowsNeededError``."""
    by_id = state.jobs.by_id
    cold = state.cold.find([name for name in names if name not in by_id])
    found = {name: by_id[name] for name in names if name in by_id}
    return found | {name: job for name, ((_, job, _), _) in cold.items()}


def _check_held(state: State, jobs: Sequence[NewJob]) -> None:
    followed, settings = state.followed, state.settings
    if followed.held_count + len(jobs) > settings.max_held:
        raise QueueFullError(
            f"too many jobs wait for others: {followed.held_count:,} do, {settings.max_held:,} are "
            "allowed (max_held); try again when some of them run"
        )
    added = sum(held_bytes(job.after, len(job.payload)) for job in jobs)
    if followed.held_bytes + added > settings.max_held_bytes:
        raise QueueFullError(
            f"jobs that wait for others take {followed.held_bytes:,} bytes, "
            f"{settings.max_held_bytes:,} are allowed (max_held_bytes); make their payloads "
            "smaller, or try again when some of them run"
        )


def _not_found(missing: list[str]) -> DependencyNotFoundError:
    shown = ", ".join(missing[:_SHOWN])
    more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
    return DependencyNotFoundError(
        f"a job cannot wait for jobs that were not found: {shown}{more}; they are not in the "
        "queue, nor in its archive, where a token can look with the right read"
    )
