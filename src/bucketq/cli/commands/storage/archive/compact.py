"""``bucketq archive compact``: turn old archive files into a table of Parquet files."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
import typer

from bucketq.cli.parameters import Url
from bucketq.cli.parsing import now, parse_duration, parse_moment
from bucketq.cli.spark_start import Master, started
from bucketq.cli.terminal.output import Output, counted, size
from bucketq.cli.terminal.progress_bar import Bar
from bucketq.errors import InvalidRequestError


def run(
    out: Output,
    *,
    url: Url,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="From here on; by default from the start."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="Up to, not including; by default to the end."),
    ] = None,
    settled_after: Annotated[
        str,
        typer.Option(
            "--settled-after", metavar="DURATION", help="How long an hour must have been over."
        ),
    ] = "1h",
    master: Master = "local[*]",
) -> None:
    """Turn old archive files into Parquet, as a Delta table beside them.

    Each job is in it once, by date and kind. Everything that reads the archive reads both. It can
    be stopped at any moment, also by kill -9, and run again, also twice at once: no job is lost
    and none is doubled. It needs bucketq[spark] and Java.

    Examples:
        bucketq archive compact s3://bucket/jobs/queue.json
        bucketq archive compact s3://bucket/jobs/queue.json --to 2026-02-01
        bucketq archive compact s3://bucket/jobs/queue.json --master spark://10.0.0.7:7077
    """
    moment = now()
    begin = None if since is None else parse_moment(since, "--from", moment)
    end = None if until is None else parse_moment(until, "--to", moment)
    if begin is not None and end is not None and begin >= end:
        message = f"--from {since} is not before --to {until}"
        raise InvalidRequestError(message)
    age = timedelta(seconds=parse_duration(settled_after, "--settled-after"))
    with (
        started(out, url, master, "archive compact") as spark,
        Bar(out, None, "archive file") as bar,
    ):
        from bucketq.spark.archive.compact_archive import compact

        bar.begin("compacting", 0)
        done = compact(
            spark,
            url,
            since=begin,
            until=end,
            settled_after=age,
            on_progress=bar.show,
        )
    text = (
        f"{counted(done.jobs, 'job')} of {counted(done.archive_files, 'archive file')} compacted "
        f"into {counted(done.files, 'file')} ({size(done.size_bytes)})"
    )
    if done.repeated:
        text += f"; {counted(done.repeated, 'job')} stood there twice"
    if not done.archive_files:
        text = f"nothing to compact in hours that have been over for {settled_after}"
        text += " (--settled-after)"
    out.done(text, msgspec.to_builtins(done))
