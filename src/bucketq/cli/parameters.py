"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="Address of the queue, like file:///srv/jobs/queue.json or s3://bucket/queue.json; "
        "BUCKETQ_URL in the environment stands in for it.",
        show_default=False,
    ),
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.", show_default=False)]
Lease = Annotated[
    str,
    typer.Argument(metavar="LEASE", help="The lease that `claim` handed out.", show_default=False),
]
Request = Annotated[
    str | None,
    typer.Option(
        "--request", metavar="TOKEN", help="Repeat a request whose outcome stayed unknown."
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", "-k", metavar="KIND", help="Only this kind; may be repeated."),
]
Jobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help="Only these jobs; none: all.", show_default=False),
]
Kind = Annotated[
    str | None,
    typer.Argument(metavar="KIND", help="Only this kind; none: all.", show_default=False),
]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="From: 2h (ago), 2026-02-15, or 2026-02-15T10:00:00Z."
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Up to, not including; by default now."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
