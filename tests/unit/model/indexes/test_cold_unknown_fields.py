"""Fields that newer code has added to a job stay with it, in the object and in segments."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import Raw

from bucketq.codec.document import Document
from bucketq.codec.segment_lines import decode_jobs, decode_keys
from bucketq.errors import CorruptStateError
from bucketq.model.operations import Cancel, Claim, Push, Request
from bucketq.model.segments import Merge, Spill
from bucketq.model.state import State
from tests.unit.model.deep_state import DeepState
from tests.unit.model.driver import SECRET, START, new_job

NOW = START + timedelta(seconds=1)
NEWS = {"news": Raw(b'{"list":[1.50,"\\u00e9",null]}'), "more": Raw(b"true")}
TEXT = b'"news":{"list":[1.50,"\\u00e9",null]},"more":true}'


@pytest.fixture
def deep() -> DeepState:
    """Three jobs, of which newer code has added fields to the second."""
    deep = DeepState(State(incarnation="test", created_at=START))
    do(deep, Push(jobs=tuple(new_job(f"j{number}") for number in (1, 2, 3))))
    deep.state.extra["jobs", "j2"] = NEWS
    return deep


def do(deep: DeepState, operation: Any) -> Any:
    applied = deep.apply(Request(operation), NOW)
    assert applied.error is None, applied.error
    return applied.answer


def spilled(deep: DeepState, count: int = 3) -> Spill:
    spill = deep.spill("ready", NOW, count)
    assert spill is not None
    assert do(deep, spill) == count
    return spill


def claim(deep: DeepState) -> list[str]:
    return [job.id for job in do(deep, Claim(worker="w", secret=SECRET))]


def line_of(deep: DeepState, job: str) -> bytes:
    """The line of a hot job in the object."""
    body = Document(deep.state).prepare("commit").body
    (line,) = (line for line in body.split(b"\n") if line.startswith(b'{"id":"%s"' % job.encode()))
    return line.removesuffix(b",")


def test_they_go_to_the_segment_and_come_back_with_a_claim(deep: DeepState) -> None:
    spill = spilled(deep)
    assert deep.state.extra == {}
    assert TEXT in deep.memory.bodies[spill.segment.record.id]
    assert claim(deep) == ["j1"]
    assert deep.state.extra == {}, "a job that is decoded and unchanged is still in its segment"
    assert not line_of(deep, "j1").endswith(TEXT)
    assert claim(deep) == ["j2"]
    assert line_of(deep, "j2").endswith(TEXT)


def test_they_come_back_with_a_job_that_is_named_by_its_id(deep: DeepState) -> None:
    spilled(deep)
    assert do(deep, Cancel(job="j2")) == "cancelled"
    assert line_of(deep, "j2").endswith(TEXT)
    assert deep.state.jobs.by_id["j2"].status == "done"


def test_they_stay_with_a_job_that_is_merged_while_it_is_decoded(deep: DeepState) -> None:
    spilled(deep, 2)
    assert claim(deep) == ["j1"], "its neighbour is decoded with it"
    merge = deep.merge("ready", NOW, 9)
    assert isinstance(merge, Merge)
    assert do(deep, merge) == 1
    assert TEXT in deep.memory.bodies[merge.targets[0].record.id]
    assert claim(deep) == ["j2"]
    assert line_of(deep, "j2").endswith(TEXT)


def test_a_job_whose_unknown_fields_have_changed_is_gone_from_the_spill(deep: DeepState) -> None:
    spill = deep.spill("ready", NOW, 3)
    deep.state.extra["jobs", "j2"] = {"news": Raw(b"2")}
    deep.state.extra["jobs", "j3"] = {"news": Raw(b"3")}
    assert do(deep, spill) == 1
    assert [job.id for job in deep.state.jobs] == ["j2", "j3"]


def test_a_row_that_is_not_a_job_or_a_key_is_refused_with_its_place() -> None:
    for line in (b'{"id":"j1","news":1}', b"[]", b"1"):
        with pytest.raises(CorruptStateError, match=r"segment s .* the row at position 7"):
            decode_jobs([line], 7, "s")
        with pytest.raises(CorruptStateError, match=r"segment s .* the row at position 7"):
            decode_keys([line], 7, "s")


def test_a_key_with_unknown_fields_is_read() -> None:
    line = b'{"news":1,"id":"k","seq":1,"job":"j","digest":"d","at":"2026-01-01T00:00:00Z"}'
    (key,) = decode_keys([line], 0, "s")
    assert (key.id, key.job) == ("k", "j")
