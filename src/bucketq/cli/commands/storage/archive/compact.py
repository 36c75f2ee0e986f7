"""``bucketq archive compact``: convert old archive files to Parquet."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec

from bucketq.cli.parameters import Url, option
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
        str | None, option("--from TIME", "Start of the time range; the beginning by default.")
    ] = None,
    until: Annotated[
        str | None, option("--to TIME", "End of the time range, exclusive; the end by default.")
    ] = None,
    settled_after: Annotated[
        str, option("--settled-after DURATION", "Only hours that ended this long ago.")
    ] = "1h",
    master: Master = "local[*]",
) -> None:
    """Convert old archive files to a Delta table of Parquet files.

    The table is partitioned by date and kind and has each job once. Commands that read the archive
    read both. It can be interrupted at any time, even by kill -9, run again, and run twice at
    once: no job is lost or duplicated. It needs bucketq[spark] and Java.

    Examples:
        bucketq archive compact s3://bucket/jobs/queue.json
        bucketq archive compact s3://bucket/jobs/queue.json --to 2026-02-01
        bucketq archive compact s3://bucket/jobs/queue.json --master spark://10.0.0.7:7077
    """
    moment = now()
    begin = None if since is None else parse_moment(since, "--from", moment)
    end = None if until is None else parse_moment(until, "--to", moment)
    if begin is not None and end is not None and begin >= end:
        raise InvalidRequestError(f"--from {since} is not before --to {until}")
    age = timedelta(seconds=parse_duration(settled_after, "--settled-after"))
    with (
        started(out, url, master, "archive compact") as spark,
        Bar(out, None, "archive file") as bar,
    ):
        from bucketq.spark.archive.compact_archive import compact

        bar.begin("compacting", 0)
        done = compact(spark, url, since=begin, until=end, settled_after=age, on_progress=bar.show)
    text = (
        f"{counted(done.jobs, 'job')} of {counted(done.archive_files, 'archive file')} compacted "
        f"into {counted(done.files, 'file')} ({size(done.size_bytes)})"
    )
    if done.repeated:
        text += f"; {counted(done.repeated, 'duplicate')} dropped"
    if not done.archive_files:
        text = f"nothing to compact in hours that ended at least {settled_after} ago"
        text += " (--settled-after)"
    out.done(text, msgspec.to_builtins(done))
