"""How jobs come in: all or none, each once."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec import Raw
from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, KeyConflictError
from bucketq.model.operations import Push, Tidy
from bucketq.model.records import Backoff
from bucketq.model.requests.request_digest import digest
from tests.unit.model.driver import START, Driver, new_job

SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def queue() -> Driver:
    return Driver()


def test_a_pushed_job_waits_with_all_that_was_said_of_it(queue: Driver) -> None:
    backoff = Backoff(base_s=3.0)
    job_id = queue.push(
        "j1",
        "mail",
        {"to": "ann"},
        priority=-2,
        max_attempts=7,
        backoff=backoff,
        key="k",
        tags={"team": "red"},
        replay_of="j0",
        traceparent=SPAN,
    )
    job = queue.job(job_id)
    assert (job.id, job.kind, job.status, job.seq) == ("j1", "mail", "queued", 1)
    assert bytes(job.payload) == b'{"to":"ann"}'
    assert (job.priority, job.max_attempts, job.backoff) == (-2, 7, backoff)
    assert (job.key, job.tags, job.replay_of) == ("k", {"team": "red"}, "j0")
    assert job.traceparent == SPAN
    assert (job.pushed_at, job.run_at) == (START, None)
    assert (job.attempt, job.failures, job.lost_leases) == (0, 0, 0)


def test_a_push_answers_the_ids_in_the_order_given(queue: Driver) -> None:
    jobs = tuple(new_job(job_id) for job_id in ("c", "a", "b"))
    assert queue.ok(Push(jobs=jobs)) == ("c", "a", "b")
    assert [job.seq for job in queue.state.jobs] == [1, 2, 3]


def test_a_push_of_no_jobs_changes_nothing(queue: Driver) -> None:
    applied = queue.send(Push(jobs=()), "s", number=1)
    assert (applied.answer, applied.error, applied.changes) == ((), None, [])


def test_a_delay_counts_from_the_commit(queue: Driver) -> None:
    queue.wait(5)
    queue.push("j1", delay_s=10.0)
    assert queue.job("j1").run_at == START + timedelta(seconds=15)


def test_a_delay_of_nothing_is_none(queue: Driver) -> None:
    queue.push("j1", delay_s=0)
    assert queue.job("j1").run_at is None


def test_run_at_is_kept_in_utc(queue: Driver) -> None:
    there = timezone(timedelta(hours=2))
    queue.push("j1", run_at=datetime(2025, 3, 1, 16, 0, tzinfo=there))
    run_at = queue.job("j1").run_at
    assert run_at == datetime(2025, 3, 1, 14, 0, tzinfo=UTC)
    assert run_at.tzinfo is UTC


def test_one_bad_job_keeps_the_whole_batch_out(queue: Driver) -> None:
    queue.refused(Push(jobs=(new_job("good"), new_job("bad", kind=""))), InvalidRequestError)
    assert len(queue.state.jobs) == 0


@pytest.mark.parametrize(
    ("jobs", "named"),
    [
        ((new_job("j1"), new_job("j1")), "job id 'j1'"),
        ((new_job("j1", key="k"), new_job("j2", key="k")), "idempotency key 'k'"),
    ],
)
def test_an_id_or_key_twice_in_one_push_is_refused(
    queue: Driver, jobs: tuple[()], named: str
) -> None:
    assert named in queue.refused(Push(jobs=jobs), InvalidRequestError)


def test_a_key_pushed_again_answers_the_first_job(queue: Driver) -> None:
    queue.push("j1", payload=1, key="k")
    assert queue.push("j2", payload=1, key="k") == "j1"
    assert len(queue.state.jobs) == 1


def test_a_push_with_a_key_may_be_repeated_in_another_span(queue: Driver) -> None:
    queue.push("j1", key="k", traceparent=SPAN)
    assert queue.push("j2", key="k") == "j1"
    assert queue.push("j3", key="k", traceparent=SPAN.replace("b", "c")) == "j1"


def test_a_request_that_is_sent_again_may_be_in_another_span() -> None:
    first, again = new_job("j1", traceparent=SPAN), new_job("j1", traceparent=SPAN[:-1] + "0")
    known = digest(Push(jobs=(new_job("j1"),)))
    assert [digest(Push(jobs=(job,))) for job in (first, again)] == [known, known]


def test_a_key_holds_after_its_job_is_done(queue: Driver) -> None:
    queue.push("j1", key="k")
    queue.complete(queue.claim_one())
    assert queue.push("j2", key="k") == "j1"


@pytest.mark.parametrize(
    "other",
    [
        {"payload": 2},
        {"kind": "mail"},
        {"priority": 1},
        {"delay_s": 1.0},
        {"max_attempts": 1},
        {"tags": {"a": "b"}},
        {"replay_of": "j0"},
        {"backoff": Backoff(base_s=9.0)},
    ],
)
def test_a_key_with_other_content_is_refused(queue: Driver, other: dict[str, object]) -> None:
    content: dict[str, object] = {"payload": 1}
    queue.push("j1", key="k", payload=1)
    again = new_job("j2", key="k", **(content | other))  # type: ignore[arg-type]
    message = queue.refused(Push(jobs=(again,)), KeyConflictError)
    assert "'k'" in message
    assert "j1" in message


@pytest.mark.parametrize(
    ("once", "again"),
    [
        ({"payload": Raw(b'{"a":1,"b":2}')}, {"payload": Raw(b'{"b": 2, "a": 1}')}),
        ({"delay_s": 5}, {"delay_s": 5.0}),
        ({"tags": {}}, {"tags": None}),
        ({"run_at": START}, {"run_at": START.astimezone(timezone(timedelta(hours=3)))}),
    ],
)
def test_what_means_the_same_is_the_same_content(
    queue: Driver, once: dict[str, object], again: dict[str, object]
) -> None:
    queue.ok(Push(jobs=(replace(new_job("j1", key="k"), **once),)))
    assert queue.ok(Push(jobs=(replace(new_job("j2", key="k"), **again),))) == ("j1",)


@pytest.mark.parametrize("raw", [b"1e999", b"[-1e999]", b"9" * 5000, b"9" * 400])
def test_a_number_beyond_all_bounds_may_have_a_key(queue: Driver, raw: bytes) -> None:
    job = replace(new_job("j1", key="k"), payload=Raw(raw))
    assert queue.ok(Push(jobs=(new_job("j0"), job))) == ("j0", "j1")
    assert queue.ok(Push(jobs=(replace(job, id="j2"),))) == ("j1",)
    queue.reload()


def test_the_order_of_tags_is_not_content(queue: Driver) -> None:
    queue.push("j1", key="k", tags={"a": "1", "b": "2"})
    assert queue.push("j2", key="k", tags={"b": "2", "a": "1"}) == "j1"


def test_the_same_content_written_otherwise_is_the_same_content(queue: Driver) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    elsewhere = noon.astimezone(timezone(timedelta(hours=5)))
    first = queue.push("a", payload={"x": 1, "y": 2}, key="k1", run_at=noon)
    assert queue.push("b", payload={"y": 2, "x": 1}, key="k1", run_at=elsewhere) == first
    first = queue.push("c", key="k2", delay_s=2)
    assert queue.push("d", key="k2", delay_s=2.0) == first


def test_a_conflict_keeps_the_whole_batch_out(queue: Driver) -> None:
    queue.push("j1", payload=1, key="k")
    batch = (new_job("j2"), new_job("j3", payload=2, key="k"))
    queue.refused(Push(jobs=batch), KeyConflictError)
    assert "j2" not in queue.state.jobs


def test_a_batch_of_old_and_new_adds_the_new_ones_only(queue: Driver) -> None:
    queue.push("j1", key="k")
    answer = queue.ok(Push(jobs=(new_job("j2"), new_job("j3", key="k"), new_job("j4"))))
    assert answer == ("j2", "j1", "j4")
    assert [job.id for job in queue.state.jobs] == ["j1", "j2", "j4"]


def test_a_key_past_its_retention_makes_a_new_job(queue: Driver) -> None:
    queue.push("j1", key="k")
    queue.wait(3600)
    assert queue.push("j2", key="k") == "j1"
    queue.wait(0.001)
    assert queue.push("j2", payload="other", key="k") == "j2"
    assert queue.push("j3", payload="other", key="k") == "j2"


def test_a_key_past_its_retention_is_forgotten_by_tidy_and_not_before(queue: Driver) -> None:
    queue.push("j1", key="k")
    queue.wait(3600)
    assert queue.ok(Tidy()) == 0
    queue.wait(0.001)
    assert queue.ok(Tidy()) == 1
    assert len(queue.state.keys) == 0


def test_the_same_job_again_is_not_added_again(queue: Driver) -> None:
    queue.push("j1", payload=[1])
    applied = queue.send(Push(jobs=(new_job("j1", payload=[1]),)))
    assert (applied.answer, applied.changes) == (("j1",), [])


@pytest.mark.parametrize("other", [{"payload": 2}, {"kind": "mail"}, {"key": "k"}])
def test_an_id_with_other_content_is_refused(queue: Driver, other: dict[str, object]) -> None:
    queue.push("j1", payload=1)
    content: dict[str, object] = {"payload": 1}
    again = new_job("j1", **(content | other))  # type: ignore[arg-type]
    assert "'j1'" in queue.refused(Push(jobs=(again,)), KeyConflictError)


def test_a_retried_push_answers_the_same_ids_and_adds_nothing(queue: Driver) -> None:
    batch = Push(jobs=(new_job("j1"), new_job("j2", key="k")))
    first = queue.send(batch, "s", number=1)
    queue.reload()
    again = queue.send(batch, "s", number=1, since=0)
    assert again.answer == first.answer == ("j1", "j2")
    assert again.changes == []
    assert len(queue.state.jobs) == 2


def test_a_retried_push_that_met_an_old_key_answers_the_old_job(queue: Driver) -> None:
    queue.push("old", key="k")
    batch = Push(jobs=(new_job("new"), new_job("again", key="k")))
    assert queue.ok(batch, "s", number=1) == ("new", "old")
    queue.reload()
    queue.wait(7200)
    assert queue.ok(batch, "s", number=1, since=0) == ("new", "old")


def test_a_payload_of_bytes_keeps_its_encoding(queue: Driver) -> None:
    queue.ok(Push(jobs=(new_job("j1", payload="AAE=", payload_encoding="base64"),)), "s", number=1)
    queue.reload()
    assert queue.job("j1").payload_encoding == "base64"
    assert queue.job("j1").payload == Raw(b'"AAE="')
