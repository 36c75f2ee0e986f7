"""Every public call with what it cannot grant: a clear refusal, and a queue that is unharmed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import bucketq
from bucketq import (
    Backoff,
    InvalidRequestError,
    Job,
    JobNotFoundError,
    JobSpec,
    LeaseRef,
    PayloadError,
    PayloadTooLargeError,
    RejectedError,
)

NAN = float("nan")
SURROGATE = "\ud800"
FAR = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
EAST = datetime.min.replace(tzinfo=UTC).astimezone(UTC)

Call = Callable[[Any, Job[Any]], Awaitable[object]]


class Odd:
    """Something that no call takes, and whose text must not spoil the message."""

    def __repr__(self) -> str:
        return "odd " * 1000


def failing() -> Iterator[JobSpec[Any]]:
    yield JobSpec(kind="mail", payload=1)
    raise ZeroDivisionError


ODD = Odd()

NAMES: list[Any] = ["", "x" * 300, SURROGATE, 5, None, b"bytes", ["list"], ODD]
KINDS: list[Any] = [*NAMES, "with blank", "-dash", "ünï", "a\nb", "a" * 129, "*"]
NUMBERS: list[Any] = [-1, NAN, "1", b"1", [], True, 10**400, float("inf"), Decimal(1), ODD]
LEASES: list[Any] = [
    None,
    "job-id",
    5,
    ODD,
    LeaseRef("", "lease"),
    LeaseRef("job", ""),
    LeaseRef("job", "x" * 300),
    LeaseRef(5, "lease"),  # type: ignore[arg-type]
    LeaseRef("job", None),  # type: ignore[arg-type]
    LeaseRef("job", SURROGATE),
]
TOKENS: list[Any] = ["", "nonsense", 5, b"x", ["list"], "x" * 10_000, ODD]


def push(**options: Any) -> Call:
    return lambda queue, _: queue.push("mail", 1, **options)


def pushes(jobs: Any) -> Call:
    return lambda queue, _: queue.push_many(jobs)


def many(name: str, calls: list[Call]) -> list[Any]:
    return [pytest.param(call, id=f"{name}-{number}") for number, call in enumerate(calls)]


def calls_with(value: Any) -> list[Call]:
    """Every call that takes a request, given something that is none."""
    return [
        lambda queue, _: queue.push("mail", 1, request=value),
        lambda queue, _: queue.push_many([JobSpec(kind="mail", payload=1)], request=value),
        lambda queue, _: queue.claim(request=value),
        lambda queue, job: queue.complete(job, request=value),
        lambda queue, job: queue.fail(job, "x", request=value),
        lambda queue, job: queue.release(job, request=value),
        lambda queue, job: queue.cancel(job.id, request=value),
        lambda queue, _: queue.redrive(request=value),
        lambda queue, _: queue.purge(request=value),
        lambda queue, _: queue.pause(request=value),
        lambda queue, _: queue.resume(request=value),
        lambda queue, _: queue.configure(lease_s=50, request=value),
    ]


def with_lease(lease: Any) -> list[Call]:
    return [
        lambda queue, _: queue.heartbeat([lease]),
        lambda queue, _: queue.complete(lease),
        lambda queue, _: queue.fail(lease, "x"),
        lambda queue, _: queue.release(lease),
    ]


def each(make: Callable[[Any], Call], values: list[Any]) -> list[Call]:
    return [make(value) for value in values]


INVALID = [
    *many("kind", each(lambda v: lambda queue, _: queue.push(v, 1), KINDS)),
    *many("id", each(lambda v: push(id=v), [v for v in NAMES if v is not None])),
    *many("key", each(lambda v: push(key=v), [v for v in NAMES if v is not None])),
    *many("priority", each(lambda v: push(priority=v), [*NUMBERS[1:], 2**31 + 1, -(2**40), 1.5])),
    *many("delay", each(lambda v: push(delay_s=v), [*NUMBERS, timedelta(-1), timedelta.max])),
    *many("run_at", each(lambda v: push(run_at=v), [5, "now", datetime(2026, 1, 1), ODD])),  # noqa: DTZ001
    *many("delay and run_at", [push(delay_s=1, run_at=FAR)]),
    *many("max_attempts", each(lambda v: push(max_attempts=v), [0, *NUMBERS, 1.5])),
    *many(
        "backoff",
        each(
            lambda v: push(backoff=v),
            [
                5,
                {"base_s": 1},
                Backoff(base_s=-1),
                Backoff(factor=0.5),
                Backoff(max_s=NAN),
                Backoff(base_s="1"),  # type: ignore[arg-type]
                Backoff(factor=10**400),
            ],
        ),
    ),
    *many(
        "tags",
        each(
            lambda v: push(tags=v),
            [
                5,
                "a=b",
                [("a", "b")],
                {"a": 5},
                {5: "a"},
                {"": "a"},
                {"a": "x" * 300},
                {"a": SURROGATE},
                {SURROGATE: "a"},
                {str(number): "" for number in range(1000)},
            ],
        ),
    ),
    *many("payload", each(lambda v: lambda queue, _: queue.push("mail", v), [NAN, SURROGATE, ODD])),
    *many(
        "push_many",
        each(
            pushes,
            [
                5,
                None,
                "jobs",
                JobSpec(kind="mail", payload=1),
                [{"kind": "mail"}],
                [None],
                [JobSpec(kind="mail", payload=1), 5],
                [JobSpec(kind="mail", payload=1, id="twice")] * 2,
                [JobSpec(kind="mail", payload=1, key="twice")] * 2,
                [JobSpec(kind="mail", payload=1)] * 10_001,
            ],
        ),
    ),
    *many("request", calls_with("nonsense")),
    *many("token", each(lambda v: push(request=v), TOKENS)),
    *many(
        "claim-kinds",
        each(
            lambda v: lambda queue, _: queue.claim(v),
            [5, b"mail", [], "", ["mail", ""], [5], [None], ["a b"], ["k"] * 300, ODD, [ODD]],
        ),
    ),
    *many(
        "limit",
        each(lambda v: lambda queue, _: queue.claim(limit=v), [0, *NUMBERS, 10_001, 1.5, None]),
    ),
    *many("wait", each(lambda v: lambda queue, _: queue.claim(wait_s=v), [*NUMBERS, 3601, None])),
    *many(
        "worker",
        each(lambda v: lambda queue, _: queue.claim(worker=v), [v for v in NAMES if v is not None]),
    ),
    *many("lease", [call for lease in LEASES for call in with_lease(lease)]),
    *many(
        "heartbeat",
        each(
            lambda v: lambda queue, _: queue.heartbeat(v),
            [None, 5, "text", ODD, [LeaseRef("job", "lease")] * 10_001],
        ),
    ),
    *many(
        "result", each(lambda v: lambda queue, job: queue.complete(job, v), [NAN, SURROGATE, ODD])
    ),
    *many(
        "error",
        each(lambda v: lambda queue, job: queue.fail(job, v), [None, 5, b"x", SURROGATE, ODD]),
    ),
    *many(
        "retry",
        each(lambda v: lambda queue, job: queue.fail(job, "x", retry=v), [None, 0, "no", ODD]),
    ),
    *many(
        "release",
        each(lambda v: lambda queue, job: queue.release(job, delay_s=v), [*NUMBERS, None]),
    ),
    *many("cancel", each(lambda v: lambda queue, _: queue.cancel(v), NAMES)),
    *many("get", each(lambda v: lambda queue, _: queue.get(v), NAMES)),
    *many(
        "redrive",
        [
            *each(lambda v: lambda queue, _: queue.redrive(v), [5, [], "", [5], [None], ODD]),
            *each(lambda v: lambda queue, _: queue.redrive(kinds=v), [5, [], "a b", [ODD]]),
            *each(lambda v: lambda queue, _: queue.redrive(limit=v), [0, *NUMBERS]),
        ],
    ),
    *many(
        "purge",
        [
            *each(lambda v: lambda queue, _: queue.purge(v), [5, [], "", [5], [None], ODD]),
            *each(lambda v: lambda queue, _: queue.purge(kinds=v), [5, [], "a b", [ODD]]),
            *each(lambda v: lambda queue, _: queue.purge(older_than_s=v), [*NUMBERS, None]),
        ],
    ),
    *many(
        "pause",
        each(lambda v: lambda queue, _: queue.pause(v), [k for k in KINDS if k is not None]),
    ),
    *many(
        "resume",
        each(lambda v: lambda queue, _: queue.resume(v), [k for k in KINDS if k is not None]),
    ),
    *many(
        "configure",
        each(
            lambda v: lambda queue, _: queue.configure(**v),
            [
                {"lease": 5},
                {"lease_s": 0},
                {"lease_s": 2},
                {"heartbeat_s": 30},
                {"max_jobs": -1},
                {"max_jobs": 1.5},
                {"max_errors": 10**9},
                *({"lease_s": value} for value in NUMBERS),
                *({"max_attempts": value} for value in NUMBERS),
                {"backoff": 5},
                {"backoff": {"base_s": -1}},
                {"backoff": {"unknown": 1}},
                {"backoff": Backoff(factor=0)},
            ],
        ),
    ),
    *many(
        "jobs",
        [
            *each(lambda v: lambda queue, _: queue.jobs(statuses=v), [5, [], "waiting", [ODD]]),
            *each(lambda v: lambda queue, _: queue.jobs(kinds=v), [5, [], "a b", [ODD]]),
            *each(
                lambda v: lambda queue, _: queue.jobs(tags=v),
                [5, "a=b", {"a": 5}, {5: "a"}, {"a": ["b"]}, [("a", "b")], ODD],
            ),
            *each(lambda v: lambda queue, _: queue.jobs(after=v), NUMBERS),
            *each(lambda v: lambda queue, _: queue.jobs(limit=v), [0, *NUMBERS, 10_001]),
        ],
    ),
]

OTHERS: list[Any] = [
    pytest.param(lambda q, _: q.push("mail", "x" * 70_000_000), PayloadTooLargeError, id="payload"),
    pytest.param(
        lambda q, _: q.push_many([JobSpec(kind="mail", payload="x" * 60_000)] * 1200),
        PayloadTooLargeError,
        id="batch",
    ),
    pytest.param(lambda q, j: q.complete(j, "x" * 70_000_000), PayloadTooLargeError, id="result"),
    pytest.param(lambda q, _: q.push("mail", {"a": {1j}}), PayloadError, id="complex"),
    pytest.param(lambda q, _: q.push_many(failing()), ZeroDivisionError, id="failing iterable"),
    pytest.param(lambda q, _: q.get("never-pushed"), JobNotFoundError, id="get"),
    pytest.param(lambda q, _: q.cancel("never-pushed"), JobNotFoundError, id="cancel"),
    pytest.param(lambda q, _: q.redrive("never-pushed"), JobNotFoundError, id="redrive"),
    pytest.param(lambda q, _: q.purge(["never-pushed"]), JobNotFoundError, id="purge"),
]


@pytest.fixture(params=["direct", "embedded"])
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[bucketq.Queue[Any]]:
    async with bucketq.connect("memory://", mode=request.param, timeout_s=5) as opened:
        yield opened


async def refused(queue: bucketq.Queue[Any], call: Call) -> Exception:
    """Make a bad call; show that it left no trace, and return what it raised."""
    await queue.push("mail", "before")
    (job,) = await queue.claim()
    before = await queue.snapshot()
    with pytest.raises(Exception) as raised:  # noqa: PT011 - what it is, is for the test to say
        await call(queue, job)
    after = await queue.snapshot()
    assert (after.version, after.jobs, after.settings) == (
        before.version,
        before.jobs,
        before.settings,
    )
    await queue.push("mail", "after")
    await queue.complete(job)
    (job,) = await queue.claim()
    assert job.payload == "after"
    return raised.value


@pytest.mark.parametrize("call", INVALID)
async def test_a_value_that_makes_no_sense_is_refused_and_harms_nothing(
    queue: bucketq.Queue[Any], call: Call
) -> None:
    error = await refused(queue, call)
    assert isinstance(error, InvalidRequestError), repr(error)
    message = str(error)
    assert 15 < len(message) < 800
    assert message.split(maxsplit=1)[0].islower() or message[0] in "'0123456789"


@pytest.mark.parametrize(("call", "kind"), OTHERS)
async def test_what_cannot_be_granted_is_refused_and_harms_nothing(
    queue: bucketq.Queue[Any], call: Call, kind: type[Exception]
) -> None:
    error = await refused(queue, call)
    assert isinstance(error, kind), repr(error)
    assert isinstance(error, RejectedError | ZeroDivisionError)


async def test_a_kind_that_was_never_pushed_is_accepted(queue: bucketq.Queue[Any]) -> None:
    assert await queue.claim("unheard-of") == []
    assert await queue.redrive(kinds="unheard-of") == 0
    assert await queue.purge(kinds=["unheard-of"]) == 0
    assert (await queue.jobs(kinds="unheard-of")).jobs == ()
    await queue.resume("unheard-of")
    await queue.pause("unheard-of")


async def test_the_largest_values_that_are_allowed_are_granted(queue: bucketq.Queue[Any]) -> None:
    job_id = await queue.push(
        "k" * 128,
        "x" * (1024 * 1024 - 2),
        id="i" * 256,
        priority=-(2**31),
        delay_s=10 * 365 * 86400,
        max_attempts=1_000_000,
        key="\U0001f511" * 256,
        tags={"t" * 256 if n == 0 else str(n): "v" * 256 for n in range(16)},
    )
    assert (await queue.get(job_id)).priority == -(2**31)
    await queue.push("mail", 1, run_at=FAR)
    await queue.push("mail", 1, run_at=EAST)
    assert len(await queue.claim(limit=10_000)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "nearby"},
        {"mode": None},
        {"mode": ["direct"]},
        {"launch": "soon"},
        {"launch": None},
        {"worker": ""},
        {"worker": 5},
        {"worker": "x" * 300},
        {"worker": SURROGATE},
        {"timeout_s": 0},
        {"timeout_s": -1},
        {"timeout_s": NAN},
        {"timeout_s": "5"},
        {"timeout_s": None},
        {"timeout_s": True},
        {"payload_type": 5},
        {"payload_type": "Order"},
        {"payload_type": str | bytes},
        {"create": "no"},
        {"create": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("connect", [bucketq.connect, bucketq.connect_sync])
def test_an_option_that_makes_no_sense_is_refused_when_connecting(
    connect: Callable[..., object], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError):
        connect("memory://", **options)


@pytest.mark.parametrize(
    "url", [None, 5, b"memory://", "", "queue.json", "/tmp/queue.json", "http://x", "ftp://x/y"]
)
@pytest.mark.parametrize("connect", [bucketq.connect, bucketq.connect_sync])
def test_an_address_that_makes_no_sense_is_refused_when_connecting(
    connect: Callable[..., object], url: Any
) -> None:
    with pytest.raises(InvalidRequestError):
        connect(url)
