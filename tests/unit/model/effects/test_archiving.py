"""Finished jobs leave once they are archived, and only they: an id may be used again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from bucketq.model.operations import Cancel
from bucketq.model.outbox import Archived, ArchivedPart, ReadOutbox
from tests.unit.model.driver import Driver


@pytest.fixture
def queue() -> Driver:
    return Driver()


def finish(queue: Driver, job_id: str) -> int:
    """Push and complete a job, and return its number."""
    queue.push(job_id)
    queue.complete(queue.claim_one())
    return queue.job(job_id).seq


def leave(queue: Driver, *jobs: tuple[str, int]) -> Any:
    return queue.ok(Archived(parts=(ArchivedPart(jobs),)))


def test_a_finished_job_leaves_once(queue: Driver) -> None:
    seq = finish(queue, "a")
    assert leave(queue, ("a", seq), ("a", seq)) == 1
    assert leave(queue, ("a", seq)) == 0


def test_a_job_that_stands_in_two_files_leaves_once(queue: Driver) -> None:
    first, second = ("a", finish(queue, "a")), ("b", finish(queue, "b"))
    parts = (ArchivedPart((first,)), ArchivedPart((first, second)))
    assert queue.ok(Archived(parts=parts)) == 2
    assert not queue.state.jobs


def test_a_job_that_is_not_done_stays(queue: Driver) -> None:
    queue.push("a")
    assert leave(queue, ("a", queue.job("a").seq), ("unknown", 1)) == 0
    assert queue.job("a").status == "queued"


def test_an_archived_job_does_not_take_a_later_one_with_its_id_along(queue: Driver) -> None:
    first = finish(queue, "a")
    queue.let_go("a")
    second = finish(queue, "a")
    assert leave(queue, ("a", first)) == 0
    assert queue.job("a").seq == second
    assert leave(queue, ("a", first), ("a", second)) == 1


def test_a_later_job_with_its_id_does_not_inherit_fields_that_are_not_known(queue: Driver) -> None:
    finish(queue, "a")
    queue.state.extra["jobs", "a"] = {"colour": Raw(b'"blue"')}
    queue.let_go("a")
    finish(queue, "a")
    [(_, extra)] = queue.ok(ReadOutbox()).jobs
    assert extra is None


def test_a_cancelled_job_leaves_like_a_completed_one(queue: Driver) -> None:
    queue.push("a")
    queue.ok(Cancel(job="a"))
    assert queue.let_go("a") == 1
