"""``bucketq archive report``: report throughput, latency and failures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bucketq.cli.file_writing import write_file
from bucketq.cli.parameters import Url, option
from bucketq.cli.parsing import moments
from bucketq.cli.spark_start import From, Master, To, started
from bucketq.cli.terminal.output import Output, counted, printable
from bucketq.cli.terminal.text_table import Column
from bucketq.errors import InvalidRequestError

if TYPE_CHECKING:
    from bucketq.spark.archive.archive_report import ArchiveReport, JobNumbers

# Reasons that are printed, so that they fit on a screen; --json has all of them.
_MOST_REASONS = 10


def run(
    out: Output,
    *,
    url: Url,
    since: From = "24h",
    until: To = None,
    html: Annotated[
        Path | None, option("--html FILE", "Write an HTML page with charts to this file.")
    ] = None,
    parquet: Annotated[
        Path | None, option("--parquet DIR", "Write the tables to this folder, as Parquet.")
    ] = None,
    master: Master = "local[*]",
) -> None:
    """Report throughput, latency, retries and failures.

    WAIT is the time from push to claim, for jobs that were claimed once; RUN is the time from the
    last claim to the end. Reasons are the first lines of errors, with numbers and ids replaced by
    #. With --json the output includes the numbers of each hour. It needs bucketq[spark] and Java.

    Examples:
        bucketq archive report s3://bucket/jobs/queue.json
        bucketq archive report s3://bucket/jobs/queue.json --from 7d --html report.html
        bucketq archive report s3://bucket/jobs/queue.json --from 2026-02-01 --parquet tables
    """
    begin, end = moments(since, until, "--from", "--to")
    if html is not None and not html.absolute().parent.is_dir():
        message = f"--html {html}: there is no folder {html.parent}; create it, or name another"
        raise InvalidRequestError(message)
    with started(out, url, master, "archive report") as spark:
        from bucketq.spark.archive.archive_report import report as measure
        from bucketq.spark.archive.report_page import page

        found = measure(spark, url, begin, end, parquet)
    if html is not None:
        write_file(html, [page(found, url).encode()], overwrite=True)
        out.note(f"wrote {html}")
    if out.json:
        out.value(found)
    else:
        _print_report(out, found)


def _print_report(out: Output, found: ArchiveReport) -> None:
    if not found.total.jobs:
        print("no jobs finished in this time range")
        return
    from bucketq.spark.archive.svg_charts import duration

    def spelled(values: Sequence[float]) -> list[str]:
        return [duration(value) for value in values] or ["", "", ""]

    def cells(name: str, numbers: JobNumbers) -> tuple[object, ...]:
        counts = (numbers.jobs, numbers.dead, numbers.retries)
        return (
            name,
            *(f"{each:,}" for each in counts),
            *spelled(numbers.wait_s),
            *spelled(numbers.run_s),
        )

    titles = ["JOBS", "DEAD", "RETRIES", "WAIT p50", "p95", "p99", "RUN p50", "p95", "p99"]
    columns = [Column("KIND"), *(Column(title, right=True) for title in titles)]
    kinds = sorted(found.kinds, key=lambda line: -line.numbers.jobs)
    rows = [cells(line.kind or "", line.numbers) for line in kinds]
    out.table(columns, [*rows, cells("all", found.total)])
    if found.reasons:
        print(printable(f"\nWhy attempts failed ({counted(len(found.reasons), 'reason')}):"))
        out.table(
            [Column("KIND"), Column("TIMES", right=True), Column("REASON", flexible=True)],
            [(each.kind, f"{each.count:,}", each.reason) for each in found.reasons[:_MOST_REASONS]],
        )
