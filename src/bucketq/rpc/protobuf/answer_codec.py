"""Encodes and decodes answers.

The client gets exactly what ``apply`` returned, as from a queue in its own process. The type of an
empty tuple's items is unknown, so an answer is encoded by the verb of its call, and decoded by the
name of its field.
"""

from __future__ import annotations

import logging
from math import ceil
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import structs

from bucketq.errors import InvalidRequestError, UnavailableError
from bucketq.model.audit_records import AuditRecord
from bucketq.model.history import ChangePage, CopyPart
from bucketq.model.job_batches import BatchRecord, CancelledJobs
from bucketq.model.job_ids import KnownJobId
from bucketq.model.limits import LimitInfo
from bucketq.model.numbered_batches import BatchPage, BatchState, ConsumerInfo, ConsumerState
from bucketq.model.operations import Page, Pulse, Snapshot
from bucketq.model.queue_stats import Stats
from bucketq.model.records import JobRecord, Progress
from bucketq.model.results import JobEnd
from bucketq.model.schedules import ScheduleRecord
from bucketq.model.settings import Settings
from bucketq.model.side_objects import Staged
from bucketq.model.tokens import TokenInfo
from bucketq.model.worker_records import WorkerRecord
from bucketq.rpc.messages import Answer, Refusal
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.item_codec import Reader, Writer
from bucketq.rpc.protobuf.json_documents import decode, decode_job, decode_jobs, encode, encode_all
from bucketq.rpc.protobuf.struct_codec import StructCodec
from bucketq.rpc.refusals import refusal_of

_BASE_BYTES = 16
"""About the size of an answer without its value."""
_NAME_BYTES = 40
"""About the size of a job's id."""
_MAX_RETRY_AFTER_S = 1e6
"""Eleven days. A time to wait may be infinite, which milliseconds cannot represent."""

_log = logging.getLogger(__name__)

SentAnswers = Any
"""The ``answers`` of a message, looked up once."""


def write_answer(answers: SentAnswers, answer: Answer, verb: str) -> int:
    """Append the answer to a call of ``verb`` to a message; return its approximate size.

    If the value cannot be encoded, that is a bug of this side, and the client gets an error.
    """
    refusal = answer.refusal
    if refusal is None:
        sent = answers.add()
        sent.tag = answer.tag
        try:
            return _write_value(sent, answer.value, verb)
        except Exception as error:  # noqa: BLE001 - one bad answer fails alone
            _log.exception("an answer to %s cannot be encoded", verb)
            del answers[-1]
            refusal = refusal_of(error)
    sent = answers.add()
    sent.tag = answer.tag
    _write_error(sent.error, refusal)
    return _BASE_BYTES + 4 * len(refusal.message)


def write_value(verb: str, value: Any) -> bytes:
    """Encode the answer to a unary call of ``verb``."""
    sent = pb.Answer()
    _write_value(sent, value, verb)
    name = _OUTCOMES[verb]
    written: bytes = (pb.Done() if name == "done" else getattr(sent, name)).SerializeToString()
    return written


def _write_value(sent: pb.Answer, value: Any, verb: str) -> int:
    name = _OUTCOMES[verb]
    if name == "done":
        sent.done = True
        return _BASE_BYTES
    outcome = getattr(sent, name)
    outcome.SetInParent()
    return _BASE_BYTES + _CODECS[name][0](outcome, value)


def read_answer(sent: pb.Answer) -> Answer:
    """Decode an answer. If that fails, the outcome is unknown; other answers are not affected."""
    name = sent.WhichOneof("outcome")
    if name == "done":
        return Answer(sent.tag)
    if name == "error":
        return Answer(sent.tag, None, _read_error(sent.error))
    codec = _CODECS.get(name or "")
    if codec is None:
        message = "the broker gave an answer that this client does not know: upgrade it"
        return Answer(sent.tag, None, refusal_of(UnavailableError(message)))
    try:
        return Answer(sent.tag, codec[1](getattr(sent, name or "")))
    except (msgspec.MsgspecError, RecursionError, ValueError, InvalidRequestError) as error:
        message = f"the broker gave an answer that this client cannot read: {error}; upgrade it"
        return Answer(sent.tag, None, refusal_of(UnavailableError(message)))


def _write_error(sent: pb.Error, refusal: Refusal) -> None:
    sent.kind = refusal.kind
    sent.message = refusal.message.encode(errors="replace").decode()
    if refusal.retry_after_s is not None:
        sent.retry_after_ms = to_ms(refusal.retry_after_s)
    if refusal.leader is not None:
        sent.leader = refusal.leader
    if refusal.is_repeatable:
        sent.is_repeatable = True


def to_ms(seconds: float) -> int:
    """Convert a time to wait to milliseconds, rounded up, so that no client retries too early."""
    return ceil(min(max(seconds, 0.0), _MAX_RETRY_AFTER_S) * 1000)


def _read_error(sent: pb.Error) -> Refusal:
    return Refusal(
        kind=sent.kind,
        message=sent.message,
        retry_after_s=sent.retry_after_ms / 1000 if sent.HasField("retry_after_ms") else None,
        leader=sent.leader if sent.HasField("leader") else None,
        is_repeatable=sent.is_repeatable,
    )


_Codec = tuple[Writer, Reader]


def _single(name: str) -> _Codec:
    """Return the codec of an answer that is one value."""

    def write(sent: Any, value: Any) -> int:
        setattr(sent, name, value)
        return 0

    return write, attrgetter(name)


def _many(name: str) -> _Codec:
    """Return the codec of an answer that is a tuple of ids or flags."""

    def write(sent: Any, values: tuple[Any, ...]) -> int:
        getattr(sent, name).extend(values)
        return _NAME_BYTES * len(values)

    return write, lambda sent: tuple(getattr(sent, name))


def _document(kind: type) -> _Codec:
    """Return the codec of an answer that is a JSON document."""

    def write(sent: pb.Document, value: Any) -> int:
        # All settings, including defaults, which other clients may not know.
        sent.json = encode(structs.asdict(value) if kind is Settings else value)
        return len(sent.json)

    return write, lambda sent: decode(sent.json, kind)


def _documents(name: str, kind: type) -> _Codec:
    """Return the codec of an answer that is a tuple of JSON documents."""

    def write(sent: Any, values: tuple[Any, ...]) -> int:
        return encode_all(getattr(sent, name), values)

    return write, lambda sent: tuple([decode(each, kind) for each in getattr(sent, name)])


def _struct(kind: type, shape: Any) -> _Codec:
    codec = StructCodec[Any](kind, shape)
    return codec.write, codec.read


def _write_pushed(sent: pb.Pushed, ids: tuple[str, ...]) -> int:
    sent.ids.extend(ids)
    known = [place for place, job_id in enumerate(ids) if type(job_id) is not str]
    if known:
        sent.known.extend(known)
    return _NAME_BYTES * len(ids)


def _read_pushed(sent: pb.Pushed) -> tuple[str, ...]:
    ids = tuple(sent.ids)
    if not sent.known:
        return ids
    known = frozenset(sent.known)
    return tuple([KnownJobId(job) if place in known else job for place, job in enumerate(ids)])


def _write_claimed(sent: pb.Claimed, jobs: tuple[JobRecord, ...]) -> int:
    return encode_all(sent.jobs, jobs)


def _write_pulses(sent: pb.Pulses, pulses: tuple[Pulse, ...]) -> int:
    add = sent.pulses.add
    for pulse in pulses:
        written = add()
        written.job = pulse.job
        if pulse.held:
            written.held = True
        if pulse.cancel_requested:
            written.cancel_requested = True
    return _NAME_BYTES * len(pulses)


def _read_pulses(sent: pb.Pulses) -> tuple[Pulse, ...]:
    return tuple([Pulse(pulse.job, pulse.held, pulse.cancel_requested) for pulse in sent.pulses])


def _write_waited(sent: pb.Waited, news: JobEnd | Progress | None) -> int:
    if isinstance(news, Progress):
        sent.progress = encode(news)
    elif news is not None:
        sent.json = encode(news)
    return len(sent.json) + len(sent.progress)


def _read_waited(sent: pb.Waited) -> JobEnd | Progress | None:
    if sent.progress:
        return decode(sent.progress, Progress)
    return decode(sent.json, JobEnd) if sent.json else None


def _write_part(sent: pb.Part, data: bytes) -> int:
    sent.data = data
    return len(data)


_OUTCOMES = {
    "push": "pushed",
    "claim": "claimed",
    "heartbeat": "pulses",
    "complete": "done",
    "complete_many": "completions",
    "fail": "failed",
    "release": "done",
    "withdraw": "count",
    "release_many": "releases",
    "cancel": "cancelled",
    "set_priority": "done",
    "redrive": "count",
    "purge": "count",
    "pause": "done",
    "resume": "done",
    "configure": "settings",
    "get": "job",
    "list": "page",
    "stats": "stats",
    "snapshot": "snapshot",
    "flush_archive": "count",
    "grant_token": "token",
    "revoke_token": "revoked",
    "tokens": "token_list",
    "open_consumer": "opened",
    "claim_batch": "batch",
    "prepare_batch": "batch",
    "read_batch": "batch_page",
    "ack_batch": "batch",
    "release_batch": "batch",
    "settle_batch": "batch",
    "consumers": "consumer_list",
    "remove_consumer": "removed",
    "publish": "published",
    "read_changes": "change_page",
    "read_copy": "copy_part",
    "forget_history": "count",
    "wait": "waited",
    "find_archived": "waited",
    "set_schedule": "scheduled",
    "remove_schedule": "removed",
    "pause_schedule": "done",
    "resume_schedule": "done",
    "run_schedule": "pushed",
    "schedules": "schedule_list",
    "set_limit": "scheduled",
    "remove_limit": "removed",
    "limits": "limit_list",
    "stage_object": "staged",
    "put_part": "done",
    "keep_object": "done",
    "read_part": "part",
    "open_batch": "done",
    "close_batch": "job_batch",
    "cancel_batch": "job_batch",
    "cancel_jobs": "cancelled_jobs",
    "batches": "batch_list",
    "announce": "announced",
    "drain": "count",
    "workers": "worker_list",
    "audit": "audit_list",
}
"""The field of an answer, by the verb of its call."""

_CODECS: dict[str, _Codec] = {
    "pushed": (_write_pushed, _read_pushed),
    "claimed": (_write_claimed, lambda sent: decode_jobs(sent.jobs)),
    "pulses": (_write_pulses, _read_pulses),
    "completions": _many("finished"),
    "releases": _many("released"),
    "failed": _single("status"),
    "cancelled": _single("result"),
    "count": _single("jobs"),
    "settings": _document(Settings),
    "job": (_document(JobRecord)[0], lambda sent: decode_job(sent.json)),
    "page": _struct(Page, pb.Page),
    "stats": _document(Stats),
    "snapshot": _document(Snapshot),
    "token": _document(TokenInfo),
    "revoked": _single("found"),
    "token_list": _documents("tokens", TokenInfo),
    "opened": _struct(ConsumerState, pb.Opened),
    "batch": _struct(BatchState, pb.Batch),
    "batch_page": _struct(BatchPage, pb.BatchPage),
    "consumer_list": _documents("consumers", ConsumerInfo),
    "removed": _single("found"),
    "published": _single("fresh"),
    "change_page": _document(ChangePage),
    "copy_part": _document(CopyPart),
    "waited": (_write_waited, _read_waited),
    "scheduled": _single("result"),
    "schedule_list": _documents("schedules", ScheduleRecord),
    "limit_list": _documents("limits", LimitInfo),
    "staged": _document(Staged),
    "part": (_write_part, attrgetter("data")),
    "job_batch": _document(BatchRecord),
    "cancelled_jobs": _document(CancelledJobs),
    "batch_list": _documents("batches", BatchRecord),
    "announced": _single("is_asked_to_finish"),
    "worker_list": _documents("workers", WorkerRecord),
    "audit_list": _documents("actions", AuditRecord),
}
"""How each field of an answer is encoded and decoded."""
