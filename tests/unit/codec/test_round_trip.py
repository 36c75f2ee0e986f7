"""Whatever a queue can hold comes back from its object as it was."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.model.check import MAX_DEPTH
from bucketq.model.numbered_batches import ConsumerRecord, WriterRecord
from bucketq.model.records import (
    NOTHING,
    Backoff,
    BatchCounts,
    BrokerRecord,
    Failure,
    JobRecord,
    KeyRecord,
    Progress,
)
from bucketq.model.requests.sessions import Session, Sessions
from bucketq.model.settings import Settings
from bucketq.model.state import State
from bucketq.model.tokens import RIGHTS, TokenRecord
from tests.unit.codec.objects import (
    NOW,
    WHERE,
    content_of,
    dead,
    done,
    empty_state,
    job,
    running,
    second,
)

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001
    max_value=datetime(2999, 12, 30),  # noqa: DTZ001
    timezones=st.just(UTC) | ZONES,
)
texts = st.text(max_size=20)
numbers = st.integers(0, 2**62)
huge = st.integers(-(10**400), 10**400)
floats = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | huge | floats | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """JSON as it may come from anywhere: with or without escapes, no line breaks."""
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :")]))
    ascii_only = draw(st.booleans())
    text = json.dumps(draw(values), ensure_ascii=ascii_only, separators=separators)
    return text.encode()


backoffs = st.builds(Backoff, floats, floats, floats)
failures = st.builds(
    Failure,
    at=times,
    attempt=numbers,
    cause=st.sampled_from(["failed", "lost"]),
    error=texts,
    worker=st.none() | texts,
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


job_fields: dict[str, st.SearchStrategy[Any]] = {
    "kind": texts,
    "payload": json_texts().map(Raw),
    "pushed_at": times,
    "payload_encoding": st.sampled_from([None, "base64"]),
    "priority": st.integers(-(2**31), 2**31),
    "run_at": maybe(times),
    "attempt": numbers,
    "failures": numbers,
    "lost_leases": numbers,
    "snoozes": numbers,
    "max_attempts": maybe(numbers),
    "backoff": maybe(backoffs),
    "key": maybe(texts),
    "tags": maybe(st.dictionaries(texts, texts, max_size=3)),
    "unique": maybe(texts),
    "expires_at": maybe(times),
    "group": st.just("") | texts,
    "batch_id": maybe(texts),
    "after": st.lists(texts, max_size=3, unique=True).map(tuple),
    "on_failed": st.sampled_from([None, "run"]),
    "done_batch": maybe(st.builds(BatchCounts, texts, *[numbers] * 5)),
    "lease": texts,
    "worker": texts,
    "claimed_at": maybe(times),
    "heartbeat_at": maybe(times),
    "silent_s": st.floats(0, 1e9),
    "lease_s": maybe(st.floats(0, 1e6)),
    "cancel_requested": st.booleans(),
    "errors": st.lists(failures, max_size=3).map(tuple),
    "finished_at": times,
    "outcome": st.sampled_from(["completed", "cancelled", "dead", "expired"]),
    "result": st.just(NOTHING) | json_texts().map(Raw),
    "result_encoding": st.sampled_from([None, "base64"]),
    "replay_of": maybe(texts),
    "traceparent": maybe(texts),
    "progress": maybe(
        st.builds(
            Progress, st.integers(0, 2**53) | st.floats(0, 1e9), st.none() | st.just(7), texts
        )
    ),
    "status": st.sampled_from(["queued", "running", "done", "dead"]),
}


@st.composite
def jobs(draw: st.DrawFn) -> list[JobRecord]:
    ids = draw(st.lists(texts, max_size=5, unique=True))
    seqs = sorted(draw(st.sets(st.integers(1, 300), min_size=len(ids), max_size=len(ids))))
    rows = zip(ids, seqs, strict=True)
    return [
        JobRecord(id=row_id, seq=seq, **draw(st.fixed_dictionaries(job_fields)))
        for row_id, seq in rows
    ]


answers = maybe(st.integers() | texts | st.lists(st.lists(texts | numbers, max_size=2), max_size=3))
spans = st.tuples(numbers, numbers).map(sorted)


@st.composite
def sessions(draw: st.DrawFn) -> list[Session]:
    ids = draw(st.lists(texts, max_size=4, unique=True))
    return [
        Session(
            id=session_id,
            seq=seq * 40,
            at=draw(times),
            version=draw(numbers),
            floor=draw(numbers),
            done=draw(st.lists(spans.map(list), max_size=3)),
            answers=draw(st.dictionaries(numbers, answers, max_size=3)),
            digests=draw(st.dictionaries(numbers, texts, max_size=3)),
        )
        for seq, session_id in enumerate(ids)
    ]


@st.composite
def keys(draw: st.DrawFn) -> list[KeyRecord]:
    ids = draw(st.lists(texts, max_size=4, unique=True))
    return [
        KeyRecord(id=key, seq=seq * 40, job=draw(texts), digest=draw(texts), at=draw(times))
        for seq, key in enumerate(ids)
    ]


@st.composite
def tokens(draw: st.DrawFn) -> list[TokenRecord]:
    ids = draw(st.lists(texts, max_size=4, unique=True))
    rights = st.lists(st.sampled_from(RIGHTS), unique=True).map(tuple)
    return [
        TokenRecord(
            id=token,
            seq=seq * 40,
            name=draw(texts),
            digest=draw(texts),
            rights=draw(rights),
            created_at=draw(times),
            expires_at=draw(maybe(times)),
        )
        for seq, token in enumerate(ids)
    ]


@st.composite
def consumers(draw: st.DrawFn) -> list[ConsumerRecord]:
    ids = draw(st.lists(texts, max_size=4, unique=True))
    jobs = st.lists(texts, max_size=4, unique=True).map(tuple)
    return [
        ConsumerRecord(
            id=name,
            seq=seq * 40,
            epoch=draw(st.integers(1, 2**62)),
            at=draw(times),
            batch=draw(st.integers(1, 2**62)),
            secret=f"s{draw(texts)}",
            jobs=draw(jobs),
            seq_limit=draw(maybe(st.tuples(numbers, numbers))),
        )
        for seq, name in enumerate(ids)
    ]


@st.composite
def writers(draw: st.DrawFn) -> list[WriterRecord]:
    ids = draw(st.lists(texts, max_size=4, unique=True))
    return [
        WriterRecord(id=name, seq=seq * 40, batch=draw(numbers), part=draw(numbers), at=draw(times))
        for seq, name in enumerate(ids)
    ]


queue_settings = st.builds(
    Settings,
    lease_s=floats,
    max_attempts=numbers,
    backoff=backoffs,
    max_bytes=numbers,
    dead_retention_s=floats,
    max_sessions=numbers,
    max_tokens=numbers,
    max_consumers=numbers,
    writer_retention_s=floats,
    require_token=st.booleans(),
)
brokers = st.builds(BrokerRecord, address=texts, id=texts, epoch=numbers, since=times, host=texts)


@st.composite
def states(draw: st.DrawFn) -> State:
    state = State(
        incarnation=draw(texts),
        created_at=draw(times),
        jobs=draw(jobs()),
        keys=draw(keys()),
        tokens=draw(tokens()),
        consumers=draw(consumers()),
        writers=draw(writers()),
    )
    state.version = draw(numbers)
    state.commits.extend(draw(st.lists(texts, max_size=3)))
    state.broker = draw(maybe(brokers))
    state.settings = draw(st.just(Settings()) | queue_settings)
    state.paused = draw(st.booleans())
    state.paused_kinds = dict.fromkeys(draw(st.lists(texts, max_size=3)))
    state.sessions = Sessions(draw(sessions()), draw(numbers))
    state.next_seq = draw(st.integers(301, 2**62))
    return state


@settings(max_examples=50)
@given(states(), texts)
def test_everything_that_a_queue_holds_comes_back_as_it_was(state: State, commit: str) -> None:
    body = Document(state).prepare(commit).body
    read = decode(body, WHERE).state
    assert content_of(read) == content_of(state)
    assert json.loads(body)["commit"] == commit
    assert all(line.startswith(b'{"id":') for line in body.split(b"\n")[-2 - len(state.jobs) : -2])


def test_the_strategy_covers_every_field_of_a_job() -> None:
    assert {"id", "seq", *job_fields} == set(JobRecord.__struct_fields__)


def test_a_field_that_has_its_default_is_not_written() -> None:
    document = Document(empty_state())
    document.state.put_job(job(1))
    document.state.next_seq = 2
    body = document.prepare("commit-1").body
    fields = json.loads(body)["jobs"][0]
    assert sorted(fields) == ["id", "kind", "payload", "pushed_at", "seq", "status"]


def round_trip(payload: bytes, **fields: Any) -> JobRecord:
    """Push a payload, commit, read, change the job beside it, commit, and read again."""
    document = Document(empty_state())
    document.state.put_job(job(1, payload=Raw(payload), **fields))
    document.state.put_job(job(2))
    document.state.next_seq = 3
    again = decode(document.prepare("commit-1").body, WHERE)
    again.state.put_job(job(2, attempt=1))
    body = again.prepare("commit-2").body
    assert len(body.split(b"\n")) == 9
    return decode(body, WHERE).state.jobs.by_id["job-1"]


@pytest.mark.parametrize(
    "payload",
    [
        b"null",
        b"0",
        b'""',
        b"{}",
        b"[]",
        b"-0",
        b"-0.0",
        b"1e400",
        b"1.7976931348623157e308",
        b"0.1000000000000000055511151231257827",
        b"9007199254740993",
        b"1" + b"0" * 5000,
        b'"\\u0000\\n\\r\\t\\b\\f\\u001f\\u007f"',
        b'"\\"\\\\\\/],\\n\\"jobs\\":["',
        b'"\\ud83d\\ude00 \xf0\x9f\x98\x80 \xe2\x80\xa8 \xc2\x85 \x7f"',
        b'{"":{"":[]},"a":1,"a":2}',
        b'[ 1 ,\t{ "a" : 2 } ]',
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH,
    ],
    ids=lambda payload: ascii(payload[:24]),
)
def test_a_payload_comes_back_byte_for_byte(payload: bytes) -> None:
    assert bytes(round_trip(payload).payload) == payload


@given(st.binary(max_size=200))
@settings(max_examples=50)
def test_bytes_come_back_from_base64(content: bytes) -> None:
    payload = b'"' + b64encode(content) + b'"'
    row = round_trip(payload, payload_encoding="base64")
    assert row.payload_encoding == "base64"
    assert b64decode(msgspec.json.decode(row.payload, type=str)) == content


@pytest.mark.parametrize("result", [b"null", b'""', b"false"])
def test_a_result_that_is_nothing_much_differs_from_none_at_all(result: bytes) -> None:
    document = Document(empty_state())
    document.state.put_job(job(1, result=Raw(result)))
    document.state.put_job(job(2))
    document.state.next_seq = 3
    read = decode(document.prepare("commit-1").body, WHERE).state.jobs
    assert bytes(read.by_id["job-1"].result) == result
    assert bytes(read.by_id["job-2"].result) == b""


def test_the_indexes_of_a_queue_that_was_read_are_those_of_the_queue_that_was_written() -> None:
    document = Document(empty_state())
    rows = [
        job(1),
        job(2, run_at=second(60)),
        running(3),
        dead(4, finished_at=second(2)),
        dead(5, finished_at=second(1)),
        done(6),
    ]
    for row in rows:
        document.state.put_job(row)
    document.state.next_seq = 7
    state = decode(document.prepare("commit-1").body, WHERE).state
    head = state.waiting.head_of("index", NOW)
    assert head is not None
    assert head.id == "job-1"
    assert state.next_due() == second(60)
    assert list(state.running) == ["job-3"]
    assert sorted(state.dead) == ["job-4", "job-5"]
    assert state.counts == document.state.counts
    assert not state.has_changes
