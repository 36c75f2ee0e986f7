"""Handlers on executors: they end as in any worker, and what ends a process ends nothing else."""

from __future__ import annotations

import importlib
import os
import threading
import time
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

import bucketq
import bucketq.spark
from bucketq import Backoff, InvalidRequestError, JobSpec, Progress, Worker
from bucketq.model.records import JobRecord
from bucketq.queue.job import Job
from bucketq.queue.large.side_reader import SideReader
from tests.contract.brokers import NAME, Brokers
from tests.spark import sample_handlers
from tests.spark.signalled_command import signalled_command


def jobs_of(url: str) -> dict[str, Job[Any]]:
    with bucketq.connect_sync(url, mode="direct", create=False) as queue:
        found: tuple[JobRecord, ...] = tuple(queue.snapshot().jobs)
    return {record.id: Job(record, Any) for record in found}


def push(url: str, *specs: JobSpec[Any], **settings: Any) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        # So that what is done is still there to be looked at.
        queue.configure(archive_after_s=600, spill_bytes=16 << 20, **settings)
        queue.push_many(specs)


def test_each_handler_ends_as_in_any_worker(spark: SparkSession, url: str) -> None:
    worker = Worker(concurrency=4, mode="direct")
    worker.handler("double")(sample_handlers.double)
    worker.handler("thread")(sample_handlers.in_thread)
    worker.handler("process", run_in="process")(sample_handlers.in_process)
    worker.handler("fail", max_attempts=1)(sample_handlers.fail)
    worker.handler("give-up")(sample_handlers.give_up)
    worker.handler("again")(sample_handlers.ask_again)
    worker.handler("dawdle", timeout_s=0.2, max_attempts=1)(sample_handlers.dawdle)
    push(
        url,
        *(JobSpec(kind="double", payload={"number": n}, id=f"d{n}") for n in range(30)),
        JobSpec(kind="double", payload="no order", id="unfit"),
        JobSpec(kind="fail", payload={"number": 8}, id="fail"),
        *(JobSpec(kind=k, payload=None, id=k) for k in ("thread", "process", "give-up", "again")),
        JobSpec(kind="dawdle", payload=None, id="dawdle"),
        JobSpec(kind="other", payload=None, id="other"),
    )
    tally = bucketq.spark.run(spark, url, worker, burst=True)
    jobs = jobs_of(url)
    assert [jobs[f"d{n}"].result for n in range(30)] == [2 * n for n in range(30)]
    assert (jobs["thread"].result, jobs["again"].result) == (True, 2)
    assert jobs["process"].result != os.getpid()
    assert {name: job.status for name, job in jobs.items() if job.status != "done"} == {
        "unfit": "dead",
        "fail": "dead",
        "give-up": "dead",
        "dawdle": "dead",
        "other": "queued",
    }
    errors = {name: job.errors[-1].error for name, job in jobs.items() if job.errors}
    assert errors["fail"].startswith("ValueError: no luck with 8\n")
    assert "in fail" in errors["fail"]
    assert "bucketq/" not in errors["fail"]
    assert (errors["give-up"], errors["again"]) == ("never", "not yet")
    assert errors["dawdle"] == "it took longer than 0.2 s, and was cancelled"
    assert "cannot be decoded as Order" in errors["unfit"]
    assert tally.ends == {"done": 33, "retried": 1, "dead": 4}


@pytest.mark.parametrize("place", ["thread", "process", "spark"])
def test_a_result_that_cannot_be_stored_fails_the_attempt_in_every_place(
    spark: SparkSession, file_url: str, place: Literal["thread", "process", "spark"]
) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.configure(max_result_bytes=65_536)
    worker = Worker(file_url, mode="direct")
    run_in = None if place == "spark" else place
    at_once = Backoff(base_s=0, factor=1, max_s=0)
    for function in (sample_handlers.unsayable, sample_handlers.too_large):
        name = function.__name__
        worker.handler(name, run_in=run_in, max_attempts=2, backoff=at_once)(function)
    push(file_url, *(JobSpec(kind=kind, payload=None, id=kind) for kind in worker.handlers))
    if place == "spark":
        tally = bucketq.spark.run(spark, file_url, worker, burst=True)
    else:
        worker.run_sync(burst=True)
        tally = worker.counters
    assert tally.ends == {"retried": 2, "dead": 2}
    errors = {name: [each.error for each in job.errors] for name, job in jobs_of(file_url).items()}
    lost = "the handler returned, but its result cannot be stored: result"
    unsayable = (
        f"{lost} cannot be encoded as JSON: Encoding objects of type object is unsupported; "
        "return JSON values, bytes, a dataclass or the like"
    )
    too_large = (
        f"{lost} too large: 70,002 bytes, at most 65,536 are allowed (max_result_bytes); "
        "raise the setting, or put the data in an object of its own, and its address here"
    )
    assert errors == {"unsayable": 2 * [unsayable], "too_large": 2 * [too_large]}


def test_a_job_that_ends_its_process_fails_alone(spark: SparkSession, file_url: str) -> None:
    specs = [
        JobSpec(kind="leave", payload={"number": n}, id=f"j{n}", max_attempts=1) for n in range(12)
    ]
    push(file_url, *specs)
    tally = bucketq.spark.run(
        spark, file_url, {"leave": sample_handlers.leave}, burst=True, mode="direct", concurrency=6
    )
    jobs = jobs_of(file_url)
    assert tally.ends == {"done": 11, "dead": 1}
    assert [job.attempt for job in jobs.values()] == [1] * 12
    assert [job.id for job in jobs.values() if job.status == "dead"] == ["j5"]
    assert jobs["j5"].errors[-1].error == "the process that ran the handler ended with exit code 9"


def test_the_outcome_of_a_job_with_a_lost_lease_is_dropped(
    spark: SparkSession, file_url: str
) -> None:
    push(file_url, JobSpec(kind="lose", payload=file_url, id="a"))
    tally = bucketq.spark.run(
        spark, file_url, {"lose": sample_handlers.lose}, burst=True, mode="direct"
    )
    assert tally.ends == {"lost": 1, "done": 1}
    assert jobs_of(file_url)["a"].result == "attempt 2"


@pytest.mark.parametrize("run_in", ["thread", "process"])
def test_progress_is_seen_while_a_handler_runs_on_an_executor(
    spark: SparkSession, file_url: str, tmp_path: Path, run_in: Literal["thread", "process"]
) -> None:
    mark = tmp_path / "mark"
    order = {"number": 1, "mark": str(mark)}
    push(file_url, JobSpec(kind="report", payload=order, id="a"), heartbeat_s=0.2)
    seen: list[Progress] = []

    def note(progress: Progress) -> None:
        seen.append(progress)
        mark.with_suffix(".go").touch()

    def watch() -> None:
        with bucketq.connect_sync(file_url, mode="direct") as queue:
            queue.wait("a", timeout_s=60, on_progress=note)
            mark.with_suffix(".go").touch()

    watching = threading.Thread(target=watch)
    watching.start()
    worker = Worker(file_url, mode="direct")
    worker.handler("report", run_in=run_in)(sample_handlers.report)
    tally = bucketq.spark.run(spark, file_url, worker, burst=True)
    watching.join()
    assert tally.ends == {"done": 1}
    assert seen == [Progress(3, 7, "pages")]


def test_a_lease_is_kept_while_its_handler_runs(spark: SparkSession, file_url: str) -> None:
    def work() -> int:
        """Return how many jobs another worker gets after the lease could have expired."""
        time.sleep(8)
        with bucketq.connect_sync(file_url, mode="direct") as queue:
            return len(queue.claim())

    # Those who claim directly wait for nothing but the lease.
    times = {"lease_s": 6.0, "heartbeat_s": 1.0, "grace_s": 0, "clock_margin_s": 0}
    push(file_url, JobSpec(kind="slow", payload=None, id="a"), **times)
    tally = bucketq.spark.run(spark, file_url, {"slow": work}, burst=True, mode="direct")
    job = jobs_of(file_url)["a"]
    assert (tally.ends, job.result, job.attempt) == ({"done": 1}, 0, 1)


def test_executors_that_cannot_load_a_handler_are_reported_before_a_claim(
    spark: SparkSession, file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lib" / "vanishing_tasks.py"
    file.parent.mkdir()
    file.write_text("def work() -> None: ...\n")
    monkeypatch.syspath_prepend(str(file.parent))
    work = importlib.import_module("vanishing_tasks").work
    file.unlink()
    push(file_url, JobSpec(kind="x", payload=None, id="a"))
    with pytest.raises(InvalidRequestError, match=r"No module named 'vanishing_tasks'.*--py-files"):
        bucketq.spark.run(spark, file_url, {"x": work}, burst=True, mode="direct")
    assert jobs_of(file_url)["a"].attempt == 0


@pytest.mark.full  # `test_clusters` does it over Spark Connect, without the start of a JVM.
@pytest.mark.timeout(240)
def test_a_signal_lets_handlers_finish_and_claims_no_more(
    spark_environ: dict[str, str], tmp_path: Path
) -> None:
    signalled_command("local[2]", tmp_path, os.environ | spark_environ)


@pytest.mark.parametrize("way", ["store", "broker"])
def test_executors_fetch_large_payloads_and_the_driver_does_not(
    spark: SparkSession, file_url: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(
        file_url,
        JobSpec(kind="size", payload=bytes(100_000), id="large"),
        JobSpec(kind="film", payload=bytes(17 << 20), id="film"),
    )
    worker = Worker(concurrency=4)
    worker.handler("size")(sample_handlers.size_of)
    worker.handler("film")(sample_handlers.size_of_film)
    brokers = Brokers()
    try:
        if way == "broker":
            url = f"bucketq://{brokers.serve(file_url)}/{NAME}"
            with bucketq.connect_sync(url) as queue:
                monkeypatch.setenv("BUCKETQ_TOKEN", queue.create_token("worker", ["claim"]))
        else:
            url = file_url

        def refuse(*_: object) -> None:
            pytest.fail("the driver fetched a payload")

        monkeypatch.setattr(SideReader, "_stream", refuse)
        tally = bucketq.spark.run(spark, url, worker, burst=True)
    finally:
        brokers.close()
    assert tally.ends == {"done": 2}
    jobs = jobs_of(file_url)
    assert (jobs["large"].result, jobs["film"].result) == (100_000, 17 << 20)
