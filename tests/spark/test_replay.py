"""Jobs that match are pushed again, and once."""

from __future__ import annotations

from dataclasses import replace as changed

import pytest
from pyspark.sql import SparkSession

import bucketq
from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError
from bucketq.model.job import JobRecord
from bucketq.spark.compaction import compact
from bucketq.spark.replay import Replayed, Wish, replay
from tests.spark.finished import archive, finished, hours_ago

DEAD = Wish("outcome = 'dead' and error like '%timeout%'", hours_ago(6), hours_ago(0), "first")


def run(spark: SparkSession, url: str, wish: Wish) -> Replayed:
    return replay(spark, url, wish, SystemClock())


def waiting(url: str) -> list[JobRecord]:
    with bucketq.connect_sync(url, mode="direct") as queue:
        return [job for job in queue.snapshot().jobs if job.status == "queued"]


def fill(spark: SparkSession, url: str) -> None:
    """Two jobs that match in the archive, one of them compacted, and one dead in the queue."""
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push("index", b"\x00\xff", id="job3", max_attempts=1)
        [job] = queue.claim("index")
        queue.fail(job, "timeout, for the third time")
    archive(url, [finished("job1", hours_ago(5), "index", "a timeout")])
    compact(spark, url)
    archive(
        url,
        [
            finished("job2", hours_ago(4), "mail", "timeout"),
            finished("job4", hours_ago(4), "mail", "another error"),
            finished("job5", hours_ago(4), "mail"),
        ],
    )


def test_matching_jobs_of_archive_and_queue_are_pushed_once(spark: SparkSession, url: str) -> None:
    fill(spark, url)
    wish = changed(DEAD, until=SystemClock().now())
    assert run(spark, url, changed(wish, is_dry=True)).pushed == 3
    assert waiting(url) == []
    assert run(spark, url, wish).kinds == {"index": 2, "mail": 1}
    jobs = {job.replay_of: job for job in waiting(url)}
    assert set(jobs) == {"job1", "job2", "job3"}
    assert bytes(jobs["job1"].payload) == b'{"name":"job1"}'
    assert (jobs["job1"].priority, jobs["job1"].tags) == (3, {"team": "search"})
    assert jobs["job3"].payload_encoding == "base64"
    assert run(spark, url, wish).pushed == 0
    assert len(waiting(url)) == 3


def test_what_a_replay_has_pushed_is_known_also_when_it_is_archived(
    spark: SparkSession, file_url: str
) -> None:
    fill(spark, file_url)
    wish = changed(DEAD, until=SystemClock().now())
    run(spark, file_url, wish)
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        for job in queue.claim(limit=10):
            queue.fail(job, "timeout once more", retry=False)
        queue.purge()
        queue.flush_archive()
    later = changed(wish, until=SystemClock().now())
    assert run(spark, file_url, later).pushed == 0
    assert run(spark, file_url, changed(later, name="second")).pushed == 6


def test_a_condition_that_spark_does_not_understand_is_told_of(
    spark: SparkSession, file_url: str
) -> None:
    with bucketq.connect_sync(file_url, mode="direct"):
        pass
    for where in ("colour = 'blue'", "kind ="):
        with pytest.raises(InvalidRequestError, match="cannot be used: spark does not understand"):
            run(spark, file_url, changed(DEAD, where=where))
