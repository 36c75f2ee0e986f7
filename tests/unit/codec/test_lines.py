"""Jobs as lines: the same as in a whole read of the object, whichever version wrote it."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.codec.lines import read_job_lines
from bucketq.errors import CorruptStateError, NewerFormatError
from bucketq.model.operations import Request
from bucketq.model.records import JobRecord
from tests.unit.codec.objects import (
    WHERE,
    done,
    edited,
    empty_state,
    job,
    rest_of,
    running,
    stamped,
)
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import START


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
    lines = read_job_lines(body_of(*jobs), WHERE).hot
    assert [msgspec.json.decode(line, type=JobRecord) for line in lines] == jobs


def test_jobs_of_every_status_are_there_in_order() -> None:
    jobs = [job(1), running(2), done(3)]
    assert [json.loads(line)["status"] for line in read_job_lines(body_of(*jobs), WHERE).hot] == [
        "queued",
        "running",
        "done",
    ]
    assert read_job_lines(body_of(), WHERE) == ([], "", [])


def test_fields_that_are_not_known_are_left_in_their_lines() -> None:
    body = edited(body_of(job(1)), b'"kind":"index"', b'"kind":"index","colour":"red"')
    [line] = read_job_lines(body, WHERE).hot
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
    found = [msgspec.json.decode(line, type=JobRecord) for line in read_job_lines(body, WHERE).hot]
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


@pytest.mark.parametrize("field", [b"", b'"colour":"red",'])
def test_the_segments_that_hold_the_other_jobs_are_named(field: bytes) -> None:
    state = empty_state()
    deep = DeepState(state)
    for number in range(1, 31):
        state.put_job(job(number))
        state.put_key(f"k{number}", f"j{number}", "digest", START)
    state.next_seq = 31
    for operation in (deep.spill("ready", START, 20), deep.spill_keys(START, 10)):
        assert operation is not None
        deep.apply(Request(operation), START)
    written = Document(state).prepare("first").body
    rest = rest_of(written).replace(b'"class":"ready",', b'"class":"ready",' + field)
    body = stamped(rest, number=2)
    assert (body == written) is not bool(field)
    found = read_job_lines(body, WHERE)
    assert [json.loads(line)["seq"] for line in found.hot] == list(range(21, 31))
    assert found.incarnation == state.incarnation
    assert [(each.cls, each.seq, each.last) for each in found.segments] == [("ready", 1, 20)]
