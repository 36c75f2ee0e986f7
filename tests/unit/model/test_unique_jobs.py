"""Unique jobs: which job has a name, and what a push replaces in it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import Raw

from bucketq.errors import InvalidRequestError, QueueFullError, RejectedError
from bucketq.model.job_ids import JobId
from bucketq.model.operations import Cancel, Configure, Push, Redrive, Release, Request, Tidy
from bucketq.model.segments import SegmentClass
from bucketq.model.state import State
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import START, Driver, lease_of, new_job


@pytest.fixture
def queue() -> Driver:
    return Driver(max_format=2)


def test_a_second_job_of_a_name_is_the_one_that_is_there(queue: Driver) -> None:
    assert queue.push("j1", unique="u") == "j1"
    again = queue.ok(Push(jobs=(new_job("j2", payload=2, unique="u"),)))[0]
    assert (again, again.duplicate) == ("j1", True)
    assert [job.id for job in queue.state.jobs] == ["j1"]
    assert bytes(queue.job("j1").payload) == b"null"


def test_a_duplicate_that_replaces_nothing_changes_nothing(queue: Driver) -> None:
    queue.push("j1", unique="u")
    assert not queue.send(Push(jobs=(new_job("j2", unique="u"),)), "s", number=1).changes


def test_names_are_those_of_a_kind(queue: Driver) -> None:
    queue.push("j1", "mail", unique="u")
    assert queue.push("j2", "index", unique="u") == "j2"
    assert queue.push("j3", "mail", unique="other") == "j3"


def test_delayed_retrying_and_released_jobs_count_as_queued(queue: Driver) -> None:
    queue.push("j1", unique="u", delay_s=60.0)
    assert queue.push("j2", unique="u", unique_scope="queued") == "j1"
    queue.wait(60)
    queue.fail(queue.claim_one())
    assert queue.push("j3", unique="u", unique_scope="queued") == "j1"
    queue.wait(60)
    job = queue.claim_one()
    queue.ok(Release(job=job.id, lease=lease_of(job), delay_s=5.0))
    assert queue.push("j4", unique="u", unique_scope="queued") == "j1"


def test_a_running_job_is_in_scope_unless_the_scope_is_queued(queue: Driver) -> None:
    queue.push("j1", unique="u")
    queue.claim_one()
    assert queue.push("j2", unique="u") == "j1"
    assert queue.push("j3", unique="u", unique_scope="queued") == "j3"
    assert queue.push("j4", unique="u") == "j3"


def test_a_job_that_is_over_frees_its_name(queue: Driver) -> None:
    queue.push("j1", unique="u")
    queue.complete(queue.claim_one())
    assert queue.push("j2", unique="u") == "j2"
    queue.ok(Cancel(job="j2"))
    assert queue.push("j3", unique="u") == "j3"
    queue.fail(queue.claim_one(), retry=False)
    assert queue.push("j4", unique="u") == "j4"


def test_a_redrive_does_not_check_the_name_and_the_newest_job_has_it(queue: Driver) -> None:
    queue.push("j1", unique="u")
    queue.fail(queue.claim_one(), retry=False)
    queue.push("j2", unique="u")
    queue.ok(Redrive(jobs=("j1",)))
    assert queue.push("j3", unique="u") == "j2"
    queue.ok(Cancel(job="j2"))
    assert queue.push("j4", unique="u") == "j1"


@pytest.mark.parametrize("given", ["payload", "run_at", "both"])
def test_a_push_replaces_what_it_says_in_a_job_that_waits(queue: Driver, given: str) -> None:
    queue.push("j1", payload=1, priority=3, unique="u", delay_s=10.0)
    queue.wait(5)
    queue.push("j2", payload=2, unique="u", delay_s=10.0, replace=given)
    job = queue.job("j1")
    assert bytes(job.payload) == (b"1" if given == "run_at" else b"2")
    assert job.run_at == START + timedelta(seconds=10 if given == "payload" else 15)
    assert (job.priority, job.pushed_at, job.seq) == (3, START, 1)


def test_a_running_job_is_not_replaced(queue: Driver) -> None:
    queue.push("j1", payload=1, unique="u")
    running = queue.claim_one()
    assert queue.push("j2", payload=2, unique="u", delay_s=9.0, replace="both") == "j1"
    assert queue.job("j1") == running


def test_bytes_take_the_place_of_json(queue: Driver) -> None:
    queue.push("j1", payload=1, unique="u")
    queue.push("j2", payload="AA==", payload_encoding="base64", unique="u", replace="payload")
    assert (bytes(queue.job("j1").payload), queue.job("j1").payload_encoding) == (
        b'"AA=="',
        "base64",
    )


def test_a_job_whose_time_was_moved_often_is_claimed_once(queue: Driver) -> None:
    queue.push("j", unique="u")
    for number, delay_s in enumerate((0.0, 5.0, 0.0, 9.0, 5.0, 9.0, 0.0, 1.0, 5.0)):
        run_at = START + timedelta(seconds=delay_s)
        queue.push(f"x{number}", unique="u", run_at=run_at, replace="run_at")
        assert queue.claim_ids() == ([] if delay_s else ["j"])
        if not delay_s:
            job = queue.job("j")
            queue.ok(Release(job="j", lease=lease_of(job)))
    queue.wait(60)
    assert queue.claim_ids() == ["j"]


def test_lanes_do_not_grow_with_what_replaces_a_job(queue: Driver) -> None:
    queue.push("j1", unique="u")
    for number in range(5000):
        queue.push(f"x{number}", unique="u", delay_s=number % 2 * 5.0, replace="both")
    assert len(queue.state.waiting.lanes["index"]) < 2000
    assert len(queue.state.delayed) < 200


def test_a_name_is_known_to_a_process_that_reads_the_object(queue: Driver) -> None:
    queue.push("j1", unique="u")
    queue.reload()
    assert queue.state.requires == {"unique": None}
    assert queue.push("j2", unique="u") == "j1"


def test_the_index_forgets_jobs_that_are_done(queue: Driver) -> None:
    for number in range(1000):
        queue.push(f"j{number}", unique=f"u{number}")
        queue.complete(queue.claim_one())
    assert len(queue.state.unique._ids or ()) < 200


def test_within_a_period_the_name_is_taken_whatever_became_of_the_job(queue: Driver) -> None:
    queue.push("j1", unique="u", unique_s=60.0)
    queue.complete(queue.claim_one())
    queue.let_go("j1")
    queue.wait(60)
    answer = queue.ok(Push(jobs=(new_job("j2", unique="u", unique_s=60.0),)))[0]
    assert (answer, answer.duplicate) == ("j1", True)
    queue.wait(0.5)
    assert queue.push("j3", unique="u", unique_s=60.0) == "j3"
    assert queue.push("j4", unique="u", unique_s=60.0) == "j3"


def test_a_period_replaces_a_job_that_still_waits(queue: Driver) -> None:
    queue.push("j1", payload=1, unique="u", unique_s=60.0)
    queue.push("j2", payload=2, unique="u", unique_s=60.0, replace="payload")
    assert bytes(queue.job("j1").payload) == b"2"
    queue.complete(queue.claim_one())
    assert queue.push("j3", payload=3, unique="u", unique_s=60.0, replace="payload") == "j1"
    assert bytes(queue.job("j1").payload) == b"2"


def test_a_period_is_bounded_by_the_retention_of_keys(queue: Driver) -> None:
    push = Push(jobs=(new_job("j1", unique="u", unique_s=3601.0),))
    assert "key_retention_s" in queue.refused(push, InvalidRequestError)


def test_periods_are_bounded_and_tidied_like_keys() -> None:
    queue = Driver(max_format=2, max_keys=1, key_retention_s=100.0)
    queue.push("j1", unique="u", unique_s=60.0)
    push = Push(jobs=(new_job("j2", unique="v", unique_s=60.0),))
    assert "max_keys" in queue.refused(push, QueueFullError)
    assert queue.push("j3", unique="v") == "j3"
    queue.wait(101)
    assert queue.ok(Tidy()) == 1
    assert not len(queue.state.keys)


def test_a_period_is_no_key_that_a_user_can_give(queue: Driver) -> None:
    queue.push("j1", unique="u", unique_s=60.0)
    (key,) = queue.state.keys
    assert "begin with" in queue.refused(
        Push(jobs=(new_job("j2", key=key.id),)), InvalidRequestError
    )


def test_a_key_decides_before_the_name(queue: Driver) -> None:
    queue.push("j1", key="k", unique="u")
    queue.complete(queue.claim_one())
    assert queue.push("j2", unique="u") == "j2"
    assert queue.push("j3", key="k", unique="u") == "j1"


def test_a_key_of_a_duplicate_stands_for_the_job_that_is_there(queue: Driver) -> None:
    queue.push("j1", unique="u")
    assert queue.push("j2", key="k", unique="u") == "j1"
    queue.complete(queue.claim_one())
    assert queue.push("j3", key="k", unique="u") == "j1"


def test_a_repeated_request_replaces_once(queue: Driver) -> None:
    queue.push("j1", payload=1, unique="u")
    push = Push(jobs=(new_job("j2", payload=2, unique="u", replace="payload"),))
    assert queue.ok(push, "s", number=1) == ("j1",)
    queue.push("j3", payload=3, unique="u", replace="payload")
    again: JobId = queue.ok(push, "s", number=1)[0]
    assert (again, again.duplicate) == ("j1", True)
    assert bytes(queue.job("j1").payload) == b"3"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"unique": ""}, "unique must have"),
        ({"unique": "u", "unique_scope": "running"}, "the scope of a unique job"),
        ({"unique": "u", "unique_s": 0}, "more than 0"),
        ({"unique": "u", "unique_s": 5.0, "unique_scope": "queued"}, "not both"),
        ({"unique": "u", "replace": "all"}, "replace is one of"),
        ({"replace": "both"}, "give unique too"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    queue: Driver, fields: dict[str, Any], said: str
) -> None:
    assert said in queue.refused(Push(jobs=(new_job("j1", **fields),)), InvalidRequestError)


def test_a_name_cannot_stand_twice_in_a_push(queue: Driver) -> None:
    twice = Push(jobs=(new_job("j1", unique="u"), new_job("j2", unique="u")))
    assert "stands twice" in queue.refused(twice, InvalidRequestError)


def test_unique_jobs_need_format_2() -> None:
    refused = Driver().refused(Push(jobs=(new_job("j1", unique="u"),)), RejectedError)
    assert "bucketq upgrade" in refused


def test_a_larger_payload_needs_room(queue: Driver) -> None:
    queue.push("j1", unique="u")
    queue.commit()
    queue.ok(Configure(changes={"max_bytes": queue.state.size_bytes + 50}))
    larger = Push(jobs=(new_job("j2", payload="x" * 100, unique="u", replace="payload"),))
    queue.refused(larger, QueueFullError)


def deep_queue(*jobs: object) -> DeepState:
    deep = DeepState(State(incarnation="test", created_at=START))
    deep.apply(Request(Push(jobs=jobs)), START).result()  # type: ignore[arg-type]
    return deep


def spill(deep: DeepState, cls: SegmentClass, count: int = 100) -> None:
    spilled = deep.spill(cls, START, count)
    assert spilled is not None
    assert deep.apply(Request(spilled), START).answer


@pytest.mark.parametrize("is_reloaded", [True, False])
@pytest.mark.parametrize("cls", ["ready", "later"])
def test_a_job_in_a_segment_has_its_name_and_is_replaced_there(
    cls: SegmentClass, is_reloaded: bool
) -> None:
    delay_s = 60.0 if cls == "later" else None
    deep = deep_queue(*(new_job(f"j{n}", unique=f"u{n}", delay_s=delay_s) for n in range(9)))
    spill(deep, cls)
    if is_reloaded:
        deep.reload()
    push = Push(jobs=(new_job("x", payload=7, unique="u4", replace="both"),))
    assert deep.apply(Request(push), START).answer == ("j4",)
    (job,) = [job for job in deep.jobs() if job.id == "j4"]
    assert (job.payload, job.run_at) == (Raw(b"7"), None)
    assert len(deep.jobs()) == 9
    spill(deep, "ready", 1)
    assert deep.apply(Request(push), START).answer == ("j4",)


def test_a_dead_job_in_a_segment_has_no_name() -> None:
    deep = deep_queue(new_job("j1", unique="u"))
    driver = Driver()
    driver.state = deep.state
    driver.fail(driver.claim_one(), retry=False)
    spill(deep, "dead")
    assert deep.apply(Request(Push(jobs=(new_job("j2", unique="u"),))), START).answer == ("j2",)


def test_segments_without_unique_jobs_are_not_read_for_a_name() -> None:
    deep = deep_queue(*(new_job(f"j{n}") for n in range(9)))
    spill(deep, "ready")
    deep.reload()
    deep.apply(Request(Push(jobs=(new_job("x", unique="u"),)), "s", 1), START).result()
    assert {what for _, what in deep.memory.read} <= {"index", "ids"}
    ids = [what for _, what in deep.memory.read if what == "ids"]
    assert len(ids) == 1  # For the id of the job, which is its user's own.


def test_names_of_a_large_push_are_compared_and_found() -> None:
    deep = deep_queue(new_job("j1", unique="u1"))
    jobs = tuple(new_job(f"x{n}", unique=f"u{n}", replace="payload", payload=n) for n in range(4))
    request = deep.write_push(Request(Push(jobs=jobs), "s", 1), START, 2)
    assert deep.apply(request, START).answer == ("x0", "j1", "x2", "x3")
    assert [(job.id, bytes(job.payload)) for job in deep.jobs()] == [
        ("j1", b"1"),
        ("x0", b"0"),
        ("x2", b"2"),
        ("x3", b"3"),
    ]
    deep.reload()
    push = Push(jobs=(new_job("y", unique="u3"),))
    assert deep.apply(Request(push, "s", 2), START).answer == ("x3",)


def test_a_merged_segment_still_has_the_names() -> None:
    deep = deep_queue(*(new_job(f"j{n}", unique=f"u{n}") for n in range(6)))
    spill(deep, "ready", 3)
    spill(deep, "ready", 3)
    merge = deep.merge("ready", START, 2)
    assert merge is not None
    assert deep.apply(Request(merge), START).answer == 2
    deep.reload()
    push = Push(jobs=(new_job("x", unique="u5"),))
    assert deep.apply(Request(push), START).answer == ("j5",)
