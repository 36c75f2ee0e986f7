"""Jobs of a micro-batch are completed or failed one by one, by the numbers of the queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import GiveUp, InvalidRequestError
from bucketq.client.blocking_queue import BlockingQueue
from bucketq.spark import StreamBatch, for_each_batch, settle
from bucketq.spark.stream import batch_outcomes


class Frame:
    """As much of a DataFrame as is used."""

    def __init__(self, columns: list[str], *rows: tuple[Any, ...]) -> None:
        self.columns = columns
        self.rows = rows

    def select(self, *columns: str) -> Frame:
        assert set(columns) <= set(self.columns)
        return self

    def head(self) -> dict[str, Any] | None:
        return dict(zip(self.columns, self.rows[0], strict=True)) if self.rows else None

    def collect(self) -> list[tuple[Any, ...]]:
        return list(self.rows)


NUMBERS = ["consumer", "consumer_batch"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "queue.json").as_uri()


def claimed(queue: BlockingQueue[Any], count: int) -> list[str]:
    """Claim a batch of some jobs, and return their ids."""
    ids = [queue.push("index", number) for number in range(count)]
    queue.claim_batch("c", queue.open_consumer("c").epoch, 1)
    return list(map(str, ids))


def batch_of(url: str) -> StreamBatch:
    found: list[StreamBatch] = []
    for_each_batch(found.append, url)(Frame(NUMBERS, ("c", 1)), 7)  # type: ignore[arg-type]
    return found[0]


def statuses(queue: BlockingQueue[Any]) -> dict[str, str]:
    return {job.id: job.status for job in queue.snapshot().jobs}


def test_each_job_has_its_outcome(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_outcomes, "_COMMIT_JOBS", 2)
    monkeypatch.setattr(batch_outcomes, "_PAGE_JOBS", 3)
    with bucketq.connect_sync(url, mode="direct") as queue:
        one, two, three, four, five = claimed(queue, 5)
        given = {one: {"words": 3}, two: None, three: ValueError("bad"), four: GiveUp("never")}
        assert settle(batch_of(url), given) == 4
        expected = {one: "done", two: "done", three: "queued", four: "dead", five: "running"}
        assert statuses(queue) == expected
        assert queue.get(one).result == {"words": 3}
        assert queue.get(three).errors[-1].error == "ValueError: bad"
        assert queue.get(four).errors[-1].error == "never"
        with pytest.raises(InvalidRequestError, match=f"job {one} is not in batch 1"):
            settle(batch_of(url), {one: 1})
        assert queue.ack_batch("c", 1, 1).jobs == 1


def test_a_frame_has_the_outcomes_as_columns(url: str) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        one, two = claimed(queue, 2)
        rows = Frame(["id", "result", "error"], (one, 5, None), (two, None, "no page"))
        assert settle(batch_of(url), rows) == 2  # type: ignore[arg-type]
        assert queue.get(one).result == 5
        assert queue.get(two).errors[-1].error == "no page"


def test_wrong_outcomes_are_named(url: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"as in for_each_batch\(f, url\)"):
        settle(StreamBatch(Frame([]), "c", 1), {})  # type: ignore[arg-type]
    with bucketq.connect_sync(url, mode="direct") as queue:
        [one] = claimed(queue, 1)
        for frame, text in (
            (Frame(["job"]), "need a column id"),
            (Frame(["id", "error"], (one, None), (one, None)), "stands twice"),
        ):
            with pytest.raises(InvalidRequestError, match=text):
                settle(batch_of(url), frame)  # type: ignore[arg-type]


def test_a_batch_without_rows_has_the_number_of_the_queue(url: str) -> None:
    found: list[StreamBatch] = []
    with bucketq.connect_sync(url, mode="direct") as queue:
        claimed(queue, 1)
    for_each_batch(found.append, url, "c")(Frame(NUMBERS), 7)  # type: ignore[arg-type]
    assert [(each.consumer, each.number) for each in found] == [("c", 1)]
    with pytest.raises(InvalidRequestError, match="no consumer 'd' in the queue; there are: c"):
        for_each_batch(found.append, url, "d")(Frame(NUMBERS), 7)  # type: ignore[arg-type]


def test_a_batch_without_rows_is_left_out_and_missing_columns_are_named() -> None:
    found: list[StreamBatch] = []
    for_each_batch(found.append)(Frame(NUMBERS), 7)  # type: ignore[arg-type]
    assert found == []
    with pytest.raises(InvalidRequestError, match="no column consumer_batch: select"):
        for_each_batch(found.append)(Frame(["id", "consumer"]), 7)  # type: ignore[arg-type]
