"""Calls arrive as they were sent, and an invalid one fails alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from bucketq.errors import InvalidRequestError
from bucketq.model import operations as ops
from bucketq.model.base import NewJob
from bucketq.model.outbox import ReadOutbox
from bucketq.model.records import NOTHING, Backoff
from bucketq.model.requests.plain_jobs import PlainCompletions, PlainJobs
from bucketq.model.requests.request_digest import digest
from bucketq.rpc.messages import OFFERED, Call, FlushArchive, Hello, Ping, Pong, Welcome
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.call_codec import (
    DEFAULT_TTL_S,
    HELLO,
    PING,
    WELCOME,
    read_call,
    read_pong,
    write_call,
    write_pong,
)
from tests.unit.rpc.samples import OPERATIONS, PLAIN_JOB


def carried(*calls: Call) -> list[Call]:
    """Take calls through the bytes of one message."""
    message = pb.SessionRequest()
    for call in calls:
        write_call(message.calls, call)
    received = pb.SessionRequest.FromString(message.SerializeToString())
    return [read_call(sent, sent.tag)[0] for sent in received.calls]


def call(operation: ops.AnyOperation | FlushArchive, tag: int = 1) -> Call:
    if isinstance(operation, FlushArchive):
        return Call(tag, operation, 5.0)
    return Call(tag, ops.Request(operation, "s", 2, 1), 5.0)


def kind_of(operation: object) -> str:
    return type(operation).__name__


def received(**fields: Any) -> Call:
    return read_call(pb.Call(tag=1, **fields), 1)[0]


def operation_of(got: Call) -> Any:
    assert isinstance(got.request, ops.Request)
    return got.request.operation


@pytest.mark.parametrize("operation", OPERATIONS, ids=kind_of)
def test_an_operation_arrives_as_it_was_sent(operation: Any) -> None:
    assert carried(call(operation)) == [call(operation)]


RECORDED = [each for each in OPERATIONS if not isinstance(each, (*ops.REPEATABLE, FlushArchive))]


@pytest.mark.parametrize("operation", RECORDED, ids=kind_of)
def test_a_request_has_the_same_digest_on_every_route(operation: Any) -> None:
    """A retry may go through a broker although the first try did not, and vice versa."""
    local = as_a_caller_has_it(operation)
    (sent,) = carried(call(local))
    assert digest(operation_of(sent)) == digest(local) == digest(operation)


def as_a_caller_has_it(value: Any) -> Any:
    """The same value with ints for whole floats and with times in another zone."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, datetime):
        return value.astimezone(timezone(timedelta(hours=1))) if value.year > 1 else value
    if isinstance(value, tuple):
        return tuple(map(as_a_caller_has_it, value))
    if isinstance(value, Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return type(value)(**{name: as_a_caller_has_it(item) for name, item in fields.items()})
    return value


def test_the_samples_have_every_operation_that_a_client_may_ask_for() -> None:
    assert {type(operation) for operation in OPERATIONS} == {*OFFERED, FlushArchive}


@pytest.mark.parametrize(
    "kind", [kind for kind in get_args(ops.AnyOperation) if kind not in OFFERED], ids=str
)
def test_what_committers_do_by_themselves_has_no_message(kind: type[Struct]) -> None:
    operation: Any = kind(**dict.fromkeys(kind.__struct_fields__, "any"))
    with pytest.raises(InvalidRequestError, match="is not an operation that clients may send"):
        carried(call(operation))
    assert not hasattr(pb, kind.__name__)


def test_many_calls_in_one_message_keep_their_order_and_their_tags() -> None:
    calls = [call(operation, tag) for tag, operation in enumerate(OPERATIONS)]
    assert carried(*calls) == calls


@pytest.mark.parametrize(
    "request_",
    [
        ops.Request(ops.Cancel(job="j")),
        ops.Request(ops.Cancel(job="j"), "s", 1, 0),
        ops.Request(ops.Cancel(job="j"), "s", 0, 0),
        ops.Request(ops.Cancel(job="j"), "s", 9, 5, 0),
        ops.Request(ops.Cancel(job="j"), "größer", 2**63 - 1, 2**63 - 1, 2**63 - 1),
        ops.Request(ops.Cancel(job="j"), "s", 1, 0, numbers=(1, 2, 2**63 - 1)),
        ops.Request(ops.Cancel(job="j"), "s", 1, 0, numbers=(1, 2), counts=(3, 2**32 - 1)),
    ],
)
def test_the_id_of_a_request_arrives_as_it_was_sent(request_: ops.Request) -> None:
    assert carried(Call(2**60, request_, 1.0)) == [Call(2**60, request_, 1.0)]


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [(0.0, 0.001), (-3.0, 0.001), (0.0004, 0.001), (1.5, 1.5), (1e9, (2**32 - 1) / 1000)],
)
def test_the_time_that_is_left_arrives_in_milliseconds_and_never_as_none(
    sent: float, arrives: float
) -> None:
    (got,) = carried(Call(1, FlushArchive(), sent))
    assert got.ttl_s == arrives


def test_a_call_that_does_not_say_how_long_it_may_wait_gets_a_minute() -> None:
    assert received(get=pb.Get(job="j")).ttl_s == DEFAULT_TTL_S


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
seconds = st.floats(allow_nan=False)


@given(
    st.lists(
        st.builds(
            NewJob,
            id=names,
            kind=names,
            payload=st.binary(max_size=30).map(Raw),
            payload_encoding=st.sampled_from([None, "base64"]),
            priority=st.integers(-(2**31), 2**31),
            delay_s=st.none() | seconds,
            run_at=st.none() | st.datetimes(timezones=st.just(UTC)),
            max_attempts=st.none() | st.integers(-(2**63), 2**63 - 1),
            backoff=st.none() | st.builds(Backoff, seconds, seconds, seconds),
            key=st.none() | names,
            tags=st.none() | st.dictionaries(names, names, min_size=1, max_size=3),
            replay_of=st.none() | names,
            traceparent=st.none() | names,
        ),
        max_size=5,
    )
)
def test_any_jobs_arrive_as_they_were_pushed(jobs: list[NewJob]) -> None:
    push = call(ops.Push(jobs=tuple(jobs)))
    assert carried(push) == [push]


def test_a_job_without_other_options_carries_its_span() -> None:
    job = NewJob(id="j", kind="k", payload=Raw(b"1"), traceparent="00-0a-0b-01")
    (got,) = carried(call(ops.Push(jobs=(job,))))
    assert operation_of(got).jobs == (job,)


def test_no_tags_and_empty_tags_are_the_same() -> None:
    job = NewJob(id="j", kind="k", payload=Raw(b"1"), tags={})
    (got,) = carried(call(ops.Push(jobs=(job,))))
    assert operation_of(got).jobs[0].tags is None


def test_a_result_that_was_not_given_is_the_one_nothing_that_the_encoder_knows() -> None:
    (one, many) = carried(
        call(ops.Complete(job="j", lease="l")),
        call(ops.CompleteMany(jobs=(ops.Completion(job="j", lease="l"),))),
    )
    assert operation_of(one).result is NOTHING
    assert operation_of(many).jobs[0].result is NOTHING


def test_the_name_of_a_kind_is_held_once_for_all_its_jobs() -> None:
    jobs = tuple(NewJob(id=str(i), kind="email-kind", payload=Raw(b"1")) for i in range(3))
    first, second = carried(call(ops.Push(jobs=jobs)), call(ops.Push(jobs=jobs)))
    kinds = [job.kind for got in (first, second) for job in operation_of(got).jobs]
    assert len({id(kind) for kind in kinds}) == 1


@pytest.mark.parametrize(
    "operation",
    [
        ops.Get(job="lone \ud800 surrogate"),
        ops.Get(job=7),  # type: ignore[arg-type]
        ops.Fail(job="j", lease="l", error="\udfff"),
        ops.Claim(worker="w", secret="s", limit=2**63),
        ops.Push(jobs=(NewJob(id="j", kind="k", payload=Raw(b"1"), priority=2**64),)),
        ops.Push(jobs=(NewJob(id="j", kind="k", payload="1"),)),  # type: ignore[arg-type]
        ops.Push(
            jobs=(
                NewJob(
                    id="j",
                    kind="k",
                    payload=Raw(b"1"),
                    run_at=datetime(2026, 1, 1),  # noqa: DTZ001 - that is the point
                ),
            )
        ),
        ops.Configure(changes={"lease_s": object()}),
        ops.Tidy(),
        ops.Expire(job="j", attempt=1),
        ReadOutbox(),
    ],
    ids=kind_of,
)
def test_what_cannot_be_sent_is_refused_and_leaves_no_trace_in_the_message(
    operation: Any,
) -> None:
    message = pb.SessionRequest()
    write_call(message.calls, call(ops.Get(job="before")))
    with pytest.raises(InvalidRequestError):
        write_call(message.calls, call(operation, 2))
    write_call(message.calls, call(ops.Get(job="after")))
    assert [sent.get.job for sent in message.calls] == ["before", "after"]


@pytest.mark.parametrize("ttl_s", [float("nan"), float("inf")])
def test_a_time_that_is_not_a_number_is_rejected(ttl_s: float) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be sent"):
        write_call(pb.SessionRequest().calls, Call(1, FlushArchive(), ttl_s))


def test_jobs_without_options_arrive_by_columns() -> None:
    kinds = ("a", "a", "b")
    jobs = [NewJob(id=f"j{n}", kind=kind, payload=Raw(b"%d" % n)) for n, kind in enumerate(kinds)]
    for some in (jobs, jobs[:2], jobs[:1], []):
        sent = call(ops.Push(jobs=PlainJobs(some)))
        (got,) = carried(sent)
        assert got == sent
        assert type(operation_of(got).jobs) is (PlainJobs if some else tuple)


@pytest.mark.parametrize("results", [(NOTHING, NOTHING), (Raw(b"1"), NOTHING), (Raw(b"1"),) * 2])
def test_completions_without_options_arrive_by_columns(results: tuple[Raw, ...]) -> None:
    done = [ops.Completion(job=f"j{n}", lease="l", result=raw) for n, raw in enumerate(results)]
    sent = call(ops.CompleteMany(jobs=PlainCompletions(done)))
    (got,) = carried(sent)
    assert got == sent
    assert type(operation_of(got).jobs) is PlainCompletions
    nothing = [each.result is NOTHING for each in operation_of(got).jobs]
    assert nothing == [raw is NOTHING for raw in results]


TWO = ["a", "b"]


@pytest.mark.parametrize(
    "fields",
    [
        {"push": pb.Push(plain=pb.PlainJobs(ids=TWO, kinds=["k"], payloads=[b"1"]))},
        {"push": pb.Push(plain=pb.PlainJobs(ids=TWO, payloads=[b"1", b"2"]))},
        {"push": pb.Push(plain=pb.PlainJobs(ids=["a"], kinds=TWO, payloads=[b"1"]))},
        {"push": pb.Push(jobs=[pb.NewJob()], plain=pb.PlainJobs())},
        {"complete_many": pb.CompleteMany(plain=pb.PlainCompletions(jobs=TWO, leases=["l"]))},
        {
            "complete_many": pb.CompleteMany(
                plain=pb.PlainCompletions(jobs=TWO, leases=TWO, results=[b"1"])
            )
        },
        {
            "complete_many": pb.CompleteMany(
                jobs=[pb.Complete()], plain=pb.PlainCompletions(jobs=["a"], leases=["l"])
            )
        },
    ],
)
def test_columns_that_do_not_match_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="plain"):
        received(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"claim": pb.Claim(worker="w", wait_s=float("nan"))},
        {"claim": pb.Claim(worker="w", wait_s=float("inf"))},
        {"claim": pb.Claim(worker="w", wait_s=-1.0)},
        {"configure": pb.Configure(changes=b"{")},
        {"configure": pb.Configure(changes=b"[1]")},
        {"configure": pb.Configure(changes=b'{"a":' + b"[" * 100_000)},
        {"configure": pb.Configure(changes=b"\xff")},
    ],
    ids=lambda fields: next(iter(fields), "nothing"),
)
def test_a_call_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        received(**fields)


@pytest.mark.parametrize(("seconds", "nanos"), [(2**62, 0), (-(2**62), 0), (253402300800, 0)])
def test_a_moment_that_no_calendar_has_is_refused(seconds: int, nanos: int) -> None:
    push = pb.Push()
    push.jobs.add().options.run_at.seconds = seconds
    push.jobs[0].options.run_at.nanos = nanos
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        received(push=push)


@pytest.mark.parametrize(
    "fields",
    [
        {"push": pb.Push(jobs=[pb.NewJob()] * 100_001)},
        {
            "push": pb.Push(
                plain=pb.PlainJobs(ids=TWO[:1] * 100_001, kinds=["k"], payloads=[b"1"] * 100_001)
            )
        },
        {"complete_many": pb.CompleteMany(plain=pb.PlainCompletions(jobs=TWO[:1] * 100_001))},
        {"heartbeat": pb.Heartbeat(leases=[pb.LeaseRef()] * 100_001)},
        {"complete_many": pb.CompleteMany(jobs=[pb.Complete()] * 100_001)},
        {"release_many": pb.ReleaseMany(leases=[pb.LeaseRef()] * 100_001)},
        {"claim": pb.Claim(kinds=["k"] * 100_001)},
        {"redrive": pb.Redrive(jobs=["j"] * 100_001)},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_more_than_any_queue_allows_is_refused_before_it_is_looked_at(
    fields: dict[str, Any],
) -> None:
    with pytest.raises(InvalidRequestError, match="100,001"):
        received(**fields)


def test_an_operation_of_a_later_version_is_refused() -> None:
    unknown = pb.Call(tag=7)
    unknown.MergeFromString(b"\xf2\x07\x00")  # field 126, an empty message
    with pytest.raises(InvalidRequestError, match="does not know"):
        read_call(unknown, 7)


def test_what_the_model_checks_passes_as_it_is() -> None:
    invalid = pb.Push(jobs=[pb.NewJob(payload=b"\xff{", payload_encoding="rot13")])
    (job,) = operation_of(received(push=invalid)).jobs
    assert (bytes(job.payload), job.payload_encoding) == (b"\xff{", "rot13")


def test_a_backoff_has_defaults_for_what_a_client_leaves_out() -> None:
    sent = pb.NewJob(options=pb.JobOptions(backoff=pb.Backoff(base_s=9.0)))
    (job,) = operation_of(received(push=pb.Push(jobs=[sent]))).jobs
    assert job.backoff == Backoff(base_s=9.0)


def test_a_configure_without_changes_reads_the_settings() -> None:
    assert operation_of(received(configure=pb.Configure())) == ops.Configure(changes={})


def test_greetings_arrive_as_they_were_sent() -> None:
    hello = Hello(queue="q", incarnation="i", broker="b", client="größer")
    welcome = Welcome(incarnation="i", broker="b", epoch=3, version=2**53)
    ping = Ping(queue="q", incarnation="i")
    assert HELLO.read(HELLO.encode(hello)) == hello
    assert HELLO.read(HELLO.encode(Hello())) == Hello()
    assert WELCOME.read(WELCOME.encode(welcome)) == welcome
    assert WELCOME.read(pb.Welcome(broker="older")).operations == ()
    assert PING.read(PING.encode(ping)) == ping


@pytest.mark.parametrize("role", ["leading", "cut off", "standing by", "retired"])
def test_a_pong_arrives_as_it_was_sent(role: Any) -> None:
    pong = Pong(
        incarnation="i",
        broker="b",
        role=role,
        epoch=3,
        version=9,
        commit_age_s=1.25,
        leader="10.0.0.1:7700",
    )
    assert read_pong(write_pong(pong)) == pong


def test_a_role_of_a_later_version_is_not_that_of_a_leader() -> None:
    sent = pb.PingResponse.FromString(b"\x18\x63")  # role 99
    assert read_pong(sent).role == "standing by"


def test_the_returned_size_is_near_the_one_on_the_wire() -> None:
    message = pb.SessionRequest()
    payload = Raw(b'"' + b"x" * 10_000 + b'"')
    jobs = tuple(NewJob(id=f"j{i}", kind="k", payload=payload) for i in range(100))
    size = write_call(message.calls, call(ops.Push(jobs=jobs)))
    assert message.ByteSize() <= size <= 1.1 * message.ByteSize()
    assert write_call(message.calls, call(ops.Push(jobs=(PLAIN_JOB,)))) < 500
