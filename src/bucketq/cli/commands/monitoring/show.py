"""``bucketq show``: show one job, or what a queue was."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Annotated, Any

import msgspec

from bucketq.cli.job_listing import describe_progress
from bucketq.cli.limit_texts import describe, limits_of
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url, argument
from bucketq.cli.parsing import now
from bucketq.cli.past_versions import At, read_past
from bucketq.cli.setting_table import print_settings
from bucketq.cli.terminal.output import Output, age, counted_jobs, moment, plain
from bucketq.cli.terminal.text_table import Column
from bucketq.errors import InvalidRequestError, JobNotFoundError
from bucketq.model.operations import Snapshot
from bucketq.model.records import JobRecord
from bucketq.model.settings import Settings
from bucketq.queue.job import Job
from bucketq.queue.queue import Queue


async def run(
    out: Output,
    *,
    url: Url,
    job: Annotated[str | None, argument("JOB", "Id of the job; may be omitted with --at.")] = None,
    at: At = None,
) -> None:
    """Show one job: its fields, payload, result and errors.

    With --at it is shown as it was then, without a lease, if the queue has a history. Without a
    job, --at shows what the queue was: how many jobs it had, what was paused, and its settings.

    Examples:
        bucketq show file:///srv/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K
        bucketq show file:///srv/jobs/queue.json my-job --json | jq .payload
        bucketq show file:///srv/jobs/queue.json my-job --at 2h
        bucketq show file:///srv/jobs/queue.json --at 1200
    """
    if job is None and at is None:
        raise InvalidRequestError("Missing argument 'JOB': give the id of a job, or --at")
    async with open_queue(url, out.timeout_s, reads_all=at is not None) as queue:
        if job is None:
            _print_queue(out, await read_past(queue, at or "", "--at"))
            return
        found = await queue.get(job) if at is None else await _find(queue, job, at)
        limits = await limits_of(queue, found) if at is None and not out.json else []
    if out.json:
        out.value(found.record)
        return
    rows = [
        (name.replace("_", " "), moment(value) if isinstance(value, datetime) else value)
        for name, value in _fields(found.record)
    ]
    if found.status == "running" and found.heartbeat_at is not None:
        rows.append(("silent", age(found.heartbeat_at, now())))
    rows += [("limited", f"{limit.target}: {describe(limit)}") for limit in limits]
    out.table([Column("FIELD"), Column("VALUE", flexible=True)], rows)
    for failure in found.errors:
        print()
        out.result(
            f"attempt {failure.attempt} {failure.cause} at {moment(failure.at)}: {failure.error}",
            None,
        )
    _print_json("payload", found.record.payload)
    if bytes(found.record.result):
        _print_json("result", found.record.result)


async def _find(queue: Queue[Any], job_id: str, at: str) -> Job[Any]:
    """Find a job in an earlier version."""
    past = await read_past(queue, at, "--at")
    for job in past.jobs:
        if job.id == job_id:
            return Job(job, Any)
    raise JobNotFoundError(f"the queue had no job {job_id!r} at version {past.version}")


def _print_queue(out: Output, past: Snapshot) -> None:
    """Print what a queue was at a version."""
    counts = Counter[str](job.status for job in past.jobs)
    if out.json:
        names = Settings.__struct_fields__
        out.value(
            {
                "version": past.version,
                "incarnation": past.incarnation,
                "at": past.at,
                "jobs": counts,
                "paused": past.paused,
                "paused_kinds": past.paused_kinds,
                "settings": {name: plain(getattr(past.settings, name)) for name in names},
            }
        )
        return
    paused = "all kinds" if past.paused else ", ".join(past.paused_kinds) or "nothing"
    rows = [
        ("version", past.version),
        ("at", moment(past.at)),
        ("jobs", counted_jobs(counts)),
        ("paused", paused),
    ]
    out.table([Column("FIELD"), Column("VALUE", flexible=True)], rows)
    print()
    print_settings(out, past.settings)


def _fields(record: JobRecord) -> list[tuple[str, object]]:
    """The fields of a record, except those that are shown separately."""
    # silent_s is what a broker last recorded, which is older than what is shown.
    apart = {"payload", "result", "errors", "backoff", "tags", "silent_s"}
    shown: list[tuple[str, object]] = []
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name == "tags" and value:
            shown.append((name, " ".join(f"{tag}={text}" for tag, text in value.items())))
        elif name == "backoff" and value is not None:
            shown.append((name, msgspec.json.encode(value).decode()))
        elif name == "progress" and value is not None:
            shown.append((name, describe_progress(value)))
        elif name not in apart and value is not None and value is not False and value != "":
            shown.append((name, value))
    return shown


def _print_json(title: str, raw: msgspec.Raw) -> None:
    print(f"\n{title}:")
    print(msgspec.json.format(bytes(raw), indent=2).decode())
