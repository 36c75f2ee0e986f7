"""Jobs that match are pushed again, and once."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import bucketq
import bucketq.spark
from bucketq.errors import InvalidRequestError
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import refs_of
from bucketq.queue.push_options import JobSpec
from bucketq.spark.archive.replay_jobs import ReplayedJobs
from tests.spark import sample_handlers
from tests.spark.finished_jobs import archive, finished, hours_ago

DEAD = "outcome = 'dead' and error like '%timeout%'"


def run(spark: SparkSession, url: str, where: str = DEAD, **more: Any) -> ReplayedJobs:
    return bucketq.spark.replay(spark, url, where, since=hours_ago(6), **more)


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
    bucketq.spark.compact(spark, url)
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
    assert run(spark, url, until=hours_ago(4), dry_run=True).kinds == {"index": 1}
    assert waiting(url) == []
    assert run(spark, url).kinds == {"index": 2, "mail": 1}
    jobs = {job.replay_of: job for job in waiting(url)}
    assert set(jobs) == {"job1", "job2", "job3"}
    assert bytes(jobs["job1"].payload) == b'{"name":"job1"}'
    assert (jobs["job1"].priority, jobs["job1"].tags) == (3, {"team": "search"})
    assert jobs["job3"].payload_encoding == "base64"
    assert run(spark, url).pushed == 0
    assert len(waiting(url)) == 3
    # It recognises its jobs after they are archived, too, and another replay takes them as well.
    with bucketq.connect_sync(url, mode="direct") as queue:
        for job in queue.claim(limit=10):
            queue.fail(job, "timeout once more", retry=False)
        queue.purge()
        queue.flush_archive()
    assert run(spark, url).pushed == 0
    assert run(spark, url, name="second").pushed == 6


@pytest.mark.full  # `test_executors_read_the_segments_of_a_deep_queue` reads the same table.
def test_dead_jobs_and_earlier_replays_are_found_in_segments(
    spark: SparkSession, file_url: str
) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.configure(spill_bytes=1000)
        queue.push_many([JobSpec(kind="x", payload=n, max_attempts=1) for n in range(60)])
        for job in queue.claim(limit=50):
            queue.fail(job, "a timeout")
        assert queue.stats().segments > 0
    assert run(spark, file_url).pushed == 50
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        assert queue.stats().segments > 1
        assert queue.stats().counts == {"x": {"dead": 50, "queued": 60}}
    assert run(spark, file_url).pushed == 0


@pytest.mark.full
@pytest.mark.usefixtures("usual_plans")
def test_two_jobs_with_one_id_are_each_pushed_once(spark: SparkSession, file_url: str) -> None:
    with bucketq.connect_sync(file_url, mode="direct"):
        pass
    jobs = [structs.replace(finished("job1", hours_ago(2)), seq=seq) for seq in (1, 2)]
    archive(file_url, jobs)
    assert run(spark, file_url, "kind = 'index'").pushed == 2
    assert [job.replay_of for job in waiting(file_url)] == ["job1", "job1"]
    assert run(spark, file_url, "kind = 'index'").pushed == 0


def test_a_replay_that_an_older_version_began_pushes_only_the_rest(
    spark: SparkSession, file_url: str
) -> None:
    """Older versions made the id from the name of the replay and the id of the old job."""
    digest = sha256(b"nightly/job1").hexdigest()
    pushed = JobSpec(kind="index", payload=1, id=f"replay-{digest[:32]}", replay_of="job1")
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.push_many([pushed])
    archive(file_url, [finished(f"job{n}", hours_ago(2)) for n in (1, 2)])
    assert run(spark, file_url, "kind = 'index'", name="nightly").pushed == 1
    assert [job.replay_of for job in waiting(file_url)] == ["job1", "job2"]
    # Neither are they taken for new jobs when they have finished and match themselves.
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        for job in queue.claim(limit=10):
            queue.complete(job)
        queue.flush_archive()
    assert run(spark, file_url, "kind = 'index'", name="nightly").pushed == 0
    assert run(spark, file_url, "kind = 'index'", name="another").pushed == 4


def test_the_archive_is_read_once(spark: SparkSession, file_url: str, tmp_path: Path) -> None:
    with bucketq.connect_sync(file_url, mode="direct"):
        pass
    jobs = [finished(f"job{n}", hours_ago(1 + n % 4)) for n in range(50)]
    archive(file_url, jobs[:25], jobs[25:])
    noted = str(tmp_path / "noted")
    note = udf(lambda name: sample_handlers.note(noted, name), "boolean")
    # One that is not deterministic is not called twice for one row.
    spark.udf.register("noted", note.asNondeterministic())
    assert run(spark, file_url, "noted(id)").pushed == 50
    names = Path(noted).read_text().split()
    assert sorted(names) == sorted(job.id for job in jobs)


def test_a_condition_that_spark_does_not_understand_is_reported(
    spark: SparkSession, file_url: str
) -> None:
    with bucketq.connect_sync(file_url, mode="direct"):
        pass
    for where in ("colour = 'blue'", "kind =", "kind", "1 = 1, 2 = 2"):
        with pytest.raises(InvalidRequestError, match="cannot be used: spark does not understand"):
            run(spark, file_url, where)


@pytest.mark.full
def test_large_payloads_are_copied(spark: SparkSession, url: str) -> None:
    """One of the archive and one of a dead job; the old objects are deleted with the old jobs."""
    contents = [{"rows": list(range(30_000))}, bytes(range(256)) * 5_000, "small"]
    with bucketq.connect_sync(url, mode="direct") as queue:
        for content in contents:
            queue.push("index", content, max_attempts=1)
        first, *others = queue.claim(limit=3)
        queue.complete(first)
        queue.flush_archive()
        for job in others:
            queue.fail(job, "timeout")
    assert run(spark, url, "kind = 'index'", dry_run=True).pushed == 3
    assert run(spark, url, "kind = 'index'").pushed == 3
    with bucketq.connect_sync(url, mode="direct") as queue:
        again = queue.claim(limit=3)
        assert [job.payload for job in again] == contents
        assert [job.record.replay_of for job in again] == [job.id for job in (first, *others)]
        named = [ref.object for job in queue.snapshot().jobs for ref in refs_of(job)]
        assert len(named) == len(set(named)) == 3
        queue.purge()
        assert [b"".join(queue.open_payload(job.id)) for job in again][2] == b'"small"'
    assert run(spark, url, "kind = 'index'").pushed == 0
