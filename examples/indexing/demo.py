"""The whole pipeline in a minute: write, index on Spark, kill the broker, search, compact, report.

Everything is real: a broker in a separate process, which is killed with ``kill -9`` when half of
the segments are indexed; Spark on this machine; thousands of documents. In the end it counts: no
job may be lost or done twice, and searches must return what they did before any was indexed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

import bucketq
import bucketq.spark
from bucketq.errors import InvalidRequestError
from bucketq.spark.archive.archive_report import ArchiveReport, report
from bucketq.spark.archive.compact_archive import compact
from bucketq.spark.archive.report_page import page
from bucketq.spark.session.command_session import command_session, require_spark
from bucketq.worker.counters import WorkerCounters
from examples.indexing import corpus
from examples.indexing.console import Watch, console, coverage, say, show, waiting
from examples.indexing.location import open_location
from examples.indexing.pipeline import Written, indexed, run_jobs, write_corpus
from examples.indexing.processes import Broker, WebPage
from examples.indexing.search import Answer, search
from examples.indexing.tasks import worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = (
    ("python", "decode json with a default for unknown objects"),
    ("guides", "what happens when a broker is killed"),
    ("code", "compare-and-set conflict after a lost answer"),
)
Answers = dict[tuple[str, str], Answer]


def demo(folder: Path, master: str, limit: int | None) -> int:
    """Run all steps in a folder, and return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    _clear(folder)
    url = (folder / "queue.json").as_uri()
    say("queue", url)
    advice = _what_is_missing(master)
    # What clients log about the killed broker is reported here instead.
    logging.getLogger("bucketq").setLevel(logging.ERROR)
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(url, folder / "broker.log"))
        written = _write(url, limit)
        web_page = stack.enter_context(WebPage(url, folder / "dashboard.log"))
        before = asyncio.run(_ask(url))
        say("search", "nothing is indexed yet, and everything is found in the log:")
        _show_first(before)
        spark = None
        if advice is None:
            say("spark", f"starting on {master}")
            with waiting("starting"):
                spark = stack.enter_context(command_session(master, "indexing"))
        _index(url, spark, broker, written.segments)
        after = asyncio.run(_ask(url))
        say("search", "the same searches, now that everything is indexed:")
        for (namespace, query), answer in after.items():
            show(namespace, query, answer)
        console.print()
        asyncio.run(_flush(url))
        problems = list(asyncio.run(_discrepancies(url, written, before, after)))
        if not broker.is_killed_half_way:
            problems.append("the jobs were done before the broker could be killed")
        if spark is not None:
            problems += _measure(spark, url, folder, len(written.jobs))
        problems += web_page.problems()
    for problem in problems[:10]:
        print(f"WRONG: {problem}", file=sys.stderr)
    if advice is not None:
        say("left out", f"Spark, the archive's table and the report: {advice}")
    python = os.path.relpath(sys.executable)
    hint = f'{python} -m examples.indexing --url {url} search python "parse a date"'
    say("try", hint)
    print(
        f"\n{f'{len(problems)} things are wrong' if problems else 'nothing was lost or duplicated'}"
    )
    return 1 if problems else 0


def _clear(folder: Path) -> None:
    """Remove what an earlier demo has left."""
    (folder / "queue.json").unlink(missing_ok=True)
    for name in ("queue", "wal", "index"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _what_is_missing(master: str) -> str | None:
    """Return why Spark cannot be used, and what to do about it, or None if it can."""
    if master == "none":
        return "disabled by --spark none"
    try:
        require_spark(master)
    except InvalidRequestError as error:
        return str(error)
    return None


def _write(url: str, limit: int | None) -> Written:
    began = time.perf_counter()
    asyncio.run(_configure(url))
    with waiting("writing") as progress:
        written = asyncio.run(write_corpus(url, corpus.NAMESPACES, limit, progress))
    took_s = time.perf_counter() - began
    counts = ", ".join(f"{count:,} of {name}" for name, count in written.documents.items())
    say(
        "wrote",
        f"{written.documents.total():,} documents ({counts}) in {written.segments} segments, and "
        f"pushed {len(written.jobs)} jobs, in {took_s:.1f} s",
    )
    return written


async def _configure(url: str) -> None:
    """Let jobs go to the archive soon, so that there are files to compact in the end."""
    async with bucketq.connect(url, launch="never") as queue:
        await queue.configure(archive_after_s=1.0)


async def _ask(url: str) -> Answers:
    async with open_location(url) as location:
        return {(name, query): await search(location, name, query, 3) for name, query in QUERIES}


def _show_first(answers: Answers) -> None:
    (namespace, query), answer = next(iter(answers.items()))
    show(namespace, query, answer)
    console.print()


def _index(url: str, spark: SparkSession | None, broker: Broker, segments: int) -> None:
    """Run the jobs, while the broker is killed."""
    worker.configure(url)

    def run() -> WorkerCounters:
        if spark is not None:
            # In small batches, so that there is a middle at which the broker can be killed.
            few = max(2, segments // 12)
            return bucketq.spark.run(spark, url, worker, burst=True, batch_jobs=few)
        worker.configure(concurrency=1)
        worker.run_sync(burst=True)
        return worker.counters

    spark_option = "" if spark is None else ' --spark "local[2]"'
    say("indexing", f"bucketq work examples.indexing.tasks:worker{spark_option} --url {url}")
    began = time.perf_counter()
    with Watch(url, broker.kill_at_half):
        ends = run_jobs(url, run)
    took_s = time.perf_counter() - began
    text = ", ".join(f"{count} {end}" for end, count in ends.items())
    manifests = asyncio.run(indexed(url)).values()
    say(
        "indexed",
        f"{sum(each.documents for each in manifests):,} documents in "
        f"{sum(len(each.parts) for each in manifests)} parts, in {took_s:.1f} s; attempts: {text}",
    )


async def _flush(url: str) -> None:
    async with bucketq.connect(url, launch="never") as queue:
        await queue.flush_archive()


async def _discrepancies(url: str, written: Written, before: Answers, after: Answers) -> list[str]:
    """Return what is wrong in log, index and archive."""
    wrong = []
    covered, total = await coverage(url)
    if covered != total or total != written.segments:
        wrong.append(f"{written.segments} segments were written and {covered} are indexed")
    documents = sum(each.documents for each in (await indexed(url)).values())
    if documents != written.documents.total():
        wrong.append(f"{written.documents.total()} documents were written, {documents} indexed")
    since = datetime.now(UTC) - timedelta(hours=2)
    async with bucketq.open_archive(url) as archive:
        jobs = {job.id: job async for job in archive.jobs(since)}
    if lost := written.jobs - jobs.keys():
        wrong.append(f"{len(lost)} of {len(written.jobs)} jobs are not in the archive")
    wrong += [
        f"{job} ended as {job.outcome}" for job in jobs.values() if job.outcome != "completed"
    ]
    for question, answer in after.items():
        if answer.hits != before[question].hits or answer.tail:
            wrong.append(f"{question} had another answer before it was indexed")
    say(
        "counted",
        f"{len(jobs)} jobs in the archive, {len(written.jobs)} of them pushed by the writer; "
        f"{covered} of {total} segments indexed",
    )
    return wrong


def _measure(spark: SparkSession, url: str, folder: Path, jobs: int) -> Iterator[str]:
    """Compact and measure the archive, in the Spark session that exists already."""
    # Usually it takes past hours only; here it includes the current one.
    say("compact", f"bucketq archive compact {url}, here with jobs of this hour")
    with waiting("compacting"):
        done = compact(spark, url, settled_after=timedelta(hours=-1))
    say(
        "",
        f"{done.jobs} jobs of {done.archive_files} archive files are now in {done.files} Parquet "
        "files, each job once",
    )
    if done.jobs < jobs:
        yield f"{jobs} jobs were pushed, and {done.jobs} are compacted"
    html = folder / "report.html"
    say("report", f"bucketq archive report {url} --from 1h --html {html}")
    until = datetime.now(UTC) + timedelta(seconds=1)
    with waiting("measuring"):
        found = report(spark, url, until - timedelta(hours=2), until)
    html.write_text(page(found, url), "utf-8")
    _show_report(found)
    say("page", html.as_uri())
    if found.total.jobs != done.jobs:
        yield f"{done.jobs} jobs are compacted, and the report has {found.total.jobs}"


def _show_report(found: ArchiveReport) -> None:
    table = Table("kind", *("jobs", "retries", "wait p50", "wait p95", "run p50", "run p95"))
    for line in found.kinds:
        numbers = line.numbers
        times = [*numbers.wait_s[:2], *numbers.run_s[:2]]
        counts = (f"{numbers.jobs:,}", f"{numbers.retries:,}")
        table.add_row(line.kind, *counts, *(f"{each:.2f} s" for each in times))
    console.print(table)
