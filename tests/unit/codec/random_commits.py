"""Random operations on a queue, commit by commit, drawn by Hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from hypothesis import strategies as st
from msgspec import Raw

from bucketq.model.base import NewJob
from bucketq.model.numbered_batches import (
    AckBatch,
    ClaimBatch,
    OpenConsumer,
    Publish,
    RemoveConsumer,
)
from bucketq.model.operations import (
    AnyOperation,
    Cancel,
    Claim,
    Complete,
    Configure,
    Expire,
    Fail,
    GrantToken,
    Heartbeat,
    LeaseRef,
    Pause,
    Purge,
    Push,
    Redrive,
    Release,
    Request,
    Resume,
    RevokeToken,
    SetPriority,
    Tidy,
)
from bucketq.model.records import BrokerRecord
from bucketq.model.state import State
from bucketq.model.transitions import apply
from tests.unit.codec.objects import (
    second,
)

Step = tuple[str, int]


def push(state: State, number: int) -> AnyOperation:
    first = state.next_seq
    return Push(
        jobs=tuple(
            NewJob(
                id=f"job-{first + n}",
                kind=("index", "mail")[n % 2],
                payload=Raw(b'{"n":%d,"text":"line\\nbreak, \xc3\xa9"}' % n),
                key=f"key-{first + n}" if n % 3 == 0 else None,
                delay_s=60 if n % 7 == 6 else None,
            )
            for n in range(number % 100)
        )
    )


def of_running(make: Callable[[str, str, int], AnyOperation]) -> Callable[..., AnyOperation]:
    def choose(state: State, number: int) -> AnyOperation:
        ids = sorted(state.running)
        if not ids:
            return Tidy()
        row = state.jobs.by_id[ids[number % len(ids)]]
        return make(row.id, row.lease or "", row.attempt)

    return choose


def of_any(make: Callable[[str], AnyOperation]) -> Callable[..., AnyOperation]:
    def choose(state: State, number: int) -> AnyOperation:
        ids = list(state.jobs.by_id)
        return make(ids[number % len(ids)]) if ids else Tidy()

    return choose


def _some_token(state: State, number: int) -> str:
    ids = list(state.tokens.by_id)
    return ids[number % len(ids)] if ids else "ffffffff"


OPERATIONS: dict[str, Callable[..., AnyOperation]] = {
    "push": push,
    "claim": lambda _, n: Claim(worker="w", secret=f"{n:032x}", limit=1 + n % 20),
    "beat": of_running(lambda job, lease, _: Heartbeat(leases=(LeaseRef(job, lease),))),
    "complete": of_running(lambda job, lease, _: Complete(job=job, lease=lease, result=Raw(b"1"))),
    "fail": of_running(lambda job, lease, n: Fail(job=job, lease=lease, error="é\n", retry=n < 2)),
    "give up": of_running(lambda job, lease, _: Fail(job=job, lease=lease, error="", retry=False)),
    "release": of_running(lambda job, lease, _: Release(job=job, lease=lease, delay_s=5)),
    "expire": of_running(lambda job, _, attempt: Expire(job=job, attempt=attempt)),
    "cancel": of_any(lambda job: Cancel(job=job)),
    "set_priority": of_any(lambda job: SetPriority(job=job, priority=len(job) - 3)),
    "redrive": lambda _, n: Redrive(limit=n % 3),
    "purge": lambda _, n: Purge(older_than_s=n % 2),
    "pause": lambda _, n: Pause(kind=(None, "mail")[n % 2]),
    "resume": lambda _, n: Resume(kind=(None, "mail")[n % 2]),
    "configure": lambda _, n: Configure(changes={"max_attempts": 1 + n % 9, "max_sessions": 2}),
    "tidy": lambda _, __: Tidy(),
    "grant": lambda _, n: GrantToken(
        id=f"{n % 150:08x}",
        name="é",
        digest=f"{n % 150:064x}",
        rights=("push",),
        ttl_s=(0.0, 5000.0)[n % 2],
    ),
    "revoke": lambda state, n: RevokeToken(id=_some_token(state, n)),
    "open": lambda _, n: OpenConsumer(consumer=f"consumer-{n % 100}"),
    "batch": lambda _, n: ClaimBatch(
        consumer=f"consumer-{n % 9}", epoch=1, batch=1, secret=f"{n:032x}", worker="é", limit=5
    ),
    "close": lambda _, n: AckBatch(consumer=f"consumer-{n % 9}", epoch=1, batch=1),
    "remove": lambda _, n: RemoveConsumer(consumer=f"consumer-{n % 100}"),
    "publish": lambda _, n: Publish(writer=f"writer-{n % 100}", batch=n, jobs=()),
}
steps = st.tuples(
    st.sampled_from([*OPERATIONS, "push", "claim", "complete", "archive", "later", "broker"]),
    st.integers(0, 10_000),
)


class Player:
    """Plays the same steps on any state that holds the same content."""

    def __init__(self) -> None:
        self.elapsed = 0
        self.request = 0

    def play(self, state: State, commit: list[Step]) -> None:
        for verb, number in commit:
            self.request += 1
            if verb == "later":
                self.elapsed += number
            elif verb == "archive":
                remove_done(state, 1 + number % 70)
            elif verb == "broker":
                state.broker = BrokerRecord("host:1", f"b-{number}", number, self.now)
            else:
                request = Request(
                    OPERATIONS[verb](state, number),
                    session="" if verb in {"beat", "expire"} else f"session-{number % 4}",
                    number=self.request,
                    acknowledged_below=max(0, self.request - 3),
                )
                apply(state, request, self.now)

    @property
    def now(self) -> datetime:
        return second(self.elapsed)


def remove_done(state: State, limit: int) -> None:
    for row in [row for row in state.jobs if row.status == "done"][:limit]:
        state.jobs.remove(row.id)
