"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="Address of the queue, like file:///srv/jobs/queue.json or s3://bucket/queue.json; "
        "BUCKETQ_URL if omitted.",
        show_default=False,
    ),
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.", show_default=False)]
Lease = Annotated[
    str,
    typer.Argument(metavar="LEASE", help="The lease printed by `claim`.", show_default=False),
]
Request = Annotated[
    str | None,
    typer.Option("--request", metavar="TOKEN", help="Retry a request whose outcome is unknown."),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", "-k", metavar="KIND", help="Only jobs of this kind; may be repeated."),
]
Jobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help="Only these jobs; all if omitted.", show_default=False),
]
Kind = Annotated[
    str | None,
    typer.Argument(metavar="KIND", help="Only this kind; all if omitted.", show_default=False),
]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Start: 2h (ago), 2026-02-15, or 2026-02-15T10:00:00Z."
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="End, exclusive; now by default."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
