"""Spark compacts an archive, and readers see the same jobs as before."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import bucketq
from bucketq.errors import CorruptStateError
from bucketq.spark.archive.compact_archive import CompactedArchive, compact
from bucketq.spark.session.spark_errors import translated
from tests.spark.finished_jobs import HOUR, archive, finished, hours_ago, listed

KINDS = ("index", "mail/out")


def some_jobs(url: str, count: int = 60) -> list[str]:
    """Archive jobs of six hours and two kinds; some are in two archive files."""
    jobs = [
        finished(f"job{place:03d}", hours_ago(3 + place % 6), KINDS[place % 2])
        for place in range(count)
    ]
    archive(url, jobs[: count // 2], jobs[count // 3 :])
    return sorted(job.id for job in jobs)


def by_name(url: str) -> list[str]:
    async def read() -> list[str]:
        async with bucketq.open_archive(url) as found:
            return [job.id async for job in found.jobs(hours_ago(9))]

    return sorted(asyncio.run(read()))


def by_table(spark: SparkSession, url: str, **options: str) -> list[str]:
    reader = spark.read.format("bucketq").option("table", "archive").options(**options)
    rows = reader.option("from", hours_ago(9).isoformat()).load(url).select("id").collect()
    return sorted(row.id for row in rows)


def test_every_job_is_read_once_before_and_after_compaction(spark: SparkSession, url: str) -> None:
    jobs = some_jobs(url)
    done = compact(spark, url)
    assert (done.jobs, done.repeated) == (60, 10)
    archive_files, files = listed(url)
    assert archive_files == []
    assert len(files) == done.files
    assert by_name(url) == jobs
    assert by_table(spark, url) == jobs
    assert by_table(spark, url, kind="mail/out") == [job for job in jobs if int(job[3:]) % 2]
    assert compact(spark, url) == CompactedArchive()


def test_progress_counts_the_archive_files_that_were_read(
    spark: SparkSession, file_url: str
) -> None:
    some_jobs(file_url)
    total = len(listed(file_url)[0])
    reports: list[tuple[int, int]] = []
    compact(spark, file_url, on_progress=lambda read, found: reports.append((read, found)))
    assert reports == sorted(reports)
    assert (reports[0], reports[-1]) == ((0, total), (total, total))
    assert reports.count((total, total)) > 1  # When all were read, and when that was published.


def test_spark_in_local_mode_runs_the_python_that_compacts(
    spark: SparkSession, file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/python")
    some_jobs(file_url)
    assert compact(spark, file_url).jobs == 60


def test_late_archive_files_are_compacted_by_the_next_run(spark: SparkSession, url: str) -> None:
    jobs = some_jobs(url)
    compact(spark, url)
    archive(url, [finished("job000", hours_ago(3)), finished("job900", hours_ago(3))])
    assert by_name(url) == [*jobs, "job900"]
    done = compact(spark, url)
    assert (done.jobs, done.repeated) == (1, 1)
    assert listed(url)[0] == []
    assert by_table(spark, url) == [*jobs, "job900"]


def test_only_the_range_that_was_asked_for_is_compacted(spark: SparkSession, file_url: str) -> None:
    some_jobs(file_url)
    until = hours_ago(5).replace(minute=0)
    compact(spark, file_url, since=until - 2 * HOUR, until=until)
    hours = {key.split("/")[-2] for key in listed(file_url)[0]}
    assert hours == {f"{hours_ago(ago):%Y-%m-%dT%H}" for ago in (3, 4, 5, 8)}


def test_a_damaged_archive_file_is_named_and_nothing_is_deleted(
    spark: SparkSession, file_url: str, tmp_path: Path
) -> None:
    some_jobs(file_url)
    before, _ = listed(file_url)
    damaged = tmp_path / before[0]
    damaged.write_bytes(damaged.read_bytes() + b"{")
    with pytest.raises(CorruptStateError, match=f"{damaged.name}, line"):
        compact(spark, file_url)
    assert listed(file_url)[0] == before


def test_an_error_of_spark_is_translated_to_a_sentence(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="nothing") as caught:
        spark.sql("select nothing from nowhere").collect()
    text = str(translated(caught.value))
    assert text.startswith("spark does not understand it: ")
    assert "\n" not in text


# Every run kills compactions and runs two at once, without Spark: `integration/test_compaction`. A
# command with a Spark of its own is in `test_a_signal_lets_handlers_finish_and_claims_no_more`.
@pytest.mark.full
def test_a_command_that_is_killed_beside_another_loses_nothing(
    spark_environ: dict[str, str], file_url: str, tmp_path: Path
) -> None:
    jobs = some_jobs(file_url)
    command = [sys.executable, "-m", "bucketq.cli", "archive", "compact", file_url, "--json"]
    environ = {**os.environ, **spark_environ}
    doomed, other = (
        subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    )
    while doomed.poll() is None and not listed(file_url)[1]:
        time.sleep(0.01)
    doomed.kill()
    doomed.communicate()
    assert by_name(file_url) == jobs
    _, errors = other.communicate(timeout=170)
    assert other.returncode == 0, errors
    assert errors == b"starting Spark\n"
    assert by_name(file_url) == jobs
    assert listed(file_url)[0] == []
    assert list(tmp_path.glob("queue/archive/compacted/_delta_log/*.json"))
