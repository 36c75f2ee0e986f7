"""Every feature of bucketq on Spark in a few lines, to be tried in every place where Spark runs.

Each function works on a session and in a folder of its own, and raises if something is wrong.
Those of ``COMMANDS`` start their own session, as a command on a terminal does.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import bucketq
import bucketq.spark
from bucketq import InvalidRequestError, JobSpec, Worker
from bucketq.cli.app import app
from bucketq.model.records import JobRecord
from bucketq.spark.archive.archive_report import report
from bucketq.spark.archive.compact_archive import compact
from bucketq.spark.archive.replay_jobs import replay
from bucketq.spark.handlers.batch_runner import BatchFailed
from bucketq.spark.handlers.executor_task import TaskSettings
from bucketq.spark.handlers.pickled_handlers import pickle_handlers
from bucketq.spark.handlers.spark_cluster import SparkCluster
from bucketq.worker.handlers import bind
from tests.spark import sample_handlers
from tests.spark.finished_jobs import archive, finished, hours_ago, listed

DEADLINE_S = 150
DEAD = "outcome = 'dead' and error like '%timeout%'"
TASKS = """
import bucketq
from tests.spark import sample_handlers

worker = bucketq.Worker(concurrency=2, mode="direct")
worker.handler("double")(sample_handlers.double)
"""


def fresh(folder: Path, *specs: JobSpec[Any]) -> str:
    """A queue with jobs, in which those that are done can be counted."""
    url = (folder / "queue.json").as_uri()
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(archive_after_s=3600, spill_bytes=16 << 20)
        queue.push_many(specs)
    return url


def numbered(count: int) -> list[JobSpec[Any]]:
    return [JobSpec(kind="double", payload={"number": n}, id=f"job{n}") for n in range(count)]


def records(url: str) -> list[JobRecord]:
    with bucketq.connect_sync(url, mode="direct", create=False) as queue:
        return list(queue.snapshot().jobs)


def statuses(url: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in records(url):
        found[job.status] = found.get(job.status, 0) + 1
    return found


def finished_jobs(folder: Path) -> str:
    """An archive of ten jobs, one of which died of a timeout."""
    url = fresh(folder)
    jobs = [finished(f"job{n}", hours_ago(3 + n % 2)) for n in range(9)]
    archive(url, [*jobs, finished("job9", hours_ago(3), "mail", "a timeout")])
    return url


def read(spark: SparkSession, folder: Path) -> None:
    url = fresh(folder, *numbered(7))
    reader = spark.read.format("bucketq").option("status", "queued").option("numPartitions", 3)
    rows = reader.load(url).select("id", "payload").collect()
    assert {row.id: json.loads(row.payload)["number"] for row in rows} == {
        f"job{n}": n for n in range(7)
    }


def read_deep(spark: SparkSession, folder: Path) -> None:
    """Jobs in segments, which executors read by themselves."""
    url = (folder / "queue.json").as_uri()
    with bucketq.connect_sync(url, mode="embedded") as queue:
        queue.configure(spill_bytes=50_000, max_batch_jobs=50_000)
        for start in range(0, 50_000, 12_500):
            numbers = range(start, start + 12_500)
            queue.push_many([JobSpec(kind=f"k{n % 3}", payload=n, priority=n % 2) for n in numbers])
        running = {job.id for job in queue.claim("k1", limit=500)}
        while queue.stats().head_bytes > 400_000:
            time.sleep(0.05)
        assert queue.stats().segments > 1
    reader = spark.read.format("bucketq").option("numPartitions", 6)
    rows = reader.load(url).select("id", "payload", "status").collect()
    assert sorted(int(row.payload) for row in rows) == list(range(50_000))
    assert {row.id for row in rows if row.status == "running"} == running
    assert reader.option("kind", "k2").option("status", "queued").load(url).count() == 16_666


def read_archive(spark: SparkSession, folder: Path) -> None:
    url = finished_jobs(folder)
    reader = spark.read.format("bucketq").option("table", "archive")
    rows = reader.option("from", hours_ago(6).isoformat()).load(url).select("id").collect()
    assert sorted(row.id for row in rows) == [f"job{n}" for n in range(10)]


def write(spark: SparkSession, folder: Path) -> None:
    url = fresh(folder)
    rows = spark.range(100).selectExpr("'x' AS kind", "to_json(struct(id)) AS payload")
    rows.write.format("bucketq").mode("append").save(url)
    assert sorted(json.loads(bytes(job.payload))["id"] for job in records(url)) == list(range(100))


def write_staged(spark: SparkSession, folder: Path) -> None:
    """More than a task sends to the driver, so that executors put it beside the queue."""
    url = fresh(folder)
    rows = spark.range(600, numPartitions=2).selectExpr("id", "repeat('x', 5000) AS text")
    writer = rows.write.format("bucketq").mode("append").option("kind", "x")
    writer.options(payloadColumns="id,text", bulk="false").save(url)
    assert len(records(url)) == 600
    assert (folder / "queue" / "staged").is_dir(), "nothing was staged, so this shows nothing"
    assert not list((folder / "queue" / "staged").glob("*.jsonl"))


def write_wrong(spark: SparkSession, folder: Path) -> None:
    """An error in a write is reported, on the driver and on executors."""
    url = fresh(folder)
    rows = spark.sql("SELECT 'x' AS kind, 1 AS colour")
    with pytest.raises(Exception, match="colour"):
        rows.write.format("bucketq").mode("append").save(url)
    assert records(url) == []


def stream(frame: DataFrame, folder: Path, **trigger: Any) -> Any:
    """A stream that writes files."""
    writer = frame.writeStream.format("json").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger)
    started = query.start()
    assert started.awaitTermination(DEADLINE_S)
    return started


def taken(folder: Path) -> list[str]:
    lines = [line for file in (folder / "out").glob("*.json") for line in file.open()]
    return sorted(json.loads(line)["id"] for line in lines)


def jobs_of(spark: SparkSession, url: str) -> DataFrame:
    reader = spark.readStream.format("bucketq").option("consumer", "c").option("minPartitions", 2)
    return reader.option("maxJobsPerTrigger", 4).load(url)


def read_stream(spark: SparkSession, folder: Path) -> None:
    url = fresh(folder, *numbered(10))
    query = stream(jobs_of(spark, url).select("id"), folder, availableNow=True)
    assert taken(folder) == sorted(f"job{n}" for n in range(10))
    assert statuses(url) == {"done": 10}
    offset = query.recentProgress[-1].sources[0].latestOffset
    assert "waiting" in str(offset), offset


def each_batch(spark: SparkSession, folder: Path) -> None:
    url, log = fresh(folder, *numbered(6)), str(folder / "log")

    def note(batch: DataFrame, number: int) -> None:
        ids = sorted(row.id for row in batch.select("id").collect())
        with Path(log).open("a") as file:
            file.write(json.dumps([number, ids]) + "\n")

    query = jobs_of(spark, url).writeStream.foreachBatch(note).trigger(availableNow=True)
    started = query.option("checkpointLocation", str(folder / "checkpoint")).start()
    assert started.awaitTermination(DEADLINE_S)
    batches = [json.loads(line) for line in Path(log).read_text().splitlines()]
    assert batches == [[0, [f"job{n}" for n in range(4)]], [1, ["job4", "job5"]]]


def finish(spark: SparkSession, folder: Path) -> None:
    url = fresh(folder, *numbered(3))
    stream(jobs_of(spark, url).select("id"), folder, once=True)
    assert statuses(url) == {"running": 3}
    assert bucketq.spark.finish(url, "c", (folder / "checkpoint").as_uri()) == 3
    assert statuses(url) == {"done": 3}


def write_stream(spark: SparkSession, folder: Path) -> None:
    url, sink = fresh(folder, *numbered(6)), (folder / "sink.json").as_uri()
    writer = jobs_of(spark, url).select("kind", "payload").writeStream.format("bucketq")
    query = writer.option("checkpointLocation", str(folder / "checkpoint"))
    assert query.trigger(availableNow=True).start(sink).awaitTermination(DEADLINE_S)
    assert statuses(url) == {"done": 6}
    pushed = [json.loads(bytes(job.payload))["number"] for job in records(sink)]
    assert sorted(pushed) == list(range(6))


def run(spark: SparkSession, folder: Path) -> None:
    """Handlers by the name of their module, and by their code; one ends its process."""

    def code(number: int) -> int:
        return number + 1

    worker = Worker(concurrency=2, mode="direct")
    worker.handler("double")(sample_handlers.double)
    worker.handler("leave", max_attempts=1)(sample_handlers.leave)
    worker.handler("code")(code)
    others: list[JobSpec[Any]] = [
        JobSpec(kind="leave", payload={"number": 5}),
        JobSpec(kind="code", payload=1),
    ]
    url = fresh(folder, *numbered(20), *others)
    tally = bucketq.spark.run(spark, url, worker, burst=True)
    assert tally.ends == {"done": 21, "dead": 1}
    results = {job.id: bytes(job.result) for job in records(url) if job.result is not None}
    assert [results[f"job{n}"] for n in range(20)] == [str(2 * n).encode() for n in range(20)]


def run_missing(spark: SparkSession, folder: Path) -> None:
    """Handlers that executors cannot load are reported before a job is claimed."""
    url, file = fresh(folder, *numbered(1)), folder / "vanishing_work.py"
    file.write_text("async def work() -> None: ...\n")
    sys.path.append(str(folder))
    work = importlib.import_module("vanishing_work").work
    file.unlink()
    with pytest.raises(InvalidRequestError, match="--py-files"):
        bucketq.spark.run(spark, url, {"double": work}, burst=True, mode="direct")
    assert statuses(url) == {"queued": 1}


def interrupted(spark: SparkSession, folder: Path) -> None:
    """A batch that runs for minutes is ended by its tag."""
    mark = folder / "mark"
    url = fresh(folder, JobSpec(kind="wait", payload={"number": 1, "mark": str(mark)}))
    [record] = records(url)
    settings = TaskSettings(
        pickle_handlers({"wait": bind("wait", sample_handlers.wait_for)}), 1, 2.0
    )
    cluster = SparkCluster(spark, settings)

    def end() -> None:
        while not mark.with_suffix(".begun").exists():
            time.sleep(0.05)
        cluster.interrupt("a-tag")

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(end)
        with pytest.raises(BatchFailed):
            cluster.submit([record], "shared", "a-tag")
        ended.result()
    mark.with_suffix(".go").touch()


def compacted(spark: SparkSession, folder: Path) -> None:
    url = finished_jobs(folder)
    assert compact(spark, url).jobs == 10
    assert listed(url)[0] == []


def reported(spark: SparkSession, folder: Path) -> None:
    url = finished_jobs(folder)
    found = report(spark, url, hours_ago(6), hours_ago(0), folder / "tables")
    assert (found.total.jobs, found.total.dead) == (10, 1)
    assert list((folder / "tables" / "numbers").glob("*.parquet"))


def replayed(spark: SparkSession, folder: Path) -> None:
    url = finished_jobs(folder)
    since = hours_ago(6)
    assert [replay(spark, url, DEAD, since=since).pushed for _ in range(2)] == [1, 0]
    assert [job.replay_of for job in records(url)] == ["job9"]


def command(*words: str) -> str:
    """Type a command, and return what it prints."""
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def work_command(master: str, folder: Path) -> None:
    url = fresh(folder, *numbered(20))
    (folder / "tasks.py").write_text(TASKS)
    tasks = f"{folder / 'tasks.py'}:worker"
    shown = command("work", tasks, "--url", url, "--spark", master, "--burst", "--concurrency", "3")
    assert shown == "20 attempts: 20 done\n"


def archive_commands(master: str, folder: Path) -> None:
    url = finished_jobs(folder)
    at = ["--master", master, "--json"]
    done = json.loads(command("archive", "compact", url, *at))
    assert done["jobs"] == 10, done
    page = folder / "page.html"
    command("archive", "report", url, "--from", "6h", "--html", str(page), *at)
    assert page.read_text("utf-8").startswith("<!doctype html>")
    done = json.loads(command("archive", "replay", url, "--from", "6h", "--where", DEAD, *at))
    assert done["pushed"] == 1, done


FEATURES: dict[str, Callable[[SparkSession, Path], None]] = {
    each.__name__: each
    for each in (
        *(read, read_deep, read_archive, write, write_staged, write_wrong),
        *(read_stream, each_batch, finish, write_stream),
        *(run, run_missing, interrupted, compacted, reported, replayed),
    )
}
COMMANDS: dict[str, Callable[[str, Path], None]] = {
    each.__name__: each for each in (work_command, archive_commands)
}
