"""``bucketq show``: show one job, or what a queue was."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from bucketq.cli.file_writing import write_file
from bucketq.cli.job_listing import describe_body, describe_progress
from bucketq.cli.limit_texts import describe, limits_of
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url, argument, option
from bucketq.cli.parsing import now
from bucketq.cli.past_versions import At, read_past
from bucketq.cli.setting_table import print_settings
from bucketq.cli.terminal.output import Output, age, counted_jobs, moment, plain
from bucketq.cli.terminal.text_table import Column
from bucketq.errors import InvalidRequestError, JobNotFoundError
from bucketq.model.operations import Snapshot
from bucketq.model.records import Encoding, JobRecord
from bucketq.model.settings import Settings
from bucketq.queue.job import Job
from bucketq.queue.large.payload_stream import PayloadStream
from bucketq.queue.queue import Queue


async def run(
    out: Output,
    *,
    url: Url,
    job: Annotated[str | None, argument("JOB", "Id of the job; may be omitted with --at.")] = None,
    at: At = None,
    payload: Annotated[bool, option("--payload", "Write only the payload, as it is.")] = False,
    result: Annotated[bool, option("--result", "Write only the result, as it is.")] = False,
    output: Annotated[
        Path | None, option("--output -o FILE", "With --payload or --result: write it to a file.")
    ] = None,
    force: Annotated[bool, option("--force", "Overwrite the file.")] = False,
) -> None:
    """Show one job: its fields, payload, result and errors.

    A payload or result that is too large for its job is shown by its size and its name; --payload
    and --result write all of it, in parts: JSON, or the bytes that were pushed.

    With --at it is shown as it was then, without a lease, if the queue has a history. Without a
    job, --at shows what the queue was: how many jobs it had, what was paused, and its settings.

    Examples:
        bucketq show file:///srv/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K
        bucketq show file:///srv/jobs/queue.json my-job --json | jq .payload
        bucketq show file:///srv/jobs/queue.json my-job --payload -o film.mov
        bucketq show file:///srv/jobs/queue.json my-job --at 2h
        bucketq show file:///srv/jobs/queue.json --at 1200
    """
    _check_options(job, payload=payload, result=result, output=output)
    if job is None and at is None:
        raise InvalidRequestError("Missing argument 'JOB': give the id of a job, or --at")
    async with open_queue(url, out.timeout_s, reads_all=at is not None) as queue:
        if job is None:
            _print_queue(out, await read_past(queue, at or "", "--at"))
            return
        found = await queue.get(job) if at is None else await _find(queue, job, at)
        if payload or result:
            await _write_body(queue, found, output, of_result=result, overwrite=force)
            return
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
    _print_body("payload", found.record.payload, found.record.payload_encoding)
    if bytes(found.record.result):
        _print_body("result", found.record.result, found.record.result_encoding)


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
        elif name == "after" and value:
            shown.append((name, " ".join(value)))
        elif name == "done_batch" and value is not None:
            shown.append((name, f"{value.id}: {value.completed} of {value.jobs} completed"))
        elif name not in apart and not any(value is each for each in (None, False, "", ())):
            shown.append((name, value))
    return shown


def _print_body(title: str, raw: msgspec.Raw, encoding: Encoding | None) -> None:
    print(f"\n{title}:")
    print(describe_body(raw, encoding) or msgspec.json.format(bytes(raw), indent=2).decode())


def _check_options(job: str | None, *, payload: bool, result: bool, output: Path | None) -> None:
    if payload and result:
        raise InvalidRequestError("give --payload or --result, not both")
    if (payload or result) and job is None:
        raise InvalidRequestError("--payload and --result need the id of a job")
    if output is not None and not payload and not result:
        raise InvalidRequestError("-o needs --payload or --result")


async def _write_body(
    queue: Queue[Any], job: Job[Any], output: Path | None, *, of_result: bool, overwrite: bool
) -> None:
    """Write a payload or result to a file, or to the standard output."""
    chunks = queue.open_result(job) if of_result else queue.open_payload(job)
    if output is None:
        async for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    stream = PayloadStream(chunks, asyncio.get_running_loop())
    await asyncio.to_thread(write_file, output, stream, overwrite=overwrite)
