"""Small queues, and ways to damage their objects, for the tests of the codec."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from msgspec import Raw, Struct, structs

from bucketq.codec.document import Document
from bucketq.model.numbered_batches import ConsumerRecord, WriterRecord
from bucketq.model.records import BrokerRecord, JobRecord
from bucketq.model.state import State
from bucketq.model.tokens import TokenRecord

NOW = datetime(2024, 5, 17, 12, tzinfo=UTC)
WHERE = "memory://test/queue.json"


def second(number: int) -> datetime:
    return NOW + timedelta(seconds=number)


def job(seq: int, **fields: Any) -> JobRecord:
    """A waiting job, but for the fields given."""
    defaults: dict[str, Any] = {
        "id": f"job-{seq}",
        "kind": "index",
        "status": "queued",
        "payload": Raw(b'{"page":%d}' % seq),
        "pushed_at": NOW,
    }
    return JobRecord(seq=seq, **(defaults | fields))


def running(seq: int, **fields: Any) -> JobRecord:
    defaults: dict[str, Any] = {
        "status": "running",
        "attempt": 1,
        "lease": f"lease-{seq}",
        "worker": "worker-1",
        "claimed_at": NOW,
        "heartbeat_at": second(5),
    }
    return job(seq, **(defaults | fields))


def done(seq: int, **fields: Any) -> JobRecord:
    defaults: dict[str, Any] = {
        "status": "done",
        "attempt": 1,
        "outcome": "completed",
        "finished_at": second(9),
        "result": Raw(b'"fine"'),
    }
    return job(seq, **(defaults | fields))


def dead(seq: int, **fields: Any) -> JobRecord:
    defaults: dict[str, Any] = {"status": "dead", "attempt": 5, "failures": 5}
    return job(seq, **(defaults | {"finished_at": second(8)} | fields))


def token(seq: int, **fields: Any) -> TokenRecord:
    defaults: dict[str, Any] = {
        "id": f"{seq:08x}",
        "name": "ci",
        "digest": f"{seq:064x}",
        "rights": ("push", "claim"),
        "created_at": NOW,
        "expires_at": second(90),
    }
    return TokenRecord(seq=seq, **(defaults | fields))


def consumer(seq: int, **fields: Any) -> ConsumerRecord:
    defaults: dict[str, Any] = {
        "id": f"consumer-{seq}",
        "epoch": 2,
        "at": NOW,
        "batch": 7,
        "secret": f"{seq:032x}",
        "jobs": ("job-2", "job-gone"),
    }
    return ConsumerRecord(seq=seq, **(defaults | fields))


def writer(seq: int, **fields: Any) -> WriterRecord:
    defaults: dict[str, Any] = {"id": f"writer-{seq}", "batch": 3, "part": 1, "at": NOW}
    return WriterRecord(seq=seq, **(defaults | fields))


def empty_state() -> State:
    return State(incarnation="incarnation-1", created_at=NOW)


def small_state() -> State:
    """A queue with a job of each status, a broker, and one row in each other table."""
    state = empty_state()
    state.broker = BrokerRecord(address="10.0.0.42:3000", id="broker-1", epoch=7, since=NOW)
    for row in (job(1, key="key-1"), running(2), done(3), dead(4)):
        state.put_job(row)
    state.next_seq = 5
    state.put_key("key-1", "job-1", "digest-1", NOW)
    state.put_row(token(1))
    state.put_row(consumer(1))
    state.put_row(writer(1))
    state.sessions.write("session-1", [(1, ["job-1"], "00c0ffee")], NOW, version=1)
    state.sessions.write("session-1", [(3, None, "7f3a91d2")], NOW, version=1)
    return state


def small_body() -> bytes:
    return Document(small_state()).prepare("commit-1").body


def rest_of(body: bytes) -> bytes:
    """All but the first line."""
    return body[body.index(b"\n") + 1 :]


def stamped(rest: bytes, *, number: int = 1) -> bytes:
    """What follows the first line, behind a first line that fits it."""
    first = b'{"format":%d,"checksum":"crc32:%08x","bytes":%d,\n' % (number, crc32(rest), len(rest))
    return first + rest


def edited(body: bytes, old: bytes, new: bytes) -> bytes:
    """The object with one place changed, and a first line that fits the change."""
    rest = rest_of(body)
    assert rest.count(old) == 1, (old, rest.count(old))
    return stamped(rest.replace(old, new))


def written(content: dict[str, Any]) -> bytes:
    """An object with this content, stamped, all of it on one line."""
    fields = {k: v for k, v in content.items() if k not in {"format", "checksum", "bytes"}}
    return stamped(json.dumps(fields, separators=(",", ":")).encode()[1:] + b"\n")


def plain(row: Struct) -> dict[str, Any]:
    """The fields of a row, such that two rows can be compared."""
    fields = structs.asdict(row)
    if "answers" in fields:
        # An answer that was a tuple comes back as a list.
        fields["answers"] = {n: json.loads(json.dumps(v)) for n, v in fields["answers"].items()}
    return {name: bytes(v) if isinstance(v, Raw) else v for name, v in fields.items()}


def content_of(state: State) -> dict[str, Any]:
    """All that an object holds, such that two states can be compared."""
    return {
        "version": state.version,
        "commits": list(state.commits),
        "incarnation": state.incarnation,
        "created_at": state.created_at,
        "broker": state.broker,
        "settings": state.settings,
        "paused": state.paused,
        "paused_kinds": list(state.paused_kinds),
        "next_seq": state.next_seq,
        "horizon": state.sessions.horizon,
        "sessions": [plain(row) for row in state.sessions.table],
        "keys": [plain(row) for row in state.keys],
        "tokens": [plain(row) for row in state.tokens],
        "consumers": [plain(row) for row in state.consumers],
        "schedules": [plain(row) for row in state.schedules],
        "batches": [plain(row) for row in state.batches],
        "workers": [plain(row) for row in state.workers],
        "audit": [plain(row) for row in state.audit],
        "results": [plain(row) for row in state.results],
        "writers": [plain(row) for row in state.writers],
        "jobs": [plain(row) for row in state.jobs],
        "segments": [plain(each.entry()) for each in state.cold.rows.segments.values()],
        "requires": list(state.requires),
        "extra": {
            slot: {name: bytes(value) for name, value in fields.items()}
            for slot, fields in state.extra.items()
        },
    }
