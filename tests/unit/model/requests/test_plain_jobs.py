"""Jobs without options are checked together, and get what each would have got by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from bucketq.errors import BucketQError, InvalidRequestError
from bucketq.model import check
from bucketq.model.base import NewJob
from bucketq.model.operations import Complete, CompleteMany, Completion, Push
from bucketq.model.records import NOTHING
from bucketq.model.requests.plain_jobs import (
    PlainCompletions,
    PlainJobs,
    check_plain,
    completions,
)
from bucketq.model.requests.request_digest import digest, plain_digests
from tests.unit.model.driver import Driver

MOST_BYTES = 1000
DEEPEST = b"[" * check.MAX_DEPTH + b"]" * check.MAX_DEPTH
PAYLOADS: list[Any] = [
    *(b"1", b'"\xc3\xb6"', b"null", b'{"a":[1,2]}', b'"\\n"', DEEPEST, b'"' + b"x" * 998 + b'"'),
    *(b"", b" 1", b"1 ", b"[1,\n2]", b"[1,\r2]", b"1,2", b'"a', b'b"', b"1]", b"[2", b'"\xff"'),
    *(b"[" + DEEPEST + b"]", b'"' + b"x" * 999 + b'"', b"{", b"nul", b"01", "1", b"\n", b'"\\'),
]
IDS: list[Any] = ["a", "b", "x" * 256, "x" * 257, "", "ö", 7, "a\nb"]
NAMES: list[Any] = ["mail", "image", "", "a b", "x" * 129, 5]

a_job = st.builds(
    lambda job_id, kind, payload: NewJob(
        id=job_id, kind=kind, payload=Raw(payload) if isinstance(payload, bytes) else payload
    ),
    st.sampled_from(IDS[:2] * 9 + IDS),
    st.sampled_from(NAMES[:2] * 9 + NAMES),
    st.sampled_from(PAYLOADS[:7] * 4 + PAYLOADS),
)


def outcome(jobs: Any, alone: Any) -> int | tuple[type, str]:
    """How many bytes jobs have, or why they are refused."""
    try:
        found: int = alone(jobs)
    except BucketQError as error:
        return type(error), str(error)
    return found


@given(st.lists(a_job, max_size=5))
def test_jobs_are_judged_together_as_each_is_by_itself(jobs: list[NewJob]) -> None:
    each = outcome(jobs, lambda some: sum(check.plain_job(job, MOST_BYTES) for job in some))
    assert outcome(PlainJobs(jobs), lambda some: check_plain(some, MOST_BYTES)) == each


@pytest.mark.parametrize("payload", [each for each in PAYLOADS if isinstance(each, bytes)])
def test_a_payload_that_is_no_value_is_refused_also_between_others(payload: bytes) -> None:
    bodies = [b'"a', payload, b'b"', b"1", payload]
    jobs = [NewJob(id=str(at), kind="k", payload=Raw(body)) for at, body in enumerate(bodies)]
    with pytest.raises(BucketQError):
        check_plain(PlainJobs(jobs), MOST_BYTES)


def test_a_push_is_the_same_push_whatever_says_that_its_jobs_are_plain() -> None:
    jobs = tuple(NewJob(id=f"j{n}", kind="k", payload=Raw(b"1")) for n in range(3))
    assert digest(Push(jobs=PlainJobs(jobs))) == digest(Push(jobs=jobs))
    done = [Completion(job="j", lease="l", result=Raw(b"1")), Completion(job="i", lease="m")]
    plain = CompleteMany(jobs=PlainCompletions(done))
    assert digest(plain) == digest(CompleteMany(jobs=tuple(done)))


def test_calls_that_are_joined_have_the_digests_that_they_have_alone() -> None:
    bodies = (b"1", b'"\xc3\xb6"', b'{"b":1,"a":[2]}', b'"}"')
    jobs = [NewJob(id=f"j{n}", kind="k", payload=Raw(raw)) for n, raw in enumerate(bodies)]
    pushes = [digest(Push(jobs=(job,))) for job in jobs]
    assert plain_digests(Push(jobs=PlainJobs(jobs))) == pushes
    assert plain_digests(Push(jobs=tuple(jobs))) is None
    raws = (NOTHING, *map(Raw, bodies))
    done = [Completion(job=f"j{n}", lease="l", result=raw) for n, raw in enumerate(raws)]
    alone = [digest(Complete(job=each.job, lease="l", result=each.result)) for each in done]
    assert plain_digests(CompleteMany(jobs=PlainCompletions(done))) == alone
    broken = [*jobs, NewJob(id="j", kind="k", payload=Raw(b"[1,\n2]"))]
    assert plain_digests(Push(jobs=PlainJobs(broken))) is None


def test_plain_jobs_are_pushed_and_a_retry_is_the_same_push() -> None:
    driver = Driver()
    jobs = [NewJob(id=f"j{n}", kind="k", payload=Raw(b"1")) for n in range(3)]
    assert driver.ok(Push(jobs=PlainJobs(jobs)), "s", number=1) == ("j0", "j1", "j2")
    assert driver.ok(Push(jobs=tuple(jobs)), "s", number=1) == ("j0", "j1", "j2")
    assert len(driver.state.jobs) == 3


@pytest.mark.parametrize("twice", [PlainJobs, tuple])
def test_an_id_may_not_stand_twice_in_a_push(twice: Any) -> None:
    job = NewJob(id="j", kind="k", payload=Raw(b"1"))
    reason = Driver().refused(Push(jobs=twice((job, job))), InvalidRequestError)
    assert reason == "job id 'j' stands twice in one push"


@pytest.mark.parametrize(
    "changed",
    [{"result_encoding": "base64"}, {"follow_ups": (NewJob(id="n", kind="k", payload=Raw(b"1")),)}],
    ids=lambda changed: next(iter(changed)),
)
def test_completions_with_options_are_not_plain(changed: dict[str, Any]) -> None:
    plain = Completion(job="j", lease="l", result=Raw(b"1"))
    assert isinstance(completions([plain]), PlainCompletions)
    found = completions([plain, Completion(job="i", lease="m", **changed)])
    assert type(found) is tuple
    assert len(found) == 2
    assert set(Completion.__struct_fields__) == {"job", "lease", "result", *OPTIONS}
    assert set(Complete.__struct_fields__) == set(Completion.__struct_fields__)


OPTIONS = ("result_encoding", "follow_ups")
