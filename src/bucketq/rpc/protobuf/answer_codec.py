"""Encodes and decodes answers.

The client gets exactly what ``apply`` returned, as from a queue in its own process. The type of an
empty tuple's items is unknown, so an answer is encoded by the verb of its call, and decoded by the
name of its field.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import ceil
from typing import Any

import msgspec

from bucketq.errors import UnavailableError
from bucketq.model.operations import Page, Pulse
from bucketq.model.tokens import TokenInfo
from bucketq.rpc.messages import Answer, Refusal
from bucketq.rpc.protobuf import batch_codec, json_documents
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.refusals import refusal_of

_BASE_BYTES = 16
_NAME_BYTES = 40
_MAX_RETRY_AFTER_S = 1e6

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
            return _WRITERS[verb](sent, answer.value)
        except Exception as error:  # noqa: BLE001 - one bad answer fails alone
            _log.exception("an answer to %s cannot be written", verb)
            del answers[-1]
            refusal = refusal_of(error)
    sent = answers.add()
    sent.tag = answer.tag
    _write_error(sent.error, refusal)
    return _BASE_BYTES + 4 * len(refusal.message)


def write_value(verb: str, value: Any) -> bytes:
    """Encode the answer to a unary call of ``verb``."""
    sent = pb.Answer()
    _WRITERS[verb](sent, value)
    name = sent.WhichOneof("outcome")
    if name == "done" or name is None:
        return pb.Done().SerializeToString()
    written: bytes = getattr(sent, name).SerializeToString()
    return written


def read_answer(sent: pb.Answer) -> Answer:
    """Decode an answer. If that fails, the outcome is unknown; other answers are not affected."""
    name = sent.WhichOneof("outcome")
    if name == "done":
        return Answer(sent.tag)
    if name == "error":
        return Answer(sent.tag, None, _read_error(sent.error))
    reader = _READERS.get(name or "")
    if reader is None:
        message = "the broker gave an answer that this client does not know: upgrade it"
        return Answer(sent.tag, None, refusal_of(UnavailableError(message)))
    try:
        return Answer(sent.tag, reader(getattr(sent, name or "")))
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
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


def _write_done(sent: pb.Answer, _value: None) -> int:
    sent.done = True
    return _BASE_BYTES


def _write_pushed(sent: pb.Answer, ids: tuple[str, ...]) -> int:
    pushed = sent.pushed
    pushed.SetInParent()
    pushed.ids.extend(ids)
    return _BASE_BYTES + _NAME_BYTES * len(ids)


def _write_claimed(sent: pb.Answer, jobs: Any) -> int:
    claimed = sent.claimed
    claimed.SetInParent()
    if not jobs:
        return _BASE_BYTES
    encode = json_documents.encode
    written = [encode(job) for job in jobs]
    claimed.jobs.extend(written)
    return _BASE_BYTES + sum(map(len, written))


def _write_pulses(sent: pb.Answer, pulses: tuple[Pulse, ...]) -> int:
    answered = sent.pulses
    answered.SetInParent()
    add = answered.pulses.add
    for pulse in pulses:
        written = add()
        written.job = pulse.job
        if pulse.held:
            written.held = True
        if pulse.cancel_requested:
            written.cancel_requested = True
    return _BASE_BYTES + _NAME_BYTES * len(pulses)


def _write_completions(sent: pb.Answer, finished: tuple[bool, ...]) -> int:
    sent.completions.SetInParent()
    sent.completions.finished.extend(finished)
    return _BASE_BYTES + len(finished)


def _write_releases(sent: pb.Answer, released: tuple[bool, ...]) -> int:
    sent.releases.SetInParent()
    sent.releases.released.extend(released)
    return _BASE_BYTES + len(released)


def _write_failed(sent: pb.Answer, status: str) -> int:
    sent.failed.status = status
    return _BASE_BYTES


def _write_cancelled(sent: pb.Answer, result: str) -> int:
    sent.cancelled.result = result
    return _BASE_BYTES


def _write_count(sent: pb.Answer, jobs: int) -> int:
    sent.count.SetInParent()
    sent.count.jobs = jobs
    return _BASE_BYTES


def _write_page(sent: pb.Answer, page: Page) -> int:
    written = [json_documents.encode(job) for job in page.jobs]
    sent.page.SetInParent()
    sent.page.jobs.extend(written)
    if page.next_after is not None:
        sent.page.next_after = page.next_after
    return _BASE_BYTES + sum(map(len, written))


def _write_settings(sent: pb.Answer, settings: Any) -> int:
    sent.settings.json = json_documents.write_settings(settings)
    return _BASE_BYTES + len(sent.settings.json)


def _write_revoked(sent: pb.Answer, found: bool) -> int:  # noqa: FBT001 - an answer as it is
    sent.revoked.SetInParent()
    sent.revoked.found = found
    return _BASE_BYTES


def _write_tokens(sent: pb.Answer, tokens: tuple[TokenInfo, ...]) -> int:
    written = [json_documents.encode(token) for token in tokens]
    sent.token_list.SetInParent()
    sent.token_list.tokens.extend(written)
    return _BASE_BYTES + sum(map(len, written))


def _document(name: str) -> Callable[[pb.Answer, Any], int]:
    def write(sent: pb.Answer, value: Any) -> int:
        document = json_documents.encode(value)
        getattr(sent, name).json = document
        return _BASE_BYTES + len(document)

    return write


def _read_page(sent: pb.Page) -> Page:
    next_after = sent.next_after if sent.HasField("next_after") else None
    return Page(json_documents.read_jobs(sent.jobs), next_after)


def _read_pulses(sent: pb.Pulses) -> tuple[Pulse, ...]:
    return tuple([Pulse(pulse.job, pulse.held, pulse.cancel_requested) for pulse in sent.pulses])


_WRITERS: dict[str, Callable[[pb.Answer, Any], int]] = {
    "push": _write_pushed,
    "claim": _write_claimed,
    "heartbeat": _write_pulses,
    "complete": _write_done,
    "complete_many": _write_completions,
    "fail": _write_failed,
    "release": _write_done,
    "withdraw": _write_count,
    "release_many": _write_releases,
    "cancel": _write_cancelled,
    "redrive": _write_count,
    "purge": _write_count,
    "pause": _write_done,
    "resume": _write_done,
    "configure": _write_settings,
    "get": _document("job"),
    "list": _write_page,
    "stats": _document("stats"),
    "snapshot": _document("snapshot"),
    "flush_archive": _write_count,
    "grant_token": _document("token"),
    "revoke_token": _write_revoked,
    "tokens": _write_tokens,
    **batch_codec.ANSWER_WRITERS,
}

_READERS: dict[str, Callable[[Any], Any]] = {
    "pushed": lambda m: tuple(m.ids),
    "claimed": lambda m: json_documents.read_jobs(m.jobs),
    "pulses": _read_pulses,
    "completions": lambda m: tuple(m.finished),
    "releases": lambda m: tuple(m.released),
    "failed": lambda m: m.status,
    "cancelled": lambda m: m.result,
    "count": lambda m: m.jobs,
    "settings": lambda m: json_documents.read_settings(m.json),
    "job": lambda m: json_documents.read_job(m.json),
    "page": _read_page,
    "stats": lambda m: json_documents.read_stats(m.json),
    "snapshot": lambda m: json_documents.read_snapshot(m.json),
    "token": lambda m: json_documents.read_token(m.json),
    "revoked": lambda m: m.found,
    "token_list": lambda m: tuple([json_documents.read_token(token) for token in m.tokens]),
    **batch_codec.ANSWER_READERS,
}
