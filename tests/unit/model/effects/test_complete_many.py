"""Several jobs are finished in one request, and each of them for itself."""

import pytest
from msgspec import Raw

from bucketq.errors import InvalidRequestError, PayloadError, PayloadTooLargeError
from bucketq.model.operations import Cancel, Complete, CompleteMany, Completion
from bucketq.model.records import NOTHING, JobRecord
from tests.unit.model.driver import START, Driver, lease_of, rows_of


@pytest.fixture
def queue() -> Driver:
    return Driver(backoff={"base_s": 0.0})


def claimed(queue: Driver, *names: str) -> list[JobRecord]:
    queue.push_many(*names)
    return list(queue.claim(limit=len(names)))


def finished(job: JobRecord, result: bytes = b"") -> Completion:
    return Completion(job=job.id, lease=lease_of(job), result=Raw(result) if result else NOTHING)


def many(*jobs: Completion) -> CompleteMany:
    return CompleteMany(jobs=jobs)


def test_each_job_is_done_with_its_own_result(queue: Driver) -> None:
    one, two, three = claimed(queue, "j1", "j2", "j3")
    queue.wait(2)
    encoded = Completion(
        job=three.id, lease=lease_of(three), result=Raw(b'"AAE="'), result_encoding="base64"
    )
    assert queue.ok(many(finished(one, b"[1]"), finished(two), encoded)) == (True, True, True)
    done = [queue.job(name) for name in ("j1", "j2", "j3")]
    assert {(job.status, job.outcome, job.finished_at) for job in done} == {
        ("done", "completed", queue.now)
    }
    assert [bytes(job.result) for job in done] == [b"[1]", b"", b'"AAE="']
    assert [job.result_encoding for job in done] == [None, None, "base64"]
    assert [job.id for job in queue.state.done] == ["j1", "j2", "j3"]


def test_a_job_finished_among_others_is_as_one_finished_alone(queue: Driver) -> None:
    other = Driver(backoff={"base_s": 0.0})
    (job,) = claimed(queue, "j1")
    (twin,) = claimed(other, "j1")
    queue.ok(many(finished(job, b"7")))
    other.ok(Complete(job="j1", lease=lease_of(twin), result=Raw(b"7")))
    assert rows_of(queue.state) == rows_of(other.state)


def test_a_lost_lease_does_not_hold_up_the_others(queue: Driver) -> None:
    lost, held, again = claimed(queue, "j1", "j2", "j3")
    queue.expire(lost)
    queue.expire(again)
    assert queue.claim_one().id == "j1"
    unknown = Completion(job="unknown", lease="x")
    wrong = Completion(job="j2", lease="wrong")
    operation = many(finished(lost), unknown, wrong, finished(held), finished(again))
    applied = queue.send(operation)
    assert applied.answer == (False, False, False, True, False)
    assert applied.changes == [("jobs", "j2")]
    statuses = [queue.job(name).status for name in ("j1", "j2", "j3")]
    assert statuses == ["running", "done", "queued"]


def test_a_lease_that_stands_twice_finishes_its_job_once(queue: Driver) -> None:
    (job,) = claimed(queue, "j1")
    applied = queue.send(many(finished(job, b"1"), finished(job, b"2")))
    assert applied.answer == (True, True)
    assert applied.changes == [("jobs", "j1")]
    assert bytes(queue.job("j1").result) == b"1"


def test_what_was_completed_before_under_the_same_lease_is_finished(queue: Driver) -> None:
    one, two = claimed(queue, "j1", "j2")
    queue.complete(one)
    before = queue.job("j1")
    queue.wait(5)
    assert queue.ok(many(finished(one, b"9"), finished(two))) == (True, True)
    assert queue.job("j1") == before


def test_a_cancelled_job_was_not_finished(queue: Driver) -> None:
    asked, ended = claimed(queue, "j1", "j2")
    queue.ok(Cancel(job="j1"))
    queue.ok(Cancel(job="j2"))
    queue.fail(ended)
    assert queue.ok(many(finished(asked), finished(ended))) == (True, False)
    assert (queue.job("j1").outcome, queue.job("j2").outcome) == ("completed", "cancelled")
    assert queue.job("j1").cancel_requested is False


def test_completing_no_jobs_is_allowed(queue: Driver) -> None:
    applied = queue.send(many(), "s", number=1)
    assert (applied.answer, applied.error, applied.changes) == ((), None, [])


@pytest.mark.parametrize("reload", [False, True])
def test_completions_that_come_again_are_answered_alike_also_from_the_archive(
    queue: Driver, reload: bool
) -> None:
    lost, one, two = claimed(queue, "j1", "j2", "j3")
    queue.expire(lost)
    operation = many(finished(one), finished(lost), finished(two))
    answer = queue.ok(operation, "s", number=1)
    assert answer == (True, False, True)
    queue.let_go("j2", "j3")
    if reload:
        queue.reload()
    before = rows_of(queue.state)
    applied = queue.send(operation, "s", number=1, since=0)
    assert (applied.answer, applied.error, applied.changes) == (answer, None, [])
    assert rows_of(queue.state) == before
    assert queue.ok(operation) == (False, False, False)


def test_completions_that_were_all_granted_leave_no_answer_behind(queue: Driver) -> None:
    jobs = claimed(queue, "j1", "j2")
    operation = many(*map(finished, jobs))
    queue.ok(operation, "s", number=1)
    session = queue.state.sessions.get("s")
    assert session is not None
    assert (session.done, session.answers) == ([[1, 1]], {})
    queue.reload()
    assert queue.ok(operation, "s", number=1, since=0) == (True, True)


def test_completions_that_changed_nothing_are_not_remembered(queue: Driver) -> None:
    queue.ok(many(Completion(job="unknown", lease="x")), "s", number=1)
    assert queue.state.sessions.get("s") is None


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"result": Raw(b"{")}, PayloadError),
        ({"result": Raw(b'"' + b"x" * 1_100_000 + b'"')}, PayloadTooLargeError),
        ({"result": 5}, InvalidRequestError),
        ({"result_encoding": "hex"}, InvalidRequestError),
    ],
)
def test_a_bad_result_refuses_all_of_them(
    queue: Driver, bad: dict[str, object], error: type[Exception]
) -> None:
    one, two = claimed(queue, "j1", "j2")
    worse = Completion(job="j2", lease=lease_of(two), **bad)  # type: ignore[arg-type]
    queue.refused(many(finished(one), worse), error)
    assert not queue.state.done


def test_more_jobs_than_a_batch_holds_are_refused() -> None:
    queue = Driver(max_batch_jobs=2)
    jobs = [finished(job) for name in ("j1", "j2", "j3") for job in claimed(queue, name)]
    message = queue.refused(many(*jobs), InvalidRequestError)
    assert "3 jobs" in message
    assert "max_batch_jobs" in message
    assert queue.ok(many(*jobs[:2])) == (True, True)
    assert queue.job("j1").claimed_at == START
