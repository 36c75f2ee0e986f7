"""What a broker writes: that it leads, that it leaves, and whom it has not heard."""

from datetime import timedelta
from itertools import pairwise

import pytest

from bucketq.errors import InvalidRequestError, SupersededError
from bucketq.model.operations import Cancel, Heartbeat, Lead, Persist, Release, Retire, Silence
from bucketq.model.records import BrokerRecord
from tests.unit.model.driver import START, Driver, lease_of, ref


@pytest.fixture
def queue() -> Driver:
    return Driver(backoff={"base_s": 0.0})


def lead(name: str, after: int) -> Lead:
    return Lead(id=name, address=f"{name}:3000", host="host-1", after=after)


def silence(job: str, silent_s: float, attempt: int = 1) -> Persist:
    return Persist(silences=(Silence(job, attempt, silent_s),))


def test_the_first_broker_begins_epoch_one(queue: Driver) -> None:
    assert (queue.state.epoch, queue.state.is_served) == (0, False)
    queue.wait(3)
    applied = queue.send(lead("a", 0))
    expected = BrokerRecord("a:3000", "a", 1, START + timedelta(seconds=3), "host-1")
    assert applied.answer == queue.state.broker == expected
    assert applied.changes == [("head", "")]
    assert (queue.state.epoch, queue.state.is_served) == (1, True)


def test_a_takeover_follows_the_epoch_that_it_names(queue: Driver) -> None:
    queue.ok(lead("a", 0))
    assert queue.ok(lead("b", 1)).epoch == 2
    assert queue.state.broker is not None
    assert queue.state.broker.id == "b"


@pytest.mark.parametrize("after", [-1, 0, 2, 2**63])
def test_a_takeover_from_an_old_epoch_is_refused(queue: Driver, after: int) -> None:
    queue.ok(lead("a", 0))
    message = queue.refused(lead("b", after), SupersededError)
    assert "is in epoch 1" in message
    assert f"follow epoch {after}" in message
    assert "another broker was first" in message


def test_of_two_brokers_that_follow_the_same_epoch_one_leads(queue: Driver) -> None:
    queue.ok(lead("a", 0))
    queue.refused(lead("b", 0), SupersededError)


def test_leading_twice_changes_nothing(queue: Driver) -> None:
    first = queue.ok(lead("a", 0))
    queue.reload()
    queue.wait(10)
    applied = queue.send(lead("a", 0))
    assert (applied.answer, applied.error, applied.changes) == (first, None, [])


def test_a_broker_that_was_replaced_cannot_repeat_its_takeover(queue: Driver) -> None:
    queue.ok(lead("a", 0))
    queue.ok(lead("b", 1))
    queue.refused(lead("a", 0), SupersededError)
    assert queue.ok(lead("a", 2)).epoch == 3


def test_a_broker_that_retired_cannot_repeat_its_takeover(queue: Driver) -> None:
    queue.ok(lead("a", 0))
    queue.ok(Retire(id="a", epoch=1))
    assert "retired" in queue.refused(lead("a", 0), SupersededError)
    assert queue.ok(lead("a", 1)).epoch == 2


@pytest.mark.parametrize("field", ["id", "address", "host"])
@pytest.mark.parametrize("value", ["", "x" * 257, "\ud800", None])
def test_a_broker_without_a_proper_name_cannot_lead(
    queue: Driver, field: str, value: str | None
) -> None:
    fields: dict[str, object] = {"id": "a", "address": "a:3000", "host": "host-1"}
    fields[field] = value
    assert f"broker {field}" in queue.refused(Lead(**fields, after=0), InvalidRequestError)  # type: ignore[arg-type]


def test_a_broker_that_retires_leaves_its_epoch_and_no_address(queue: Driver) -> None:
    before = queue.ok(lead("a", 0))
    applied = queue.send(Retire(id="a", epoch=1))
    assert (applied.answer, applied.changes) == (True, [("head", "")])
    assert queue.state.broker == BrokerRecord("", "a", 1, before.since, "host-1")
    queue.reload()
    assert (queue.state.epoch, queue.state.is_served) == (1, False)
    queue.refused(lead("b", 0), SupersededError)
    assert queue.ok(lead("b", 1)).epoch == 2


def test_retiring_twice_changes_nothing(queue: Driver) -> None:
    queue.ok(lead("a", 0))
    queue.ok(Retire(id="a", epoch=1))
    applied = queue.send(Retire(id="a", epoch=1))
    assert (applied.answer, applied.error, applied.changes) == (True, None, [])


def test_a_retirement_never_touches_a_successor(queue: Driver) -> None:
    assert queue.ok(Retire(id="a", epoch=0)) is False
    queue.ok(lead("a", 0))
    queue.ok(lead("b", 1))
    successor = queue.state.broker
    for name, epoch in (("a", 1), ("a", 2), ("b", 1), ("b", 3)):
        applied = queue.send(Retire(id=name, epoch=epoch))
        assert (applied.answer, applied.changes) == (False, [])
        assert queue.state.broker == successor


def test_an_epoch_never_falls(queue: Driver) -> None:
    epochs = [queue.state.epoch]
    for name, after in (("a", 0), ("b", 0), ("b", 1), ("a", 0), ("a", 2)):
        queue.send(lead(name, after))
        epochs.append(queue.state.epoch)
        queue.send(Retire(id=name, epoch=queue.state.epoch))
        queue.reload()
        epochs.append(queue.state.epoch)
    assert all(later >= earlier for earlier, later in pairwise(epochs))
    assert epochs[-1] == 3


def test_what_a_broker_does_for_itself_is_not_remembered_in_a_session(queue: Driver) -> None:
    queue.ok(lead("a", 0), "s", number=1)
    queue.push("j1")
    queue.claim_one()
    queue.ok(silence("j1", 1.0), "s", number=2)
    queue.ok(Retire(id="a", epoch=1), "s", number=3)
    assert queue.state.sessions.get("s") is None


def test_a_silence_is_kept_as_a_duration_and_shown_as_a_time(queue: Driver) -> None:
    queue.push("j1")
    queue.claim_one()
    queue.wait(20)
    assert queue.ok(silence("j1", 7.5)) == 1
    for _ in range(2):
        job = queue.job("j1")
        assert (job.status, job.silent_s) == ("running", 7.5)
        assert job.heartbeat_at == START + timedelta(seconds=12.5)
        queue.reload()


def test_a_silence_in_whole_seconds_is_read_back_as_it_was_written(queue: Driver) -> None:
    queue.push("j1")
    queue.claim_one()
    queue.ok(silence("j1", 7))
    before = queue.job("j1")
    assert isinstance(before.silent_s, float)
    queue.reload()
    assert queue.job("j1") == before


def test_a_silence_leaves_jobs_alone_that_have_moved_on(queue: Driver) -> None:
    queue.push_many("again", "done", "dead", "back", "waits")
    jobs = {job.id: job for job in queue.claim(limit=4)}
    queue.expire(jobs["again"])
    assert queue.claim_one().attempt == 2
    queue.complete(jobs["done"])
    queue.fail(jobs["dead"], retry=False)
    queue.ok(Release(job="back", lease=lease_of(jobs["back"])))
    before = list(queue.state.jobs)
    names = ("again", "done", "dead", "back", "waits", "unknown")
    applied = queue.send(Persist(silences=tuple(Silence(name, 1, 5.0) for name in names)))
    assert (applied.answer, applied.changes) == (0, [])
    assert list(queue.state.jobs) == before


def test_a_silence_does_not_hold_up_the_others(queue: Driver) -> None:
    queue.push_many("j1", "j2")
    queue.complete(queue.claim(limit=2)[0])
    silences = tuple(Silence(name, 1, 5.0) for name in ("unknown", "j1", "j2"))
    assert queue.ok(Persist(silences=silences)) == 1
    assert queue.job("j2").silent_s == 5.0


@pytest.mark.parametrize("silent_s", [-1.0, float("nan"), float("inf"), 1e12, "5", None])
def test_a_silence_of_no_length_is_refused_and_no_other_is_noted(
    queue: Driver, silent_s: float
) -> None:
    queue.push_many("j1", "j2")
    queue.claim(limit=2)
    silences = (Silence("j1", 1, 5.0), Silence("j2", 1, silent_s))
    assert "silent_s" in queue.refused(Persist(silences=silences), InvalidRequestError)


def test_a_silence_ends_with_a_heartbeat(queue: Driver) -> None:
    queue.push("j1")
    job = queue.claim_one()
    queue.ok(silence("j1", 7.5))
    queue.ok(Heartbeat(leases=(ref(job),)))
    assert queue.job("j1").silent_s == 0.0


@pytest.mark.parametrize("end", ["complete", "fail", "expire", "release", "cancel"])
def test_a_silence_ends_with_its_attempt(queue: Driver, end: str) -> None:
    queue.push("j1")
    job = queue.claim_one()
    queue.ok(silence("j1", 7.5))
    if end in {"release", "cancel"}:
        if end == "cancel":
            queue.ok(Cancel(job="j1"))
        queue.ok(Release(job="j1", lease=lease_of(job)))
    else:
        getattr(queue, end)(job)
    assert queue.job("j1").silent_s == 0.0
