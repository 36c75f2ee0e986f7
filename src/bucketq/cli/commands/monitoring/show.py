"""``bucketq show``: show one job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from bucketq.cli.job_listing import describe_progress
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import JobId, Url
from bucketq.cli.parsing import now
from bucketq.cli.past_versions import At, read_past
from bucketq.cli.terminal.output import Output, age, moment
from bucketq.cli.terminal.text_table import Column
from bucketq.errors import JobNotFoundError
from bucketq.model.records import JobRecord
from bucketq.queue.job import Job
from bucketq.queue.queue import Queue


async def run(out: Output, *, url: Url, job: JobId, at: At = None) -> None:
    """Show one job: its fields, payload, result and errors.

    With --at it is shown as it was then, without a lease, if the queue has a history.

    Examples:
        bucketq show file:///srv/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K
        bucketq show file:///srv/jobs/queue.json my-job --json | jq .payload
        bucketq show file:///srv/jobs/queue.json my-job --at 2h
    """
    async with open_queue(url, out.timeout_s, reads_all=at is not None) as queue:
        found = await queue.get(job) if at is None else await _find(queue, job, at)
    if out.json:
        out.value(found.record)
        return
    rows = [
        (name.replace("_", " "), moment(value) if isinstance(value, datetime) else value)
        for name, value in _fields(found.record)
    ]
    if found.status == "running" and found.heartbeat_at is not None:
        rows.append(("silent", age(found.heartbeat_at, now())))
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
        elif name not in apart and value is not None and value is not False:
            shown.append((name, value))
    return shown


def _print_json(title: str, raw: msgspec.Raw) -> None:
    print(f"\n{title}:")
    print(msgspec.json.format(bytes(raw), indent=2).decode())
