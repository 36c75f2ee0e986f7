"""Arguments and options that several commands share, and how to write further ones."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def option(usage: str, text: str, **others: Any) -> Any:
    """Describe an option, like ``option("--kind -k KIND", "Only jobs of this kind.")``."""
    words = usage.split()
    metavar = None if words[-1].startswith("-") else words.pop()
    return typer.Option(*words, metavar=metavar, help=text, **others)


def argument(metavar: str, text: str) -> Any:
    """Describe an argument, like ``argument("JOB", "Id of the job.")``."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


Url = Annotated[
    str,
    argument(
        "URL",
        "Address of the queue, like file:///srv/jobs/queue.json or s3://bucket/queue.json; "
        "BUCKETQ_URL if omitted.",
    ),
]
JobId = Annotated[str, argument("JOB", "Id of the job.")]
Lease = Annotated[str, argument("LEASE", "The lease printed by `claim`.")]
Request = Annotated[
    str | None, option("--request TOKEN", "Retry a request whose outcome is unknown.")
]
Kinds = Annotated[
    list[str] | None, option("--kind -k KIND", "Only jobs of this kind; may be repeated.")
]
Jobs = Annotated[list[str] | None, argument("JOB", "Only these jobs; all if omitted.")]
Kind = Annotated[str | None, argument("KIND", "Only this kind; all if omitted.")]
Limit = Annotated[int, option("--limit -n", "Maximum number of jobs.", min=1)]
Since = Annotated[
    str, option("--since TIME", "Start: 2h (ago), 2026-02-15, or 2026-02-15T10:00:00Z.")
]
Until = Annotated[str | None, option("--until TIME", "End, exclusive; now by default.")]
Yes = Annotated[bool, option("--yes -y", "Do not ask for confirmation.")]
LimitTarget = Annotated[
    str, argument("TARGET", "What it holds for: kind=NAME, group=NAME, or group=* for every group.")
]
BatchId = Annotated[str, argument("BATCH", "Id of the batch, as shown by `ls`.")]
ScheduleName = Annotated[str, argument("NAME", "Name of the schedule, as shown by `ls`.")]
WorkerName = Annotated[
    str, argument("WORKER", "Name of the worker, or its id, as shown by `bucketq workers`.")
]
