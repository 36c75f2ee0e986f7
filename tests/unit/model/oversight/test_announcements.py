"""How workers are listed, and how one is asked to finish."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bucketq.errors import InvalidRequestError, WorkerNotFoundError
from bucketq.model import operations as ops
from bucketq.model.effects.access import right_of
from bucketq.model.effects.operators import is_untidy
from bucketq.model.operations import Tidy
from bucketq.model.worker_records import (
    MOST_KINDS,
    Announce,
    DrainWorker,
    ReadWorkers,
    WorkerRecord,
)
from tests.unit.model.driver import SECRET, START, Driver, new_job


def announce(name: str = "w1", **fields: Any) -> Announce:
    """An announcement of a worker whose id follows from its name."""
    defaults: dict[str, Any] = {
        "id": f"run of {name}",
        "name": name,
        "host": "h1",
        "pid": 7,
        "version": "1.2",
        "concurrency": 10,
        "up_s": 5.0,
    }
    return Announce(**(defaults | fields))


def listed(queue: Driver) -> list[WorkerRecord]:
    return list(queue.ok(ReadWorkers()))


def test_a_worker_that_announces_itself_is_listed() -> None:
    queue = Driver()
    assert queue.ok(announce("b", kinds=("mail",), running=3)) is False
    assert queue.ok(announce("a")) is False
    a, b = listed(queue)
    assert (a.name, b.name, b.kinds, b.concurrency, b.pid) == ("a", "b", ("mail",), 10, 7)
    assert (b.at, b.since) == (START, START - timedelta(seconds=5))


def test_a_heartbeat_of_a_worker_that_was_heard_lately_changes_nothing() -> None:
    queue = Driver(worker_retention_s=300)
    queue.ok(announce())
    queue.wait(59)
    assert queue.send(announce(running=5, up_s=64.0)).changes == []
    queue.wait(1)
    assert queue.send(announce(running=5, up_s=65.0)).changes == [("workers", "run of w1")]
    [row] = queue.state.workers
    assert (row.running, row.at, row.since) == (5, queue.now, START - timedelta(seconds=5))
    queue.wait(-3600)
    assert queue.send(announce()).changes, "the clock was set back"


def test_a_worker_that_is_silent_is_not_listed_and_is_forgotten() -> None:
    queue = Driver(worker_retention_s=300)
    queue.ok(announce("a"))
    queue.wait(200)
    queue.ok(announce("b"))
    queue.wait(101)
    assert [row.name for row in listed(queue)] == ["b"]
    assert is_untidy(queue.state, queue.now)
    queue.ok(Tidy())
    assert [row.name for row in queue.state.workers] == ["b"]
    assert not is_untidy(queue.state, queue.now)


def test_a_worker_that_ends_is_forgotten_at_once() -> None:
    queue = Driver()
    queue.ok(announce())
    assert queue.ok(announce(leaving=True)) is False
    assert listed(queue) == []
    assert queue.send(announce(leaving=True)).changes == []


def test_more_workers_than_there_may_be_are_not_listed() -> None:
    queue = Driver(max_workers=2)
    for name in ("a", "b", "c"):
        assert queue.ok(announce(name)) is False
    assert [row.name for row in listed(queue)] == ["a", "b"]
    queue.ok(announce("a", leaving=True))
    queue.ok(announce("c"))
    assert [row.name for row in listed(queue)] == ["b", "c"]


def test_a_drained_worker_learns_it_from_the_next_answer() -> None:
    queue = Driver()
    queue.ok(announce("a"))
    queue.ok(announce("b"))
    assert queue.ok(DrainWorker(worker="a"), "session", number=1) == 1
    assert queue.ok(announce("a")) is True
    assert queue.ok(announce("b")) is False
    assert [row.draining for row in listed(queue)] == [True, False]
    assert queue.ok(announce("a", draining=True)) is True


def test_all_workers_of_a_name_are_drained_or_one_by_its_id() -> None:
    queue = Driver()
    queue.ok(announce("a", id="one"))
    queue.ok(announce("a", id="two"))
    assert queue.ok(DrainWorker(worker="two")) == 1
    assert (queue.ok(announce("a", id="one")), queue.ok(announce("a", id="two"))) == (False, True)
    assert queue.ok(DrainWorker(worker="a")) == 2
    assert queue.ok(announce("a", id="one")) is True


def test_a_worker_that_is_started_again_under_its_name_is_not_drained() -> None:
    queue = Driver()
    queue.ok(announce("a", id="first"))
    queue.ok(DrainWorker(worker="a"), "session", number=1)
    queue.ok(announce("a", id="first", leaving=True))
    assert queue.ok(announce("a", id="second")) is False
    assert queue.ok(DrainWorker(worker="a"), "session", number=1) == 1, (
        "a retry is answered as before"
    )
    assert queue.ok(announce("a", id="second")) is False


def test_the_request_is_kept_while_the_worker_is_heard() -> None:
    queue = Driver(worker_retention_s=300)
    queue.ok(announce("a"))
    queue.ok(DrainWorker(worker="a"))
    for _ in range(20):
        queue.wait(50)
        assert queue.ok(announce("a")) is True
        queue.ok(Tidy())


def test_a_worker_says_itself_that_it_ends() -> None:
    queue = Driver()
    queue.ok(announce())
    queue.wait(1)
    assert queue.send(announce(draining=True)).changes
    [row] = listed(queue)
    assert row.draining


def test_the_jobs_of_a_worker_are_counted_when_it_is_listed() -> None:
    queue = Driver()
    queue.ok(ops.Push(jobs=tuple(new_job(f"j{number}") for number in range(3))))
    queue.ok(announce("a", running=9))
    queue.ok(announce("b", id="one", running=1))
    queue.ok(announce("b", id="two", running=0))
    queue.ok(ops.Claim(worker="a", secret=SECRET, limit=2))
    queue.ok(ops.Claim(worker="b", secret=SECRET, limit=1))
    # Which of those of one name has a job, only they can tell.
    assert [row.running for row in listed(queue)] == [2, 1, 0]


def test_a_worker_that_is_not_known_is_an_error_that_names_the_others() -> None:
    queue = Driver()
    assert "none was heard lately" in queue.refused(DrainWorker(worker="a"), WorkerNotFoundError)
    queue.ok(announce("b"))
    queue.ok(announce("c"))
    assert "b, c;" in queue.refused(DrainWorker(worker="a"), WorkerNotFoundError)
    queue.wait(301)
    assert "b, c" not in queue.refused(DrainWorker(worker="a"), WorkerNotFoundError)
    assert queue.ok(DrainWorker(worker="b")) == 1, "its clock may be slow"


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ""},
        {"name": ""},
        {"host": "x" * 300},
        {"version": "\ud800"},
        {"pid": -1},
        {"concurrency": 1.5},
        {"running": -1},
        {"up_s": float("nan")},
        {"kinds": ("no kind",)},
        {"kinds": tuple(f"k{number}" for number in range(MOST_KINDS + 1))},
    ],
)
def test_a_bad_announcement_is_refused(fields: dict[str, Any]) -> None:
    Driver().refused(announce(**fields), InvalidRequestError)


def test_the_rights_of_workers() -> None:
    assert right_of(announce()) == "claim"
    assert right_of(ReadWorkers()) == "read"
    assert right_of(DrainWorker(worker="a")) == "admin"
