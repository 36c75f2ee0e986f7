"""The last batch of a stream that has ended is acknowledged when its user says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import bucketq
from bucketq import InvalidRequestError, JobSpec
from bucketq.spark import finish
from tests.unit.spark.stream.test_checkpoint import checkpoint, offset


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A queue with three jobs, two of them in an open batch."""
    address = (tmp_path / "queue.json").as_uri()
    with bucketq.connect_sync(address, mode="direct") as queue:
        queue.push_many([JobSpec(kind="index", payload=number) for number in range(3)])
        state = queue.open_consumer("c")
        queue.claim_batch("c", state.epoch, 1, limit=2)
    return address


def done(url: str) -> int:
    with bucketq.connect_sync(url, mode="direct") as queue:
        return queue.stats().total("done")


def test_the_open_batch_is_acknowledged_once(url: str) -> None:
    assert finish(url, "c") == 2
    assert finish(url, "c") == 0
    assert done(url) == 2


def test_a_batch_that_spark_has_committed_is_acknowledged(url: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "checkpoint", {0: offset("c", 1)}, [0])
    assert finish(url, "c", str(folder)) == 2


def test_a_batch_that_spark_has_not_committed_stays_open(url: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "checkpoint", {0: offset("c", 1)}, [])
    with pytest.raises(InvalidRequestError, match="batch 1 of consumer 'c' is not done"):
        finish(url, "c", str(folder))
    assert done(url) == 0


def test_an_unknown_consumer_is_reported_with_those_that_exist(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="no consumer 'd' in the queue; there are: c"):
        finish(url, "d")
