"""The ids of requests: the same at every try, and forgotten when they have been answered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.clock import SystemClock
from bucketq.commit.request_ids import RequestId, RequestIds, parse_token, token_of
from bucketq.errors import InvalidRequestError
from bucketq.model.operations import Push, Request, Tidy

SESSION = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_requests_are_numbered_within_a_session() -> None:
    ids = RequestIds(SystemClock())
    first, second = ids.give(), ids.give()
    assert (first.number, second.number) == (1, 2)
    assert first.session == second.session
    assert len(first.session) == 26


def test_two_clients_share_no_session() -> None:
    sessions = {RequestIds(SystemClock()).give().session for _ in range(100)}
    assert len(sessions) == 100


def test_what_is_answered_is_acknowledged_up_to_the_first_that_is_not() -> None:
    ids = RequestIds(SystemClock())
    first, second, third = ids.give(), ids.give(), ids.give()
    assert third.acknowledged_below == 1
    ids.settle(second)
    assert ids.give().acknowledged_below == 1
    ids.settle(first)
    assert ids.give().acknowledged_below == 3
    ids.settle(first)
    ids.settle(third)
    assert ids.give().acknowledged_below == 4


def test_a_request_that_is_abandoned_leaves_its_session_behind() -> None:
    ids = RequestIds(SystemClock())
    answered, unknown, waiting = ids.give(), ids.give(), ids.give()
    ids.settle(answered)
    ids.abandon(unknown)
    fresh = ids.give()
    assert fresh.session != unknown.session
    assert (fresh.number, fresh.acknowledged_below) == (1, 1)
    # Answers that still come for the old session do not touch the new one.
    ids.settle(waiting)
    ids.abandon(waiting)
    assert ids.give().session == fresh.session


def test_the_ids_of_pushed_jobs_are_the_same_at_every_try_and_like_no_others() -> None:
    request = RequestId(SESSION, 7)
    assert request.job_id(0) == RequestId(SESSION, 7, 5, since=12).job_id(0)
    others = [
        RequestId(session, number).job_id(index)
        for session in (SESSION, SESSION[::-1])
        for number in range(20)
        for index in range(20)
    ]
    assert len(set(others)) == len(others)
    assert {len(job_id) for job_id in others} == {26}
    # Without a time of its own, a request has that of its session.
    assert request.job_id(3)[:10] == SESSION[:10]


def test_job_ids_begin_with_the_time_of_their_push_like_ulids() -> None:
    clock = SetClock()
    ids = RequestIds(clock)
    first = ids.give()
    clock.time += timedelta(hours=3)
    second = ids.give()
    assert first.session == second.session
    assert first.job_id(0) < second.job_id(0)
    for request, at in ((first, clock.time - timedelta(hours=3)), (second, clock.time)):
        for job_id in (request.job_id(5), next(request.job_ids())):
            assert int(time_of(job_id).timestamp() * 1000) == int(at.timestamp() * 1000)


@given(st.integers(0, 2**16), st.integers(0, 5000), st.integers(0, 2500))
def test_ids_made_together_are_those_made_one_by_one(number: int, start: int, count: int) -> None:
    request = RequestId(SESSION, number)
    ids = [request.job_id(index) for index in range(start, start + count)]
    assert request.joined_job_ids(start, count).decode() == "".join(ids)
    assert [*islice(request.job_ids(), start, start + count)] == ids


def test_a_retry_pushes_the_same_ids_however_late_it_comes() -> None:
    clock = SetClock()
    ids = RequestIds(clock)
    ids.give()
    clock.time += timedelta(minutes=5)
    first_try = ids.give()
    token = token_of(first_try.request(Push(jobs=())), 42)
    clock.time += timedelta(minutes=5)
    retry = parse_token(token, Push)
    assert retry.job_id(0) == first_try.job_id(0)
    assert token_of(retry.request(Push(jobs=())), 99) == token


def test_a_token_without_a_time_gives_the_ids_that_older_code_made() -> None:
    retry = parse_token(f"push.{SESSION}.7.42", Push)
    assert retry.job_id(0) == RequestId(SESSION, 7).job_id(0)
    assert token_of(retry.request(Push(jobs=())), 99) == f"push.{SESSION}.7.42"


class SetClock(SystemClock):
    time = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


def time_of(job_id: str) -> datetime:
    letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    milliseconds = 0
    for letter in job_id[:10]:
        milliseconds = 32 * milliseconds + letters.index(letter)
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def test_a_token_names_the_request_and_a_version_before_it() -> None:
    request = RequestId(SESSION, 7, 3).request(Tidy())
    token = token_of(request, 42)
    assert token is not None
    assert parse_token(token, Tidy) == RequestId(SESSION, 7, since=42)


def test_a_token_keeps_the_version_that_the_request_bears_already() -> None:
    request = RequestId(SESSION, 7, since=12).request(Tidy())
    assert parse_token(token_of(request, 42), Tidy).since == 12


def test_a_token_is_good_for_the_same_operation_only() -> None:
    token = token_of(RequestId(SESSION, 7).request(Tidy()), 42)
    with pytest.raises(InvalidRequestError, match="belongs to a tidy"):
        parse_token(token, Push)


def test_a_request_without_an_id_has_no_token() -> None:
    assert token_of(Request(Tidy()), 42) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        5,
        b"bytes",
        ["list"],
        f"{SESSION}.1.2",
        f".{SESSION}.1.2",
        f"TIDY.{SESSION}.1.2",
        f"tidy.{SESSION}.1",
        f"tidy.{SESSION}.1.-1",
        f"tidy.{SESSION}.one.2",
        f"tidy.{SESSION}.1.2\n",
        f"tidy.{SESSION}.1.2.",
        f"tidy.{SESSION}.1.2.x",
        f"tidy.{SESSION}.1.2.3.4",
        f"tidy.{SESSION.lower()}.1.2",
        f"tidy.{SESSION}.{'9' * 40}.1",
        f"tidy.{SESSION}.\u0661.\u0662",
    ],
)
def test_an_invalid_token_is_rejected(token: object) -> None:
    with pytest.raises(InvalidRequestError, match="pass the `request` of an UnavailableError"):
        parse_token(token, Tidy)
