"""What can never be granted is refused before it changes anything, and says why."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.errors import InvalidRequestError, PayloadError
from bucketq.model import check
from bucketq.model.operations import AnyOperation, Claim, List, Pause, Push, Release
from bucketq.model.records import Backoff
from tests.unit.model.driver import SECRET, START, Driver, new_job


class Nowhere(tzinfo):
    """A time zone that does not know its offset."""

    def utcoffset(self, _at: datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, _at: datetime | None) -> str:
        return "nowhere"


class Text(str):
    """Passes for a string, and cannot be written as one."""

    __slots__ = ()


class Number(int):
    """Passes for a whole number."""


class Seconds(float):
    """Passes for a number, as those of numpy do."""


class Moment(datetime):
    """Passes for a time, as those of pandas do."""


class Kind(StrEnum):
    """Can be written, and is what it says."""

    MAIL = "mail"


BAD_FIELDS: list[tuple[str, Any, str]] = [
    ("id", "", "job id"),
    ("id", "x" * 257, "257"),
    ("id", 7, "job id"),
    ("id", None, "job id"),
    ("id", "\ud800", "lone surrogate"),
    ("kind", "", "kind"),
    ("kind", "x" * 129, "kind"),
    ("kind", "-x", "beginning with"),
    ("kind", "two words", "kind"),
    ("kind", "mail\n", "kind"),
    ("kind", "été", "kind"),
    ("kind", None, "kind"),
    ("priority", 2**31 + 1, "priority"),
    ("priority", -(2**31) - 1, "priority"),
    ("priority", 1.0, "whole number"),
    ("priority", True, "whole number"),
    ("priority", "1", "whole number"),
    ("delay_s", -0.1, "delay_s"),
    ("delay_s", float("nan"), "delay_s"),
    ("delay_s", float("inf"), "delay_s"),
    ("delay_s", 1e12, "delay_s"),
    ("delay_s", 10**400, "delay_s"),
    ("delay_s", "5", "delay_s"),
    ("delay_s", True, "delay_s"),
    ("run_at", datetime(2025, 1, 1), "time zone"),  # noqa: DTZ001
    ("run_at", datetime(2025, 1, 1, tzinfo=Nowhere()), "time zone"),
    ("run_at", datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "too far"),
    ("run_at", datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "too far"),
    ("run_at", 1735689600, "datetime"),
    ("run_at", "2025-01-01T00:00:00Z", "datetime"),
    ("max_attempts", 0, "max_attempts"),
    ("max_attempts", 1_000_001, "max_attempts"),
    ("max_attempts", 2.0, "max_attempts"),
    ("max_attempts", True, "max_attempts"),
    ("backoff", {"base_s": 1.0}, "backoff"),
    ("backoff", Backoff(base_s=-1.0), "base_s"),
    ("backoff", Backoff(base_s=float("nan")), "base_s"),
    ("backoff", Backoff(base_s=10**400), "base_s"),
    ("backoff", Backoff(factor=0.9), "factor"),
    ("backoff", Backoff(factor=True), "factor"),
    ("backoff", Backoff(max_s=float("inf")), "max_s"),
    ("backoff", Backoff(max_s="1"), "max_s"),  # type: ignore[arg-type]
    ("key", "", "idempotency key"),
    ("key", "x" * 257, "idempotency key"),
    ("key", "\udfff", "lone surrogate"),
    ("tags", ["a"], "tags"),
    ("tags", {"": "x"}, "tag"),
    ("tags", {"x" * 257: "x"}, "tag"),
    ("tags", {"a": 1}, "'a'"),
    ("tags", {1: "a"}, "tag"),
    ("tags", {"a": "x" * 257}, "'a'"),
    ("tags", {"a": "\ud800"}, "lone surrogate"),
    ("replay_of", "", "replay_of"),
    ("replay_of", "\ud800", "lone surrogate"),
    ("replay_of", 5, "replay_of"),
    ("traceparent", "", "traceparent"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-1", "traceparent"),
    ("traceparent", "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01", "traceparent"),
    ("traceparent", 5, "traceparent"),
    ("payload_encoding", "rot13", "payload_encoding"),
    ("payload", b"1", "payload"),
    ("payload", "1", "payload"),
    ("payload", None, "payload"),
    ("id", Text("x"), "plain str"),
    ("kind", Text("x"), "plain str"),
    ("key", Text("x"), "plain str"),
    ("replay_of", Text("x"), "plain str"),
    ("tags", {"a": Text("x")}, "plain str"),
    ("tags", {Text("a"): "x"}, "plain str"),
    ("priority", Number(1), "plain int"),
    ("priority", Number(0), "plain int"),
    ("max_attempts", Number(1), "plain int"),
    ("run_at", Moment(2025, 1, 1, tzinfo=UTC), "plain datetime"),
    ("backoff", Backoff(base_s=Seconds(1.0)), "plain number"),
]


@pytest.mark.parametrize(("field", "value", "named"), BAD_FIELDS)
def test_a_bad_field_is_refused_by_name(field: str, value: object, named: str) -> None:
    queue = Driver()
    bad = replace(new_job("j1"), **{field: value})
    message = queue.refused(Push(jobs=(new_job("good"), bad)), InvalidRequestError)
    assert named in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "x" * 256),
        ("id", "日本語 with spaces\n"),
        ("kind", "a.b_c:d/e@f-1"),
        ("kind", "9" * 128),
        ("kind", Kind.MAIL),
        ("id", Kind.MAIL),
        ("delay_s", Seconds(5.0)),
        ("priority", 2**31),
        ("priority", -(2**31)),
        ("delay_s", check.MAX_DELAY_S),
        ("delay_s", 0),
        ("delay_s", 1e-9),
        ("run_at", datetime.max.replace(tzinfo=UTC)),
        ("run_at", datetime.min.replace(tzinfo=UTC)),
        ("max_attempts", 1_000_000),
        ("backoff", Backoff(base_s=0, factor=1, max_s=0)),
        ("tags", {"a": ""}),
        ("tags", {}),
        ("key", "\x00"),
    ],
)
def test_a_field_at_its_limit_is_taken_and_read_back(field: str, value: object) -> None:
    queue = Driver()
    queue.ok(Push(jobs=(replace(new_job("j1"), **{field: value}),)))
    (before,) = queue.state.jobs
    queue.reload()
    assert list(queue.state.jobs) == [before]


def test_delay_and_run_at_together_are_refused() -> None:
    both = new_job("j1", delay_s=1.0, run_at=START)
    assert "not both" in Driver().refused(Push(jobs=(both,)), InvalidRequestError)


BAD_JSON = [
    b"",
    b" ",
    b"nope",
    b"{",
    b'{"a":1,}',
    b"1 2",
    b"NaN",
    b'"\xff"',
    b'"\x01"',
    b'"\\ud800"',
    b"'a'",
    b'{"a"\n:1}',
    b"1\n",
    b"\r1",
    b"[1,\r2]",
    b" 1",
    b"1\t",
    b'"a\nb"',
    b'1},{"id":"smuggled"',
]


@pytest.mark.parametrize("raw", BAD_JSON)
def test_a_payload_that_would_spoil_the_object_is_refused(raw: bytes) -> None:
    queue = Driver()
    bad = replace(new_job("j1"), payload=Raw(raw))
    assert "payload" in queue.refused(Push(jobs=(bad,)), PayloadError)


@settings(deadline=None, max_examples=200)
@given(
    st.one_of(st.binary(max_size=12), st.text('[]{}",:\\ud8\n\t 01ae', max_size=12).map(str.encode))
)
def test_whatever_payload_is_taken_can_be_read_back(raw: bytes) -> None:
    queue = Driver()
    applied = queue.send(Push(jobs=(replace(new_job("j1"), payload=Raw(raw)), new_job("j2"))))
    if applied.error is None:
        body = Document(queue.state).prepare("c").body
        read = decode(body, "test").state
        assert list(read.jobs) == list(queue.state.jobs)
        assert len(body.splitlines()) == 8


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_bounded(opening: bytes, closing: bytes) -> None:
    def nested(depth: int) -> Push:
        raw = Raw(opening * depth + b"1" + closing * depth)
        return Push(jobs=(replace(new_job("j1"), payload=raw),))

    queue = Driver()
    assert "100 levels" in queue.refused(nested(101), InvalidRequestError)
    assert "100 levels" in queue.refused(nested(100_000), InvalidRequestError)
    queue.ok(nested(100))
    queue.reload()


@pytest.mark.parametrize("payload", [[[]] * 500, "[" * 500, '\\"' + "[{" * 300, {"[" * 300: 1}])
def test_brackets_side_by_side_or_in_text_are_not_nesting(payload: object) -> None:
    Driver().push("j1", payload=payload)


@pytest.mark.parametrize(
    "operation",
    [
        Claim(worker="", secret=SECRET),
        Claim(worker="x" * 257, secret=SECRET),
        Claim(worker="\ud800", secret=SECRET),
        Claim(worker=None, secret=SECRET),  # type: ignore[arg-type]
        Claim(worker="w", secret=SECRET, kinds=("no spaces",)),
        Claim(worker="w", secret=SECRET, kinds=("k",) * 257),
        Claim(worker="w", secret=SECRET, limit="1"),  # type: ignore[arg-type]
        Release(job="j1", lease="x", delay_s=-1.0),
        Release(job="j1", lease="x", delay_s=float("nan")),
        Pause(kind="no spaces"),
        Pause(kind=5),  # type: ignore[arg-type]
        List(after=-1),
        List(limit=0),
        List(kinds=("",)),
        List(statuses=("lost",)),  # type: ignore[arg-type]
    ],
)
def test_a_bad_argument_is_refused(operation: AnyOperation) -> None:
    queue = Driver()
    queue.push("j1")
    queue.refused(operation, InvalidRequestError)


def test_what_is_shown_of_a_bad_value_is_short() -> None:
    message = Driver().refused(Push(jobs=(new_job("j1", "?" * 10_000),)), InvalidRequestError)
    assert len(message) < 300
