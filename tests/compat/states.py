"""The queues whose objects are kept here, built from fixed inputs by nothing but records.

They go around the operations on purpose: how a queue comes about may change, how it is written
must not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from types import MappingProxyType
from typing import Any

from msgspec import Raw, structs

from bucketq.codec.deletion_vector import encode_vector, vector_id
from bucketq.codec.pushed_rows import class_of_new, pushed_row
from bucketq.codec.segment_file import encode_segment, row_of, sort_rows
from bucketq.model.records import Backoff, BrokerRecord, Failure, JobRecord, KeyRecord
from bucketq.model.requests.sessions import Session, Sessions
from bucketq.model.reservations import ReservationRecord
from bucketq.model.segments import Gone, Range, SegmentClass, SegmentRecord
from bucketq.model.settings import KIB, MIB, Settings
from bucketq.model.state import State
from bucketq.model.tokens import TokenRecord
from tests.compat.adopted_rows import adopted
from tests.compat.consumer_rows import AHEAD, ALONE, CONSUMERS, EMPTIED, WRITERS
from tests.compat.expiring_rows import expiring
from tests.compat.golden_file import Golden
from tests.compat.large_rows import large
from tests.compat.limit_rows import limited
from tests.compat.linked_rows import linked
from tests.compat.operator_rows import archived, operated
from tests.compat.partition_rows import partitioned
from tests.compat.pushed_jobs import PUSH
from tests.compat.running_jobs import progress, snoozed, tls, traced
from tests.compat.schedule_rows import SCHEDULES, add_schedules
from tests.compat.unique_rows import unique

_CREATED = datetime(2024, 5, 17, 8, 30, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return _CREATED + timedelta(seconds=seconds)


def empty() -> State:
    """A queue that was just made."""
    return State(incarnation="3f1c0b3a5d7e4f60", created_at=_CREATED)


def full(**rows: Any) -> State:
    """A queue with every status, and every field of a row set by some row."""
    rows = {"jobs": _JOBS, "keys": _KEYS, **rows}
    state = State(incarnation="0123456789abcdef", created_at=_CREATED, **rows)
    state.version = 41
    state.commits.extend(["commit-40", "commit-41"])
    state.broker = BrokerRecord("10.0.0.42:3000", "broker-7f", 7, _at(0.25), "host-9")
    state.settings = _SETTINGS
    state.paused = True
    state.paused_kinds = {"mail": None, "report/daily": None}
    state.sessions = Sessions(_SESSIONS, horizon=12)
    state.next_seq = 301
    return state


def tokens() -> State:
    """A queue with access tokens, one of which a newer bucketq has added a field to."""
    state = full(tokens=_TOKENS)
    state.settings = structs.replace(_SETTINGS, max_tokens=50, require_token=True)
    state.extra = {("tokens", "4f1e09ab"): {"news": Raw(b'{"list":[1.50,null]}')}}
    return state


def bulk(**rows: Any) -> State:
    """A queue with consumers, writers, and a job with a lease of its own length."""
    jobs = [structs.replace(job, lease_s=600.0) if job.id == "job-2" else job for job in _JOBS]
    rows = {"jobs": jobs, "consumers": CONSUMERS, "writers": WRITERS, **rows}
    state = full(**rows)
    state.settings = structs.replace(
        _SETTINGS,
        max_consumers=50,
        consumer_retention_s=86400.0,
        max_writers=500,
        writer_retention_s=172800.0,
    )
    state.extra = {("consumers", "spark/orders"): {"news": Raw(b'{"list":[1.50,null]}')}}
    return state


def batch_limit() -> State:
    """A queue with a consumer whose row says which numbers the jobs of its batch stay below."""
    consumers = [structs.replace(CONSUMERS[0], seq_limit=(12, 301)), CONSUMERS[1]]
    return bulk(jobs=_JOBS, consumers=consumers)


def taken_apart() -> State:
    """A queue with a batch that was taken apart, and one that has a job of another one alone."""
    return bulk(jobs=_JOBS, consumers=[EMPTIED, ALONE])


def prepared() -> State:
    """A queue with a consumer that has prepared its next batch."""
    return bulk(jobs=_JOBS, consumers=[AHEAD, CONSUMERS[1]])


def digests() -> State:
    """A queue that remembers what its clients' requests asked for."""
    state = full()
    rows = [
        structs.replace(row, digests={5: "00c0ffee", 9: "7f3a91d2"}) if row.floor else row
        for row in _SESSIONS
    ]
    state.sessions = Sessions(rows, horizon=12)
    return state


def unknown_fields() -> State:
    """A queue to which a newer bucketq of the same format has added fields everywhere."""
    state = full()
    news = {"news": Raw(b'{"since":2,"list":[1.50,"\\u00e9",null]}'), "more": Raw(b"true")}
    state.extra = {
        ("head", ""): news,
        ("settings", ""): news,
        ("broker", "broker-7f"): news,
        ("sessions", "session-a"): news,
        ("keys", "order/4711"): news,
        ("jobs", "job-1"): news,
        ("jobs", "job-300"): {"only": Raw(b"{}")},
    }
    return state


def deep() -> State:
    """A queue with a segment of each class, some of whose rows have left."""
    hot = [job for job in _JOBS if job.status in {"running", "done"}]
    entries = [segments()[cls][0] for cls in ("dead", "keys", "later", "ready")]
    state = full(jobs=hot, keys=[_KEYS[1]], segments=entries)
    state.requires["segments"] = None
    state.extra = {("segments", entries[0].id): {"news": Raw(b'{"list":[1.50,null]}')}}
    return state


def pushed() -> State:
    """A queue with segments that were written before the push that they belong to was committed."""
    state = full(segments=[record for record, _ in pushed_segments().values()])
    state.requires["segments"] = None
    state.next_seq = 410
    return state


def reserved() -> State:
    """A queue for which segments are being written."""
    state = full(reservations=_RESERVATIONS)
    state.requires["reservations"] = None
    state.extra = {("reservations", _RESERVATIONS[0].id): {"news": Raw(b"[1.50]")}}
    return state


def drained() -> State:
    """A queue that had segments once."""
    state = full()
    state.requires["segments"] = None
    return state


@cache
def segments() -> dict[SegmentClass, tuple[SegmentRecord, bytes]]:
    """The segments of the deep queue, each with its entry."""
    ready = [job for job in _JOBS if job.status == "queued" and job.run_at is None]
    later = [job for job in _JOBS if job.status == "queued" and job.run_at is not None]
    dead = [job for job in _JOBS if job.status == "dead"]
    news = {"job-1": {"news": Raw(b'{"since":2,"list":[1.50,"\\u00e9",null]}')}}
    dead_record, dead_body = _segment("dead", [*dead, *_MORE_DEAD], [(0, 0), (2, 2)])
    name, vector = _vector(dead_record.id)
    with_vector = structs.replace(
        dead_record, gone=((2, 2),), vector=name, vector_bytes=len(vector)
    )
    return {
        "ready": _segment("ready", [*ready, *_MORE_READY], [(1, 1)], news),
        "later": _segment("later", [*later, *_MORE_LATER]),
        "dead": (with_vector, dead_body),
        "keys": _segment("keys", [_KEYS[0], *_MORE_KEYS]),
    }


@cache
def pushed_segments() -> dict[SegmentClass, tuple[SegmentRecord, bytes]]:
    """The segments of the queue with a push, each with its entry; one of its jobs was known."""
    found: dict[SegmentClass, tuple[SegmentRecord, bytes]] = {}
    left: dict[SegmentClass, tuple[Range, ...]] = {"later": (), "ready": ((1, 1),)}
    for cls, gone in left.items():
        rows = [pushed_row(job, n) for n, job in enumerate(PUSH) if class_of_new(job) == cls]
        encoded = encode_segment(cls, sort_rows(cls, rows))
        record = encoded.record(until=1064, at=_at(50))
        record = structs.replace(
            record,
            seq=400 + record.seq,
            last=400 + record.last,
            live=record.rows - len(gone),
            gone=gone,
            base=400,
            pushed_at=_at(49.5),
        )
        found[cls] = (record, encoded.body)
    return found


def vectors() -> dict[str, bytes]:
    """The vectors of the deep queue, by their names."""
    return dict([_vector(segments()["dead"][0].id)])


def _vector(segment: str) -> tuple[str, bytes]:
    body = encode_vector({segment: ((0, 0),)})
    return vector_id(1064, body), body


def _segment(
    cls: SegmentClass,
    rows: Sequence[JobRecord | KeyRecord],
    gone: Sequence[Range] = (),
    extra: Mapping[str, dict[str, Raw]] = MappingProxyType({}),
) -> tuple[SegmentRecord, bytes]:
    encoded = encode_segment(cls, sort_rows(cls, [row_of(row, extra.get(row.id)) for row in rows]))
    record = encoded.record(until=1064, at=_at(50))
    live = record.rows - Gone(gone).count
    return structs.replace(record, live=live, gone=tuple(gone)), encoded.body


_SETTINGS = Settings(
    lease_s=60.0,
    heartbeat_s=7.5,
    grace_s=20.0,
    clock_margin_s=120.0,
    max_attempts=3,
    backoff=Backoff(0.5, 3.0, 900.0),
    key_retention_s=7200.0,
    max_keys=1000,
    max_jobs=50_000,
    max_bytes=64 * MIB,
    max_payload_bytes=512 * KIB,
    max_result_bytes=32 * KIB,
    max_error_bytes=2 * KIB,
    max_errors=3,
    max_tags=8,
    max_kinds=100,
    max_batch_jobs=500,
    max_batch_bytes=8 * MIB,
    max_dead=200,
    dead_retention_s=86400.0,
    session_retention_s=300.0,
    max_sessions=64,
)
_SESSIONS = (
    Session(id="session-a", seq=1, at=_at(40), version=41),
    Session(
        id="session-b",
        seq=70,
        at=_at(41.5),
        version=40,
        floor=5,
        done=[[5, 7], [9, 9]],
        answers={5: ["job-1", "job-2"], 6: [["job-2", 2, 1]], 7: "dead", 9: 3},
    ),
)
_KEYS = (
    KeyRecord(id="order/4711", seq=1, job="job-1", digest="00ff00ff00ff00ff", at=_at(1)),
    KeyRecord(id='schlüssel "2"', seq=2, job="job-gone", digest="1234", at=_at(2)),
)
_TOKENS = (
    TokenRecord(
        id="4f1e09ab",
        seq=1,
        name="ci",
        digest="5df6e0e2761359d30a8275058e299fcc0381534545f55cf43e41983f5d4c9456",
        rights=("push",),
        created_at=_at(10),
        expires_at=_at(7_776_010),
    ),
    TokenRecord(
        id="00c0ffee",
        seq=65,
        name="größe L",
        digest="2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        rights=("push", "claim", "read", "admin"),
        created_at=_at(20.5),
    ),
)
_JOBS = (
    JobRecord(
        id="job-1",
        kind="index",
        status="queued",
        seq=1,
        payload=Raw(b'{"namespace":"docs","pages":[1,2,3]}'),
        pushed_at=_at(1),
    ),
    JobRecord(
        id="job-2",
        kind="index",
        status="running",
        seq=2,
        payload=Raw(b'"AAECAwQF/v8="'),
        pushed_at=_at(2.000001),
        payload_encoding="base64",
        priority=-5,
        attempt=3,
        failures=1,
        lost_leases=1,
        max_attempts=7,
        backoff=Backoff(2.0, 1.5, 60.0),
        key="order/4711",
        tags={"team": "search", "größe": "L"},
        lease="5d41402abc4b2a76b9719d911017c592",
        worker="host-1/4242",
        claimed_at=_at(30),
        heartbeat_at=_at(39.5),
        silent_s=1.75,
        cancel_requested=True,
        errors=(
            Failure(_at(10), 1, "failed", 'Traceback:\n\t"boom" \u2028 \U0001f4a5', "host-2/1"),
            Failure(_at(20), 2, "lost", "no heartbeat"),
        ),
        replay_of="job-archived",
    ),
    JobRecord(
        id="job-64",
        kind="report/daily",
        status="queued",
        seq=64,
        payload=Raw(b"null"),
        pushed_at=datetime(2024, 5, 17, 12, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        run_at=_at(86400),
        priority=10,
    ),
    JobRecord(
        id="job-65",
        kind="mail",
        status="done",
        seq=65,
        payload=Raw(b'{"n":123456789012345678901234567890,"x":1.50,"t":"a\\nb"}'),
        pushed_at=_at(3),
        attempt=1,
        lease="aa",
        worker="host-1/4242",
        claimed_at=_at(4),
        heartbeat_at=_at(4),
        finished_at=_at(5),
        outcome="completed",
        result=Raw(b'"//79"'),
        result_encoding="base64",
    ),
    JobRecord(
        id="job-66",
        kind="mail",
        status="done",
        seq=66,
        payload=Raw(b"[]"),
        pushed_at=_at(3),
        finished_at=_at(6),
        outcome="cancelled",
    ),
    JobRecord(
        id="job-67",
        kind="mail",
        status="done",
        seq=67,
        payload=Raw(b'""'),
        pushed_at=_at(3),
        attempt=3,
        failures=3,
        finished_at=_at(7),
        outcome="dead",
    ),
    JobRecord(
        id="job-300",
        kind="mail",
        status="dead",
        seq=300,
        payload=Raw(b"{}"),
        pushed_at=_at(3),
        attempt=3,
        failures=2,
        lost_leases=1,
        finished_at=_at(8),
    ),
)
_MORE_READY = (
    structs.replace(_JOBS[0], id="job-100", seq=100, priority=-5),
    structs.replace(_JOBS[0], id="job-101", seq=101, payload=Raw(b'"%s"' % (b"x" * 33_000))),
    structs.replace(_JOBS[0], id="job-102", seq=102, kind="mail", tags={"größe": "L"}),
    structs.replace(_JOBS[0], id="job-103", seq=103, kind="mail", attempt=2, failures=1),
)
_MORE_LATER = (
    structs.replace(_JOBS[0], id="job-110", seq=110, run_at=_at(3600)),
    structs.replace(_JOBS[0], id="job-111", seq=111, kind="mail", run_at=_at(100_000)),
)
_MORE_DEAD = (
    structs.replace(_JOBS[-1], id="job-120", seq=120, kind="index"),
    structs.replace(_JOBS[-1], id="job-121", seq=121, finished_at=None),
    structs.replace(_JOBS[-1], id="job-122", seq=122, errors=_JOBS[1].errors, finished_at=_at(9)),
)
_RESERVATIONS = (
    ReservationRecord(
        id="r00000000000000000040-0123456789abcdef", seq=1, writer="bulk/größe", at=_at(40)
    ),
    ReservationRecord(
        id="r00000000000000000041-fedcba9876543210", seq=2, writer="spark", at=_at(41.5)
    ),
)
_MORE_KEYS = (
    KeyRecord(id="order/4712", seq=3, job="job-102", digest="ff00ff00ff00ff00", at=_at(0.5)),
    KeyRecord(id="größe L", seq=4, job="job-103", digest="5678", at=_at(1)),
)


FILES = {
    "empty": Golden(empty, "commit-1"),
    "batch-limit": Golden(batch_limit, "commit-42"),
    "taken-apart": Golden(taken_apart, "commit-42"),
    "prepared": Golden(prepared, "commit-42"),
    "bulk": Golden(bulk, "commit-42"),
    "digests": Golden(digests, "commit-42"),
    "full": Golden(full, "commit-42"),
    "operated": Golden(operated, "commit-1"),
    "progress": Golden(progress, "commit-1"),
    "snoozed": Golden(snoozed, "commit-1"),
    "tls": Golden(tls, "commit-1"),
    "tokens": Golden(tokens, "commit-42"),
    "traced": Golden(traced, "commit-1"),
    "unknown-fields": Golden(unknown_fields, "commit-42"),
    "deep": Golden(deep, "commit-42", 2),
    "drained": Golden(drained, "commit-42", 2),
    "pushed": Golden(pushed, "commit-42", 2),
    "reserved": Golden(reserved, "commit-42", 2),
    "scheduled": Golden(lambda: add_schedules(full(schedules=SCHEDULES)), "commit-42", 2),
    "unique": Golden(unique, "commit-1", 2),
    "expiring": Golden(expiring, "commit-1", 2),
    "adopted": Golden(adopted, "commit-1", 2),
    "limited": Golden(limited, "commit-1", 2),
    "linked": Golden(linked, "commit-1", 2),
    "partitioned": Golden(partitioned, "commit-1", 2),
    "large": Golden(large, "commit-1", 2),
    "archived": Golden(archived, "commit-1", 2),
}
