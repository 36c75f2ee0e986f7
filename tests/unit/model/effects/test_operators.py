"""What operators do: cancel, redrive, purge, pause, resume, configure, tidy."""

from typing import Any

import pytest

from bucketq.errors import InvalidRequestError, JobNotFoundError, RejectedError
from bucketq.model.effects.dead_jobs import dead_jobs
from bucketq.model.effects.operators import is_untidy
from bucketq.model.operations import (
    AnyOperation,
    Cancel,
    Configure,
    Pause,
    Purge,
    Push,
    Redrive,
    Resume,
    Tidy,
)
from bucketq.model.records import Backoff
from bucketq.model.settings import Settings
from tests.unit.model.driver import Driver, new_job


@pytest.fixture
def queue() -> Driver:
    return Driver()


def test_a_waiting_job_is_cancelled_at_once(queue: Driver) -> None:
    queue.push("j1")
    queue.wait(1)
    assert queue.ok(Cancel(job="j1")) == "cancelled"
    job = queue.job("j1")
    assert (job.status, job.outcome, job.finished_at) == ("done", "cancelled", queue.now)


def test_cancelling_again_answers_the_same_and_changes_nothing(queue: Driver) -> None:
    queue.push_many("waiting", "running")
    for job_id, answer in (("waiting", "cancelled"), ("running", "requested")):
        if job_id == "running":
            queue.claim()
        assert queue.ok(Cancel(job=job_id)) == answer
        applied = queue.send(Cancel(job=job_id))
        assert (applied.answer, applied.changes) == (answer, [])


def test_a_finished_or_dead_job_cannot_be_cancelled(queue: Driver) -> None:
    queue.push("j1")
    queue.complete(queue.claim_one())
    queue.kill("j2")
    assert queue.ok(Cancel(job="j1")) == "finished"
    assert queue.ok(Cancel(job="j2")) == "finished"
    assert queue.job("j2").status == "dead"


@pytest.mark.parametrize(
    "operation", [Cancel(job="j9"), Redrive(jobs=("j9",)), Purge(jobs=("j9",))]
)
def test_a_job_that_is_not_there_is_not_found(queue: Driver, operation: AnyOperation) -> None:
    assert "'j9'" in queue.refused(operation, JobNotFoundError)


def test_a_redrive_takes_all_dead_jobs(queue: Driver) -> None:
    queue.kill("j1", "j2")
    queue.push("j3")
    assert queue.ok(Redrive()) == 2
    assert queue.state.counts == {("doomed", "queued"): 2, ("index", "queued"): 1}
    assert queue.ok(Redrive()) == 0
    assert queue.claim_ids() == ["j1", "j2", "j3"]


def test_a_redrive_takes_those_that_died_first(queue: Driver) -> None:
    queue.push_many("j1", "j2", "j3")
    one, two, three = queue.claim(limit=3)
    for job in (three, one, two):
        queue.wait(1)
        queue.fail(job, retry=False)
    assert queue.ok(Redrive(limit=2)) == 2
    assert queue.claim_ids() == ["j1", "j3"]


@pytest.mark.parametrize("seconds", [0, -5])
@pytest.mark.parametrize("reload", [False, True])
def test_which_job_died_first_depends_on_the_rows_alone(
    queue: Driver, seconds: int, reload: bool
) -> None:
    queue.push_many("j1", "j2")
    one, two = queue.claim(limit=2)
    queue.fail(two, retry=False)
    queue.wait(seconds)
    queue.fail(one, retry=False)
    if reload:
        queue.reload()
    assert queue.ok(Redrive(limit=1)) == 1
    assert queue.claim_ids() == ["j1"]


def test_a_redrive_chooses_by_kind_and_by_name(queue: Driver) -> None:
    queue.kill("j1", "j2", "j3")
    assert queue.ok(Redrive(kinds=("other",))) == 0
    assert queue.ok(Redrive(jobs=("j2", "j2"), kinds=("doomed",))) == 1
    assert queue.claim_ids() == ["j2"]


@pytest.mark.parametrize("verb", [Redrive, Purge])
def test_one_named_job_that_is_not_dead_keeps_all_as_they_are(
    queue: Driver, verb: type[Redrive] | type[Purge]
) -> None:
    queue.kill("j1")
    queue.push("j2")
    message = queue.refused(verb(jobs=("j1", "j2")), InvalidRequestError)
    assert "j2 is queued" in message


def test_a_purge_finishes_dead_jobs_for_good(queue: Driver) -> None:
    queue.kill("j1", "j2")
    queue.wait(1)
    assert queue.ok(Purge(jobs=("j1",))) == 1
    job = queue.job("j1")
    assert (job.status, job.outcome, job.finished_at) == ("done", "dead", queue.now)
    assert queue.ok(Purge()) == 1
    assert queue.ok(Redrive()) == 0


def test_a_purge_by_age_keeps_the_younger(queue: Driver) -> None:
    queue.kill("old")
    queue.wait(60)
    queue.kill("young")
    assert queue.ok(Purge(older_than_s=60.0)) == 1
    assert queue.job("young").status == "dead"


def test_a_purge_without_an_age_takes_what_died_by_a_clock_that_was_ahead(queue: Driver) -> None:
    queue.kill("j1")
    queue.wait(-60)
    assert queue.ok(Purge(older_than_s=1.0)) == 0
    assert queue.ok(Purge()) == 1


@pytest.mark.parametrize(
    "operation",
    [
        Redrive(limit=-1),
        Redrive(kinds=("",)),
        Purge(older_than_s=-1.0),
        Purge(older_than_s=float("nan")),
        Purge(kinds=("no spaces",)),
        Pause(kind=""),
    ],
)
def test_a_bad_choice_is_refused(queue: Driver, operation: AnyOperation) -> None:
    queue.kill("j1")
    queue.refused(operation, InvalidRequestError)


def test_pausing_twice_is_pausing_once(queue: Driver) -> None:
    for operation in (Pause(), Pause(kind="a")):
        assert queue.send(operation).changes[:1] == [("head", "")]
        assert queue.send(operation).changes == []


def test_running_jobs_continue_while_the_queue_is_paused(queue: Driver) -> None:
    queue.push_many("j1", "j2")
    one, two = queue.claim(limit=2)
    queue.ok(Pause())
    queue.complete(one)
    queue.fail(two)
    queue.push("j3")


def test_resuming_a_kind_leaves_other_pauses(queue: Driver) -> None:
    for kind in ("a", "b", None):
        queue.ok(Pause(kind=kind))
    queue.ok(Resume(kind="a"))
    assert (queue.state.paused, list(queue.state.paused_kinds)) == (True, ["b"])
    queue.ok(Resume())
    assert (queue.state.paused, list(queue.state.paused_kinds)) == (False, [])
    assert queue.send(Resume()).changes == []
    assert queue.send(Resume(kind="a")).changes == []


def test_no_more_kinds_can_be_paused_than_there_may_be() -> None:
    queue = Driver(max_kinds=2)
    queue.ok(Pause(kind="a"))
    queue.ok(Pause(kind="b"))
    assert "max_kinds" in queue.refused(Pause(kind="c"), RejectedError)
    queue.ok(Pause(kind="a"))


def test_settings_are_changed_and_answered(queue: Driver) -> None:
    applied = queue.send(Configure(changes={"lease_s": 60, "backoff": {"base_s": 2}}))
    expected = Settings(lease_s=60.0, backoff=Backoff(base_s=2.0))
    assert (applied.answer, applied.changes[:1]) == (expected, [("head", "")])
    assert queue.state.settings == expected


def test_settings_that_are_so_already_change_nothing(queue: Driver) -> None:
    for changes in ({}, {"lease_s": 30.0}):
        assert queue.send(Configure(changes=changes)).changes == []


def test_a_retried_change_of_settings_answers_those_of_today(queue: Driver) -> None:
    change = Configure(changes={"max_jobs": 10})
    queue.ok(change, "s", number=1)
    queue.ok(Configure(changes={"max_jobs": 20}))
    assert queue.ok(change, "s", number=1, since=0).max_jobs == 20


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"colour": 1}, "colour"),
        ({5: 1}, "5"),
        ({"lease_s": "long"}, "lease_s"),
        ({"lease_s": None}, "lease_s"),
        ({"lease_s": 0.0}, "lease_s"),
        ({"lease_s": -1.0}, "lease_s"),
        ({"lease_s": float("nan")}, "lease_s"),
        ({"lease_s": float("inf")}, "lease_s"),
        ({"lease_s": 5.0}, "heartbeat_s"),
        ({"heartbeat_s": 30.0}, "lease_s"),
        ({"max_jobs": 0}, "max_jobs"),
        ({"max_jobs": 1.5}, "max_jobs"),
        ({"max_jobs": True}, "max_jobs"),
        ({"max_jobs": 10**400}, "max_jobs"),
        ({"lease_s": 10**400}, "lease_s"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_errors": 101}, "max_errors"),
        ({"max_errors": -1}, "max_errors"),
        ({"max_payload_bytes": 2**40}, "max_payload_bytes"),
        ({"backoff": {"factor": 0.5}}, "factor"),
        ({"backoff": {"base_s": -1.0}}, "base_s"),
        ({"backoff": {"max_s": float("inf")}}, "max_s"),
        ({"backoff": {"colour": 1}}, "colour"),
        ({"backoff": 3}, "backoff"),
        ({"max_jobs": 5, "max_keys": 0}, "max_keys"),
    ],
)
def test_a_bad_setting_is_refused_by_name(
    queue: Driver, changes: dict[str, Any], named: str
) -> None:
    assert named in queue.refused(Configure(changes=changes), InvalidRequestError)


@pytest.mark.parametrize(
    "name", ["grace_s", "clock_margin_s", "max_errors", "max_dead", "max_tags"]
)
def test_some_settings_may_be_zero(queue: Driver, name: str) -> None:
    assert getattr(queue.ok(Configure(changes={name: 0})), name) == 0


def test_a_tidy_queue_is_left_alone(queue: Driver) -> None:
    queue.kill("j1")
    queue.push("j2", key="k")
    assert not is_untidy(queue.state, queue.now)
    applied = queue.send(Tidy())
    assert (applied.answer, applied.changes) == (0, [])


def test_tidy_drops_keys_that_are_too_old_and_keeps_the_others() -> None:
    queue = Driver(key_retention_s=10.0)
    queue.push("j1", key="k1")
    queue.wait(5)
    queue.push("j2", key="k2")
    queue.wait(6)
    assert is_untidy(queue.state, queue.now)
    assert queue.send(Tidy()).changes == [("keys", "k1")]
    assert [key.id for key in queue.state.keys] == ["k2"]


def test_tidy_drops_sessions_that_are_too_old_and_names_them() -> None:
    queue = Driver(session_retention_s=10.0)
    queue.ok(Pause(), "old", number=1)
    queue.wait(5)
    queue.ok(Resume(), "young", number=1)
    queue.wait(6)
    assert is_untidy(queue.state, queue.now)
    applied = queue.send(Tidy())
    assert applied.answer == 1
    assert set(applied.changes) == {("sessions", "old"), ("head", "")}
    assert [session.id for session in queue.state.sessions.table] == ["young"]


def test_tidy_drops_the_oldest_sessions_if_there_are_too_many() -> None:
    queue = Driver(max_sessions=2)
    for number, name in enumerate(("a", "b", "c", "a"), 1):
        queue.ok(Push(jobs=(new_job(f"j{number}"),)), name, number=number)
        queue.commit()
    queue.ok(Tidy())
    assert [session.id for session in queue.state.sessions.table] == ["a", "c"]


def test_tidy_finishes_dead_jobs_that_are_too_old() -> None:
    queue = Driver(dead_retention_s=10.0)
    queue.kill("old")
    queue.wait(5)
    queue.kill("young")
    queue.wait(6)
    assert is_untidy(queue.state, queue.now)
    assert queue.ok(Tidy()) == 1
    job = queue.job("old")
    assert (job.status, job.outcome, job.finished_at) == ("done", "dead", queue.now)
    assert queue.job("young").status == "dead"


def test_tidy_finishes_the_oldest_dead_jobs_if_there_are_too_many() -> None:
    queue = Driver(max_dead=2)
    for job_id in ("j1", "j2", "j3", "j4"):
        queue.kill(job_id)
        queue.wait(1)
    assert queue.ok(Tidy()) == 2
    assert [job.id for job in dead_jobs(queue.state)] == ["j3", "j4"]


def test_tidy_may_keep_no_dead_jobs_at_all() -> None:
    queue = Driver(max_dead=0)
    queue.kill("j1", "j2")
    assert queue.ok(Tidy()) == 2
    assert not queue.state.dead
