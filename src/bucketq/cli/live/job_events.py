"""What happened to jobs, derived from the changes of a queue.

A ``Change`` has the requests of a version in order, and of each job the fields that differ after
all of them. So the last request about a job is judged by these fields, and those before it by what
they asked for: a job may be pushed and claimed by the same version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec import Struct

from bucketq.queue.change import Change, ChangeRequest, JobChange

_QUEUE_EVENTS = {"pause": "paused", "resume": "resumed", "configure": "configured"}
_NAMES = {
    "claim": "claimed",
    "claimbatch": "claimed",
    "fail": "failed",
    "release": "released",
    "releasemany": "released",
    "releasebatch": "released",
    "removeconsumer": "released",
    "withdraw": "released",
    "settlebatch": "failed",
    "expire": "lost",
    "cancel": "cancelling",
    "canceljobs": "cancelling",
    "redrive": "redriven",
    "purge": "purged",
}
"""Events by the request, if what became of the job does not decide."""
_ENDS = {"completed": "completed", "cancelled": "cancelled", "expired": "expired", "dead": "purged"}
"""Events by the outcome of a job; a dead job has one when it leaves the queue."""
_LEFT_OUT = frozenset({"heartbeat", "persist", "archived"})
"""Requests that are no events: they say that a worker is there, or move finished jobs."""
_WITH_ERROR = frozenset({"failed", "dead", "lost"})


class JobEvent(Struct, kw_only=True, omit_defaults=True):
    """One event, as ``bucketq tail --json`` prints it."""

    version: int
    """The version of the queue that it is part of."""
    at: datetime
    event: str
    job: str = ""
    """Empty: it is about the queue, or about all jobs of a kind."""
    kind: str = ""
    """Empty: it is not known, or it is about the queue."""
    attempt: int = 0
    worker: str = ""
    error: str = ""
    by: str = ""
    """Who sent the request, if that is known."""
    paused: tuple[str, ...] | None = None
    """Of ``paused`` and ``resumed``: the kinds that are paused since; ``*`` means all."""


def events_of(change: Change) -> Iterator[JobEvent]:
    """Yield what a version did to jobs, and the pauses and settings that it changed, in order."""
    jobs = {job.id: job for job in change.jobs}
    left = Counter(name for request in change.requests for name in request.jobs)
    seen = set[str]()
    for request in change.requests:
        if request.verb in _QUEUE_EVENTS:
            event = _event(change, request, _QUEUE_EVENTS[request.verb])
            if "paused" in change.head and request.verb != "configure":
                head = change.head
                event.paused = ("*",) if head["paused"] else tuple(head["paused_kinds"])
            yield event
        for name in request.jobs:
            left[name] -= 1
            job = jobs.get(name)
            is_pushed = job is not None and job.is_new and name not in seen
            seen.add(name)
            found = "pushed" if is_pushed else _name_of(request.verb, job, is_last=not left[name])
            if found is not None:
                yield _event(change, request, found, name, job)


def _name_of(verb: str, job: JobChange | None, *, is_last: bool) -> str | None:
    """Return what a request did to a job that was there before; None: nothing of interest."""
    fields = {} if job is None else job.fields
    if verb in _LEFT_OUT:
        return None
    if is_last and (outcome := fields.get("outcome")) is not None:
        return _ENDS[outcome]
    if is_last and fields.get("status") == "dead":
        return "dead"
    if "after" in fields and _NAMES.get(verb) != "claimed" and not _is_new(job):
        return None if fields["after"] else "ready"
    if "snoozes" in fields and verb == "fail":
        return "snoozed"
    return _NAMES.get(verb, "changed")


def _is_new(job: JobChange | None) -> bool:
    return job is not None and job.is_new


def _event(
    change: Change,
    request: ChangeRequest,
    name: str,
    job_id: str = "",
    job: JobChange | None = None,
) -> JobEvent:
    fields: dict[str, Any] = {} if job is None else job.fields
    event = JobEvent(version=change.version, at=change.at, event=name, job=job_id, by=request.by)
    event.kind = fields.get("kind", "")
    if name == "claimed":
        event.attempt, event.worker = fields.get("attempt", 0), fields.get("worker") or ""
    elif name in _WITH_ERROR and fields.get("errors"):
        failure = fields["errors"][-1]
        event.attempt, event.worker = failure["attempt"], failure.get("worker") or ""
        event.error = failure["error"]
    return event
