"""What a broker answers arrives as ``apply`` gave it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from bucketq import errors
from bucketq.model import operations as ops
from bucketq.model.queue_stats import Stats
from bucketq.model.records import JobRecord
from bucketq.model.settings import Settings
from bucketq.rpc.messages import Answer, Refusal
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf import json_documents
from bucketq.rpc.protobuf.answer_codec import read_answer, write_answer, write_value
from bucketq.rpc.protobuf.operation_codec import VERBS
from bucketq.rpc.refusals import error_of, refusal_of
from tests.unit.rpc.samples import ANSWERS, BROKER, DONE, SNAPSHOT, STATS, WAITING

ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.BucketQError)
]


def carried(answer: Answer, verb: str = "complete") -> Answer:
    """Take an answer through the bytes of a message."""
    message = pb.SessionResponse()
    write_answer(message.answers, answer, verb)
    received = pb.SessionResponse.FromString(message.SerializeToString())
    return read_answer(received.answers[0])


@pytest.mark.parametrize(("verb", "value"), ANSWERS, ids=[verb for verb, _ in ANSWERS])
def test_an_answer_arrives_as_it_was_given(verb: str, value: Any) -> None:
    got = carried(Answer(2**60, value), verb)
    assert got == Answer(2**60, value)
    assert type(got.value) is type(value)


def test_the_samples_have_an_answer_for_every_verb() -> None:
    assert {verb for verb, _ in ANSWERS} == set(VERBS)


def test_a_payload_arrives_to_the_byte() -> None:
    raw = b'{"n":123456789012345678901234567890,"t":"gr\xc3\xb6\xc3\x9fer"}'
    job = msgspec.structs.replace(WAITING, payload=Raw(raw))
    assert bytes(carried(Answer(1, job), "get").value.payload) == raw


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_arrives_as_the_class_that_it_was(kind: type[errors.BucketQError]) -> None:
    got = carried(Answer(1, None, refusal_of(kind("what happened"))))
    assert got.refusal is not None
    error = error_of(got.refusal)
    assert type(error) is kind
    assert str(error) == "what happened"


def test_hints_of_an_error_arrive() -> None:
    slow = carried(Answer(1, None, refusal_of(errors.OverloadedError("x", retry_after_s=1.5))))
    gone = carried(Answer(1, None, refusal_of(errors.SupersededError("x", leader="h:1"))))
    assert slow.refusal == Refusal(kind="OverloadedError", message="x", retry_after_s=1.5)
    assert gone.refusal == Refusal(kind="SupersededError", message="x", leader="h:1")
    unknown = carried(Answer(1, None, refusal_of(errors.UnavailableError("x", request="r"))))
    assert unknown.refusal == Refusal(kind="UnavailableError", message="x", is_repeatable=True)


@pytest.mark.parametrize(
    ("given", "arrives"), [(0.0, 0.0), (0.0001, 0.001), (-1.0, 0.0), (float("inf"), 1e6)]
)
def test_no_client_is_asked_to_retry_too_early_or_never(given: float, arrives: float) -> None:
    error = errors.OverloadedError("x", retry_after_s=given)
    got = carried(Answer(1, None, refusal_of(error)))
    assert got.refusal is not None
    assert got.refusal.retry_after_s == arrives


def test_a_message_that_is_not_valid_text_is_repaired() -> None:
    got = carried(Answer(1, None, Refusal(kind="RejectedError", message="file \udcff")))
    assert got.refusal == Refusal(kind="RejectedError", message="file ?")


def test_a_value_that_cannot_be_written_is_unknown_to_its_caller_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    message = pb.SessionResponse()
    write_answer(message.answers, Answer(1, 7), "redrive")
    write_answer(message.answers, Answer(2, object()), "claim")
    write_answer(message.answers, Answer(3, -1), "redrive")
    write_answer(message.answers, Answer(4, 8), "redrive")
    got = [read_answer(answer) for answer in message.answers]
    assert [(answer.tag, answer.value) for answer in got] == [(1, 7), (2, None), (3, None), (4, 8)]
    assert [answer.refusal.kind for answer in got if answer.refusal] == ["UnavailableError"] * 2
    assert "cannot be encoded" in caplog.text


def test_an_answer_of_a_later_version_is_unknown() -> None:
    later = pb.Answer.FromString(b"\x08\x05\xf2\x07\x00")  # tag 5, field 126
    got = read_answer(later)
    assert got.tag == 5
    assert got.refusal is not None
    assert got.refusal.kind == "UnavailableError"


@pytest.mark.parametrize(
    "document", [b"", b"{", b"[]", b'{"id":7}', b"[" * 100_000, b'{"id":"\xff"}']
)
def test_a_document_that_cannot_be_read_is_unknown_to_its_caller(document: bytes) -> None:
    for sent in (
        pb.Answer(tag=5, job=pb.Document(json=document)),
        pb.Answer(tag=5, claimed=pb.Claimed(jobs=[document])),
        pb.Answer(tag=5, stats=pb.Document(json=document)),
        pb.Answer(tag=5, snapshot=pb.Document(json=document)),
    ):
        got = read_answer(sent)
        assert got.refusal is not None
        assert got.refusal.kind == "UnavailableError"


def with_unknown(document: bytes, *path: str) -> bytes:
    """Add an unknown field to an object within a document."""
    whole = msgspec.json.decode(document)
    inner = whole
    for step in path:
        inner = inner[int(step) if step.isdigit() else step]
    inner["of_tomorrow"] = {"a": [1]}
    return msgspec.json.encode(whole)


def test_fields_of_a_newer_broker_are_left_out() -> None:
    encode = json_documents.encode
    for job in (WAITING, DONE):
        assert json_documents.decode_job(with_unknown(encode(job))) == job
    settings = pb.Document.FromString(write_value("configure", SNAPSHOT.settings)).json
    decode = json_documents.decode
    assert decode(with_unknown(settings), Settings) == SNAPSHOT.settings
    assert decode(with_unknown(encode(STATS), "broker"), Stats) == STATS
    for path in ((), ("settings",), ("jobs", "1"), ("jobs", "1", "errors", "0")):
        assert decode(with_unknown(encode(SNAPSHOT), *path), ops.Snapshot) == SNAPSHOT


def test_a_payload_is_not_looked_into_for_fields_that_are_unknown() -> None:
    raw = b'{"n":123456789012345678901234567890}'
    job = msgspec.structs.replace(DONE, payload=Raw(raw))
    newer = json_documents.encode(job)[:-1] + b',"of_tomorrow":1}'
    assert bytes(json_documents.decode_job(newer).payload) == raw


def test_settings_are_written_with_their_defaults_for_those_who_do_not_know_them() -> None:
    document = pb.Document.FromString(write_value("configure", SNAPSHOT.settings))
    written = msgspec.json.decode(document.json)
    assert written["lease_s"] == 60.0
    assert written["heartbeat_s"] == 5.0
    assert written["backoff"] == {"base_s": 1.0, "factor": 2.0, "max_s": 3600.0}


def test_documents_are_the_json_of_the_object() -> None:
    sent = pb.Answer(job=pb.Document.FromString(write_value("get", WAITING)))
    assert sent.job.json == (
        b'{"id":"j1","kind":"email","status":"queued","seq":1,"payload":{"to":"ada"},'
        b'"pushed_at":"2026-01-31T12:00:00.123456Z"}'
    )
    assert msgspec.json.decode(sent.job.json, type=JobRecord) == WAITING


def test_a_unary_answer_is_the_message_of_its_verb() -> None:
    assert pb.Pushed.FromString(write_value("push", ("a",))) == pb.Pushed(ids=["a"])
    assert pb.Failed.FromString(write_value("fail", "dead")) == pb.Failed(status="dead")
    assert pb.Count.FromString(write_value("purge", 3)) == pb.Count(jobs=3)
    assert write_value("complete", None) == pb.Done().SerializeToString()


def test_times_keep_their_zone() -> None:
    got: Stats = carried(Answer(1, STATS), "stats").value
    assert got.broker == BROKER
    assert isinstance(got.broker, type(BROKER))
    assert isinstance(got.broker.since, datetime)
    assert got.broker.since.utcoffset() is not None
