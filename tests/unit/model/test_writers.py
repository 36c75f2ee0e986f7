"""Writers: what is published comes in once, however often it is published."""

from __future__ import annotations

from typing import Any

import pytest

from bucketq.errors import InvalidRequestError, KeyConflictError, QueueFullError, RejectedError
from bucketq.model.effects.operators import is_untidy
from bucketq.model.numbered_batches import Publish
from bucketq.model.operations import Tidy
from tests.unit.model.driver import Driver, new_job


def publish(batch: int, *jobs: str, writer: str = "sink", part: int = 0) -> Publish:
    several = tuple(new_job(job_id) for job_id in jobs)
    return Publish(writer=writer, batch=batch, part=part, jobs=several)


def ids(queue: Driver) -> list[str]:
    return [job.id for job in queue.state.jobs]


def test_a_position_is_published_once() -> None:
    queue = Driver()
    assert queue.ok(publish(0, "1", "2")) is True
    again = queue.send(publish(0, "3"))
    assert (again.answer, again.changes) == (False, [])
    assert ids(queue) == ["1", "2"]


def test_positions_go_forward_by_batch_and_then_by_part() -> None:
    queue = Driver()
    assert queue.ok(publish(5, "1")) is True
    assert queue.ok(publish(5, "2", part=1)) is True
    assert queue.ok(publish(5, "3", part=1)) is False
    assert queue.ok(publish(4, "4", part=9)) is False
    assert queue.ok(publish(6, "5")) is True
    assert queue.ok(publish(5, "6", part=2)) is False
    assert ids(queue) == ["1", "2", "5"]


def test_writers_do_not_know_of_each_other() -> None:
    queue = Driver()
    assert queue.ok(publish(3, "1", writer="a")) is True
    assert queue.ok(publish(3, "2", writer="b")) is True


def test_an_empty_batch_moves_the_position_too() -> None:
    queue = Driver()
    assert queue.ok(publish(1)) is True
    assert queue.ok(publish(1, "1")) is False


def test_the_position_outlives_a_reload_and_the_jobs() -> None:
    queue = Driver()
    queue.ok(publish(1, "1"))
    queue.complete(queue.claim_one())
    queue.state.remove_archived([queue.state.jobs.by_id["1"]])
    queue.reload()
    assert queue.ok(publish(1, "1")) is False
    assert ids(queue) == []


def test_a_retry_is_answered_like_the_first_try() -> None:
    queue = Driver()
    assert queue.ok(publish(1, "1"), "s", number=1) is True
    queue.reload()
    assert queue.ok(publish(1, "1"), "s", number=1) is True
    assert queue.ok(publish(1, "1"), "s", number=2) is False


def test_all_jobs_come_in_or_none_and_then_the_position_stays() -> None:
    queue = Driver(max_jobs=2)
    queue.push("1", payload="other")
    queue.refused(publish(1, "2", "3"), QueueFullError)
    queue.refused(publish(1, "2", "1"), KeyConflictError)
    queue.refused(publish(1, "2", "2"), InvalidRequestError)
    assert queue.ok(publish(1, "2")) is True


def test_there_is_a_limit_on_writers_but_not_on_known_ones() -> None:
    queue = Driver(max_writers=1)
    queue.ok(publish(1, "1"))
    assert "max_writers" in queue.refused(publish(1, "2", writer="b"), RejectedError)
    assert queue.ok(publish(2, "2")) is True


def test_a_writer_is_forgotten_after_its_retention() -> None:
    queue = Driver(writer_retention_s=100.0)
    queue.ok(publish(1, "1", writer="old"))
    queue.wait(60)
    queue.ok(publish(1, "2", writer="new"))
    queue.wait(41)
    assert is_untidy(queue.state, queue.now)
    assert queue.ok(Tidy()) == 1
    assert [row.id for row in queue.state.writers] == ["new"]
    assert not is_untidy(queue.state, queue.now)


@pytest.mark.parametrize(
    "fields", [{"writer": ""}, {"batch": -1}, {"batch": 2**63}, {"part": -1}, {"batch": True}]
)
def test_nonsense_is_refused(fields: dict[str, Any]) -> None:
    defaults: dict[str, Any] = {"writer": "sink", "batch": 1, "part": 0, "jobs": ()}
    Driver().refused(Publish(**(defaults | fields)), InvalidRequestError)


def last(batch: int, *jobs: str, part: int = 0) -> Publish:
    return Publish(writer="sink", batch=batch, part=part, jobs=tuple(map(new_job, jobs)), last=True)


def test_a_writer_is_forgotten_by_its_last_position_alone() -> None:
    queue = Driver()
    queue.ok(publish(0, "1", part=7))
    for earlier in (last(0, part=6), last(0)):
        again = queue.send(earlier)
        assert (again.answer, again.changes) == (False, [])
    assert queue.ok(last(0, part=7)) is False
    assert len(queue.state.writers) == 0
    assert queue.ok(last(0, "2")) is True, "a position that was not published is"
    assert len(queue.state.writers) == 0
    assert ids(queue) == ["1", "2"]


def test_a_late_copy_of_what_a_forgotten_writer_published_adds_nothing() -> None:
    queue = Driver()
    assert queue.ok(publish(0, "1"), "driver", number=1) is True
    queue.complete(queue.claim_one())
    queue.state.remove_archived([queue.state.jobs.by_id["1"]])
    queue.ok(last(0), "driver", number=2)
    assert queue.ok(publish(0, "1"), "driver", number=1) is True, "the answer of the first copy"
    queue.ok(publish(1), "driver", number=3, acknowledged_below=3)
    queue.refused(publish(0, "1"), InvalidRequestError, "driver", number=1)
    assert ids(queue) == []


def test_more_writes_than_the_queue_remembers_pass_if_each_is_forgotten() -> None:
    queue = Driver(max_writers=2)
    for number in range(10):
        writer = f"w{number}"
        queue.ok(publish(0, str(number), writer=writer))
        queue.ok(Publish(writer=writer, batch=0, jobs=(), last=True))
    queue.ok(publish(0, writer="a"))
    queue.ok(publish(0, writer="b"))
    queue.refused(publish(0, writer="c"), RejectedError)
