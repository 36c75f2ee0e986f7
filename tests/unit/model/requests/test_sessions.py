"""A repeated request takes effect once, or is answered that its outcome is unknown."""

from typing import Any

import pytest
from msgspec import Raw

from bucketq.errors import InvalidRequestError, UnavailableError
from bucketq.model.numbered_batches import OpenConsumer, Publish, RemoveConsumer
from bucketq.model.operations import (
    AnyOperation,
    Cancel,
    Claim,
    Complete,
    Configure,
    Fail,
    Pause,
    Purge,
    Push,
    Redrive,
    Release,
    Resume,
    SetPriority,
    Tidy,
)
from bucketq.model.requests.sessions import MISSING, Session, Sessions
from bucketq.model.settings import Settings
from tests.unit.model.driver import SECRET, START, Driver, lease_of, new_job, rows_of


@pytest.fixture
def queue() -> Driver:
    return Driver(backoff={"base_s": 0.0})


def push(job_id: str) -> Push:
    return Push(jobs=(new_job(job_id),))


def test_every_change_that_comes_again_is_answered_alike_and_made_once(queue: Driver) -> None:
    queue.push_many("complete", "fail", "release", "cancel")
    jobs = {job.id: lease_of(job) for job in queue.claim(limit=3)}
    queue.kill("redriven", "purged")
    operations: list[AnyOperation] = [
        push("j1"),
        Complete(job="complete", lease=jobs["complete"]),
        Fail(job="fail", lease=jobs["fail"], error="boom"),
        Release(job="release", lease=jobs["release"]),
        Cancel(job="cancel"),
        Redrive(jobs=("redriven",)),
        Purge(),
        Pause(),
        Resume(),
    ]
    answers = [queue.ok(op, "s", number=n) for n, op in enumerate(operations, 1)]
    assert answers == [("j1",), None, "queued", None, "cancelled", 1, 1, None, None]
    for _ in range(2):
        before = rows_of(queue.state)
        for number, operation in enumerate(operations, 1):
            applied = queue.send(operation, "s", number=number, since=0)
            assert applied.answer == answers[number - 1]
            assert (applied.error, applied.changes) == (None, [])
        assert rows_of(queue.state) == before
        queue.reload()


def test_an_id_that_is_used_for_another_request_is_rejected(queue: Driver) -> None:
    queue.push_many("a", "b", "c", "d", "e", "f", "g")
    jobs = {job.id: lease_of(job) for job in queue.claim(limit=4)}
    queue.kill("h", "i")
    pairs: list[tuple[AnyOperation, AnyOperation]] = [
        (push("j1"), push("j2")),
        (push("j3"), Push(jobs=(new_job("j3", payload=2),))),
        (Complete(job="a", lease=jobs["a"]), Complete(job="a", lease=jobs["a"], result=Raw(b"1"))),
        (Fail(job="b", lease=jobs["b"], error="x"), Fail(job="b", lease=jobs["b"], error="y")),
        (Release(job="c", lease=jobs["c"]), Release(job="d", lease=jobs["d"])),
        (Cancel(job="e"), Cancel(job="f")),
        (SetPriority(job="g", priority=1), SetPriority(job="g", priority=2)),
        (Redrive(jobs=("h",)), Redrive(jobs=("i",))),
        (Purge(jobs=("i",)), Purge()),
        (Pause(kind="mail"), Pause()),
        (Resume(kind="mail"), Resume()),
        (Configure(changes={"max_dead": 7}), Configure(changes={"max_dead": 8})),
        (claim(limit=1), claim(limit=2)),
        (OpenConsumer(consumer="a"), OpenConsumer(consumer="b")),
        (Publish(writer="w", batch=1, jobs=()), Publish(writer="w", batch=2, jobs=())),
        (RemoveConsumer(consumer="a"), RemoveConsumer(consumer="c")),
        (Pause(), Resume()),
    ]
    for number, (first, _) in enumerate(pairs, 1):
        assert queue.send(first, "s", number=number).changes, first
    for _ in range(2):
        for number, (first, other) in enumerate(pairs, 1):
            before = rows_of(queue.state)
            applied = queue.send(other, "s", number=number, since=0)
            assert isinstance(applied.error, InvalidRequestError), other
            assert "request id reused" in str(applied.error)
            assert queue.send(first, "s", number=number, since=0).error is None
            assert rows_of(queue.state) == before
        queue.reload()


def test_one_answer_that_stays_out_does_not_let_a_session_grow() -> None:
    session = Session(id="s", seq=1, at=START, version=1)
    for number in range(1, 5000):
        session.record([(number, None, f"digest {number}")])
    assert len(session.digests) == 1000
    assert session.digests[4999] == "digest 4999"
    assert session.find(1) is None, "that it took effect is remembered all the same"


def claim(**fields: Any) -> Claim:
    return Claim(worker="w", secret=SECRET, **fields)


def test_a_claim_may_come_again_from_another_process_with_less_time_to_wait(queue: Driver) -> None:
    queue.push_many("a")
    (job,) = queue.ok(claim(wait_s=20.0), "s", number=1)
    again = Claim(worker="another", secret=SECRET[::-1], wait_s=1.5)
    assert queue.ok(again, "s", number=1, since=0) == (job,)


def test_a_request_that_older_code_recorded_is_answered_again(queue: Driver) -> None:
    queue.ok(push("a"), "s", number=1)
    queue.state.sessions.table.by_id["s"].digests.clear()
    queue.reload()
    assert queue.send(push("b"), "s", number=1).changes == []


def test_what_cannot_be_encoded_under_a_used_id_is_rejected(queue: Driver) -> None:
    queue.ok(push("a"), "s", number=1)
    bad = Push(jobs=(new_job("b", delay_s="soon"), new_job("c", backoff=5)))
    assert "reused" in str(queue.send(bad, "s", number=1).error)


def test_the_same_number_of_another_session_is_another_request(queue: Driver) -> None:
    queue.ok(push("j1"), "a", number=1)
    queue.ok(push("j2"), "b", number=1)
    assert len(queue.state.jobs) == 2


def test_a_request_without_a_session_is_not_remembered(queue: Driver) -> None:
    queue.ok(push("j1"))
    assert len(queue.state.sessions) == 0


def test_a_refused_request_is_not_remembered_and_may_be_granted_later(queue: Driver) -> None:
    queue.push("j1")
    queue.refused(Redrive(jobs=("j1",)), InvalidRequestError, "s", number=1)
    queue.fail(queue.claim_one(), retry=False)
    assert queue.ok(Redrive(jobs=("j1",)), "s", number=1, since=0) == 1


def test_what_is_remembered_is_named_among_the_changes(queue: Driver) -> None:
    assert queue.send(push("j1"), "s", number=1).changes == [("jobs", "j1"), ("sessions", "s")]


def test_what_a_client_acknowledged_is_forgotten(queue: Driver) -> None:
    for number in range(1, 6):
        queue.ok(push(f"j{number}"), "s", number=number, acknowledged_below=number - 1)
    session = queue.state.sessions.get("s")
    assert session is not None
    assert (session.floor, session.done) == (4, [[4, 5]])


def test_a_request_below_the_floor_is_refused_and_not_applied_again(queue: Driver) -> None:
    queue.ok(push("j1"), "s", number=1)
    queue.ok(push("j2"), "s", number=2, acknowledged_below=2)
    message = queue.refused(push("j9"), InvalidRequestError, "s", number=1, since=0)
    assert "acknowledged" in message


def test_a_floor_never_falls(queue: Driver) -> None:
    queue.ok(push("j5"), "s", number=5, acknowledged_below=5)
    queue.ok(push("j6"), "s", number=6, acknowledged_below=2)
    queue.refused(push("j4"), InvalidRequestError, "s", number=4)


def test_requests_may_come_out_of_order(queue: Driver) -> None:
    for number in (7, 3, 4, 9, 8):
        queue.ok(push(f"j{number}"), "s", number=number)
    queue.reload()
    for number in (3, 4, 7, 8, 9):
        assert queue.send(push(f"j{number}"), "s", number=number, since=0).changes == []
    assert queue.send(push("j5"), "s", number=5).changes != []


def test_numbers_in_a_row_are_one_range() -> None:
    session = Session(id="s", seq=1, at=START, version=1)
    for number in range(1, 1000):
        session.record([(number, None, f"digest {number}")])
    assert session.done == [[1, 999]]
    session.raise_floor(500)
    assert session.done == [[500, 999]]
    assert session.find(499) is MISSING
    assert session.find(500) is None
    assert len(session.digests) == 500


def test_a_floor_cuts_ranges_and_answers() -> None:
    session = Session(id="s", seq=1, at=START, version=1)
    for number in (1, 2, 5, 6, 9):
        session.record([(number, f"answer {number}", f"digest {number}")])
    session.raise_floor(6)
    assert session.done == [[6, 6], [9, 9]]
    assert session.answers == {6: "answer 6", 9: "answer 9"}
    assert session.digests == {6: "digest 6", 9: "digest 9"}
    session.raise_floor(3)
    assert session.floor == 6


def test_a_forgotten_request_is_unknown_and_never_applied_twice() -> None:
    queue = Driver(session_retention_s=10.0)
    queue.ok(push("j1"), "s", number=1)
    queue.commit()
    queue.complete(queue.claim_one())
    queue.wait(11)
    queue.ok(Tidy())
    queue.reload()
    message = queue.refused(push("j2"), UnavailableError, "s", number=1, since=0)
    assert "unknown" in message


def test_a_request_that_began_after_the_horizon_was_never_applied() -> None:
    queue = Driver(session_retention_s=10.0)
    queue.ok(push("j1"), "s", number=1)
    queue.commit()
    queue.wait(11)
    queue.ok(Tidy())
    assert queue.state.sessions.horizon == 1
    assert queue.ok(push("j2"), "s", number=2, since=1) == ("j2",)


def test_a_request_that_was_just_applied_and_forgotten_in_one_commit_is_unknown() -> None:
    queue = Driver(max_sessions=1)
    since = queue.state.version
    queue.ok(push("j1"), "a", number=1)
    queue.ok(push("j2"), "b", number=1)
    queue.ok(Tidy())
    queue.commit()
    queue.refused(push("j1"), UnavailableError, "a", number=1, since=since)
    assert queue.send(push("j2"), "b", number=1, since=since).changes == []


def test_a_remembered_request_is_answered_whatever_the_horizon_is() -> None:
    queue = Driver(max_sessions=1)
    queue.ok(push("j1"), "a", number=1)
    queue.commit()
    queue.ok(push("j2"), "b", number=1)
    queue.ok(Tidy())
    assert queue.ok(push("j2"), "b", number=1, since=0) == ("j2",)
    queue.refused(push("j3"), UnavailableError, "b", number=2, since=0)


def test_the_first_sending_is_applied_whatever_the_horizon_is() -> None:
    queue = Driver(max_sessions=1)
    for name in ("a", "b"):
        queue.ok(push(name), name, number=1)
        queue.commit()
    queue.ok(Tidy())
    assert queue.ok(push("j3"), "a", number=2) == ("j3",)


@pytest.mark.parametrize("reload", [False, True])
def test_which_session_is_forgotten_depends_on_the_rows_alone(
    reload: bool,
) -> None:
    queue = Driver(max_sessions=1)
    queue.ok(push("j1"), "a", number=1)
    queue.ok(push("j2"), "b", number=1)
    queue.ok(push("j3"), "a", number=2)
    if reload:
        queue.reload()
    queue.ok(Tidy())
    assert [session.id for session in queue.state.sessions.table] == ["b"]


def test_a_session_written_often_costs_one_place() -> None:
    sessions = Sessions()
    for version in range(1, 5000):
        sessions.write("often", [(version, None, "")], START, version=version, floor=version)
        if version % 100 == 0:
            sessions.write(f"s{version}", [(1, None, "")], START, version=version)
    assert len(sessions) == 50
    assert len(sessions._by_version) <= 2 * 50 + 64
    few = Settings(max_sessions=1)
    assert len(sessions.forget_expired(few, START)) == 49
    assert [session.id for session in sessions.table] == ["often"]
    assert sessions.horizon == 4900


def test_a_session_that_is_made_again_takes_its_new_place_in_the_order() -> None:
    """Its earlier entries must not count, or the order would change with a reload."""
    settings = Settings(max_sessions=1)
    sessions = Sessions()
    for session_id in ("z", "y"):
        sessions.write(session_id, [(1, None, "")], START, version=1)
    assert sessions.forget_expired(settings, START) == ["z"]
    sessions.write("z", [(2, None, "")], START, version=1)
    assert sessions.forget_expired(settings, START) == ["y"]
