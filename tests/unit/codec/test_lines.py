"""Jobs as lines: the same as in a whole read of the object, whichever version wrote it."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from bucketq.codec import Document, decode, read_job_lines
from bucketq.errors import CorruptStateError, NewerFormatError
from bucketq.model.records import JobRecord
from tests.unit.codec.objects import WHERE, done, edited, empty_state, job, running


def body_of(*jobs: JobRecord) -> bytes:
    state = empty_state()
    for each in jobs:
        state.put_job(each)
    state.next_seq = len(jobs) + 1
    return Document(state).prepare("first").body


TEXTS = st.text() | st.sampled_from(['"],\n"jobs":[', "\n],", "},\n{", '\n],"jobs":['])


@given(st.lists(TEXTS, max_size=5))
def test_lines_are_those_of_the_jobs_whatever_their_payloads_hold(texts: list[str]) -> None:
    jobs = [
        job(number, payload=Raw(msgspec.json.encode({text: text})))
        for number, text in enumerate(texts, start=1)
    ]
    lines = read_job_lines(body_of(*jobs), WHERE)
    assert [msgspec.json.decode(line, type=JobRecord) for line in lines] == jobs


def test_jobs_of_every_status_are_there_in_order() -> None:
    jobs = [job(1), running(2), done(3)]
    assert [json.loads(line)["status"] for line in read_job_lines(body_of(*jobs), WHERE)] == [
        "queued",
        "running",
        "done",
    ]
    assert read_job_lines(body_of(), WHERE) == []


def test_fields_that_are_not_known_are_left_in_their_lines() -> None:
    body = edited(body_of(job(1)), b'"kind":"index"', b'"kind":"index","colour":"red"')
    [line] = read_job_lines(body, WHERE)
    assert json.loads(line)["colour"] == "red"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\n]}\n", b'\n],"others":[\n{"id":"1"}\n]}\n'),
        (b"\n]}\n", b"\n]}"),
        (b'\n],"jobs":[', b'\n], "jobs":['),
    ],
)
def test_an_object_that_is_written_otherwise_is_read_whole(old: bytes, new: bytes) -> None:
    whole = body_of(job(1), done(2))
    body = edited(whole, old, new)
    assert body != whole
    found = [msgspec.json.decode(line, type=JobRecord) for line in read_job_lines(body, WHERE)]
    assert found == list(decode(body, WHERE).state.jobs)
    assert len(found) == 2


def test_what_cannot_be_trusted_is_refused() -> None:
    body = body_of(job(1))

    def refused(broken: bytes, kind: type[Exception] = CorruptStateError) -> None:
        with pytest.raises(kind):
            read_job_lines(broken, WHERE)

    refused(b"")
    refused(body[:-10])
    refused(body.replace(b"index", b"inbox"))
    refused(body.replace(b'"format":1', b'"format":99'), NewerFormatError)
