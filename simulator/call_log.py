"""Records of calls: what the actors of a simulation asked for, and the answers.

A ``RecordingQueue`` stands between an actor and its queue and records every call, with the time and
the version of the object at its start and end. ``invariants`` compares answers with commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bucketq.errors import (
    BucketQError,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
)
from bucketq.model.job_ids import JobId
from bucketq.model.numbered_batches import BatchState, ConsumerState, SettledJob
from bucketq.model.operations import Pulse
from bucketq.model.queue_stats import Stats
from bucketq.model.records import Progress
from bucketq.queue.job import Job, JobBatch
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.testing.virtual_loop import VirtualLoop
from simulator.actors.bulk_actors import BulkPublisher, Position
from simulator.invariants.follow_up_invariants import FOLLOWS, count_follow_ups
from simulator.watched_store import WatchedStore

SCHEDULED = "scheduled "
"""How the payloads of jobs begin that a schedule pushes; they are no tokens."""


@dataclass(slots=True)
class RecordedCall:
    """One call of a verb. It has no end if its process died."""

    number: int
    actor: str
    verb: str
    detail: dict[str, Any]
    began_s: float
    began_version: int
    ended_s: float | None = None
    ended_version: int = 0
    answer: Any = None
    error: BucketQError | None = None
    was_cancelled: bool = False
    """Whether its caller stopped waiting for it."""

    @property
    def succeeded(self) -> bool:
        """Whether it was answered, and not with an error."""
        return self.ended_s is not None and self.error is None

    def __str__(self) -> str:
        """One line of a trace."""
        if self.ended_s is None:
            end = "never returned"
        else:
            outcome = repr(self.error) if self.error is not None else repr(self.answer)
            end = f"at {self.ended_s:.3f} s, version {self.ended_version}: {outcome[:120]}"
        asked = ", ".join(f"{name}={value}" for name, value in self.detail.items())
        return (
            f"{self.began_s:9.3f} s  version {self.began_version:<4} {self.actor}: "
            f"{self.verb}({asked}) -> {end}"
        )


@dataclass
class CallLog:
    """All calls of a simulation, in the order in which they began."""

    loop: VirtualLoop
    store: WatchedStore
    key: str
    calls: list[RecordedCall] = field(default_factory=list)
    leaders: set[str] = field(default_factory=set)
    """The processes that write the object only as brokers."""
    clients: set[str] = field(default_factory=set)
    """The processes whose calls may go through a broker."""
    deaths: dict[str, float] = field(default_factory=dict)
    """When each process ended."""
    excused: set[str] = field(default_factory=set)
    """The processes that were frozen, so that others may consider them dead."""
    pushing: set[str] = field(default_factory=set)
    """The actors that push follow-up jobs with each completion."""
    forced: set[str] = field(default_factory=set)
    """The processes that take over by force."""

    def version(self) -> int:
        """Return the current version of the object; every commit raises it by one."""
        return len(self.store.history(self.key))

    async def note(
        self, actor: str, verb: str, detail: dict[str, Any], ask: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Make a call and record it."""
        call = RecordedCall(len(self.calls), actor, verb, detail, self.loop.time(), self.version())
        self.calls.append(call)
        try:
            call.answer = await ask()
        except BucketQError as error:
            call.error = error
            call.ended_s, call.ended_version = self.loop.time(), self.version()
            raise
        except asyncio.CancelledError:
            call.was_cancelled = True
            raise
        # A process that was killed does not get here.
        call.ended_s, call.ended_version = self.loop.time(), self.version()
        return call.answer


class RecordingQueue:
    """The verbs of a queue; every call is recorded. Payloads are tokens that no two jobs share."""

    def __init__(
        self, history: CallLog, actor: str, queue: Queue[str], *, reports: bool = False
    ) -> None:
        """Record the calls of ``actor``; with ``reports`` heartbeats carry progress."""
        self._reports = reports
        self._history = history
        self._actor = actor
        self.queue = queue

    async def push(
        self, kind: str, token: str, *, request: str | None = None, **options: Any
    ) -> str:
        """Push a job whose payload is ``token``."""
        answer: str = await self._note(
            "push",
            {"token": token, "key": options.get("key"), "request": request},
            lambda: self.queue.push(kind, token, request=request, **options),
        )
        return answer

    async def push_unique(
        self, kind: str, token: str, *, request: str | None = None, **options: Any
    ) -> JobId:
        """Push a unique job whose payload is ``token``, unless its name is taken."""
        unique, scope = options["unique"], options["unique_scope"]
        answer: JobId = await self._note(
            "push_unique",
            {"token": token, "unique": unique, "scope": scope, "request": request},
            lambda: self.queue.push(kind, token, request=request, **options),
        )
        return answer

    async def limit(self, *, request: str | None = None, **options: Any) -> str:
        """Set a limit."""
        answer: str = await self._note(
            "limit",
            {**options, "request": request},
            lambda: self.queue.limit(request=request, **options),
        )
        return answer

    async def push_many(
        self, kind: str, tokens: list[str], *, request: str | None = None
    ) -> list[str]:
        """Push several jobs in one commit."""
        jobs = [JobSpec(kind=kind, payload=token) for token in tokens]
        answer: list[str] = await self._note(
            "push_many",
            {"tokens": tokens, "request": request},
            lambda: self.queue.push_many(jobs, request=request),
        )
        return answer

    async def claim(
        self,
        kinds: str | tuple[str, ...] | None,
        limit: int,
        wait_s: float,
        request: str | None = None,
    ) -> list[Job[str]]:
        """Claim jobs; the worker is the actor."""
        answer: list[Job[str]] = await self._note(
            "claim",
            {"kinds": kinds, "limit": limit, "request": request},
            lambda: self.queue.claim(
                kinds, limit=limit, wait_s=wait_s, worker=self._actor, request=request
            ),
        )
        return answer

    def begin_to_push(self) -> None:
        """Push follow-up jobs with each completion from now on."""
        self._history.pushing.add(self._actor)

    async def complete(self, job: Job[str], request: str | None = None) -> None:
        """Complete a job, and push its follow-up jobs."""
        detail = _held(job, request)
        specs = _follow_ups(job) if self._actor in self._history.pushing else ()
        await self._note(
            "complete",
            detail,
            lambda: self.queue.complete(job, "result", push=specs, request=request),
        )

    async def snooze(self, job: Job[str], delay_s: float, request: str | None = None) -> str:
        """Put a job off."""
        answer: str = await self._note(
            "snooze", _held(job, request), lambda: self.queue.snooze(job, delay_s, request=request)
        )
        return answer

    async def fail(self, job: Job[str], request: str | None = None) -> str:
        """Fail a job."""
        detail = _held(job, request)
        answer: str = await self._note(
            "fail", detail, lambda: self.queue.fail(job, "simulated", request=request)
        )
        return answer

    async def release(self, job: Job[str], request: str | None = None) -> None:
        """Release a job."""
        detail = _held(job, request)
        await self._note("release", detail, lambda: self.queue.release(job, request=request))

    async def heartbeat(self, jobs: list[Job[str]]) -> list[Pulse]:
        """Heartbeat jobs."""
        leases = [job.lease.lease for job in jobs]
        # The note names the attempt, so that a report that outlives its attempt is noticed.
        come = {job.id: Progress(1, 2, job.lease.lease) for job in jobs if self._reports}
        answer: list[Pulse] = await self._note(
            "heartbeat", {"leases": leases}, lambda: self.queue.heartbeat(jobs, progress=come)
        )
        return answer

    async def cancel(self, job_id: str, request: str | None = None) -> str:
        """Cancel a job."""
        detail = {"job": job_id, "request": request}
        answer: str = await self._note(
            "cancel", detail, lambda: self.queue.cancel(job_id, request=request)
        )
        return answer

    async def set_priority(self, job_id: str, priority: int, request: str | None = None) -> None:
        """Change the priority of a job."""
        detail = {"job": job_id, "priority": priority, "request": request}
        await self._note(
            "set_priority",
            detail,
            lambda: self.queue.set_priority(job_id, priority, request=request),
        )

    async def redrive(self, request: str | None = None) -> int:
        """Redrive every dead job."""
        answer: int = await self._note(
            "redrive", {"request": request}, lambda: self.queue.redrive(request=request)
        )
        return answer

    async def pause(self, kind: str | None, request: str | None = None) -> None:
        """Pause the queue."""
        await self._note("pause", {"kind": kind}, lambda: self.queue.pause(kind, request=request))

    async def resume(self, request: str | None = None) -> None:
        """Resume the queue."""
        await self._note("resume", {}, lambda: self.queue.resume(request=request))

    async def stats(self, request: str | None = None) -> Stats:
        """Read the statistics; a read has no request id."""
        del request
        answer: Stats = await self._note("stats", {}, self.queue.stats)
        return answer

    async def wait(self, job_id: str, timeout_s: float) -> str:
        """Wait for a job; the answer is how it ended, ``not over``, or ``missing``."""

        async def ask() -> str:
            try:
                result = await self.queue.wait(job_id, timeout_s=timeout_s)
            except TimeoutError:
                return "not over"
            except JobNotFoundError:
                return "missing"
            except JobFailedError:
                return "dead"
            except JobCancelledError:
                return "cancelled"
            return "completed" if result == "result" else f"another result: {result!r}"

        answer: str = await self._note("wait", {"job": job_id}, ask)
        return answer

    async def open_consumer(self, consumer: str, request: str | None = None) -> ConsumerState:
        """Open a consumer."""
        answer: ConsumerState = await self._note(
            "open_consumer",
            {"consumer": consumer, "request": request},
            lambda: self.queue.open_consumer(consumer, request=request),
        )
        return answer

    async def claim_batch(
        self,
        consumer: str,
        epoch: int,
        batch: int,
        limit: int,
        lease_s: float | None,
        acked: int = 0,
    ) -> BatchState:
        """Claim a batch; the name of the worker includes the consumer."""
        worker = f"{self._actor}@{consumer}"
        answer: BatchState = await self._note(
            "claim_batch",
            {"consumer": consumer, "epoch": epoch, "batch": batch, "acked": acked},
            lambda: self.queue.claim_batch(
                consumer, epoch, batch, limit=limit, worker=worker, lease_s=lease_s, acked=acked
            ),
        )
        return answer

    async def prepare_batch(
        self, consumer: str, epoch: int, batch: int, limit: int, lease_s: float | None
    ) -> BatchState:
        """Reserve jobs for a batch."""
        worker = f"{self._actor}@{consumer}"
        answer: BatchState = await self._note(
            "prepare_batch",
            {"consumer": consumer, "epoch": epoch, "batch": batch},
            lambda: self.queue.prepare_batch(
                consumer, epoch, batch, limit=limit, worker=worker, lease_s=lease_s
            ),
        )
        return answer

    async def release_prepared(
        self, consumer: str, epoch: int, batch: int, request: str | None = None
    ) -> BatchState:
        """Give up what is reserved for a batch, which is not one yet."""
        detail = {"consumer": consumer, "epoch": epoch, "batch": batch, "request": request}
        ask = partial(self.queue.release_batch, consumer, epoch, batch, request=request)
        answer: BatchState = await self._note("release_prepared", detail, ask)
        return answer

    async def read_batch(self, consumer: str, batch: int, start: int, limit: int) -> JobBatch[str]:
        """Read a slice of a batch."""
        answer: JobBatch[str] = await self._note(
            "read_batch",
            {"consumer": consumer, "batch": batch, "start": start, "limit": limit},
            lambda: self.queue.read_batch(consumer, batch, start=start, limit=limit),
        )
        return answer

    async def ack_batch(
        self, consumer: str, epoch: int, batch: int, request: str | None = None
    ) -> BatchState:
        """Acknowledge a batch."""
        answer: BatchState = await self._note(
            "ack_batch",
            {"consumer": consumer, "epoch": epoch, "batch": batch, "request": request},
            lambda: self.queue.ack_batch(consumer, epoch, batch, request=request),
        )
        return answer

    async def settle_batch(
        self,
        consumer: str,
        batch: int,
        outcomes: list[tuple[Job[str], bool]],
        request: str | None = None,
    ) -> BatchState:
        """Complete jobs of a batch, or fail those that are marked."""
        settled = [
            SettledJob(job=job.id, lease=job.lease.lease, error="simulated" if is_bad else None)
            for job, is_bad in outcomes
        ]
        completed = [each.job for each in settled if each.error is None]
        answer: BatchState = await self._note(
            "settle_batch",
            {"consumer": consumer, "batch": batch, "completed": completed, "request": request},
            lambda: self.queue.settle_batch(consumer, batch, settled, request=request),
        )
        return answer

    async def release_batch(
        self, consumer: str, epoch: int, batch: int, request: str | None = None
    ) -> BatchState:
        """Release a batch."""
        answer: BatchState = await self._note(
            "release_batch",
            {"consumer": consumer, "epoch": epoch, "batch": batch, "request": request},
            lambda: self.queue.release_batch(consumer, epoch, batch, request=request),
        )
        return answer

    async def publish(
        self,
        writer: str,
        batch: int,
        part: int,
        kind: str,
        tokens: list[str],
        request: str | None = None,
    ) -> bool:
        """Publish a position."""
        jobs = [JobSpec(kind=kind, payload=token) for token in tokens]
        answer: bool = await self._note(
            "publish",
            {
                "writer": writer,
                "batch": batch,
                "part": part,
                "tokens": tokens,
                "request": request,
            },
            lambda: self.queue.publish(writer, batch, jobs, part=part, request=request),
        )
        return answer

    async def adopt(
        self,
        publisher: BulkPublisher,
        position: Position,
        request: str | None = None,
    ) -> bool:
        """Publish a position by adoption; it promises the same."""
        writer, batch, part, _, tokens = position
        detail = {"writer": writer, "batch": batch, "part": part, "tokens": tokens}
        answer: bool = await self._note(
            "publish", detail | {"request": request}, lambda: publisher.publish(position)
        )
        return answer

    async def _note(
        self, verb: str, detail: dict[str, Any], ask: Callable[[], Awaitable[Any]]
    ) -> Any:
        return await self._history.note(self._actor, verb, detail, ask)


def _held(job: Job[str], request: str | None) -> dict[str, Any]:
    return {"job": job.id, "lease": job.lease.lease, "request": request}


def _follow_ups(job: Job[str]) -> list[JobSpec[str]]:
    """The jobs that a job pushes; the same in every attempt, so that a second one is noticed."""
    count = count_follow_ups(job.payload, job.record.seq)
    return [
        JobSpec(kind=job.kind, payload=f"{FOLLOWS}{job.id} {place}", delay_s=place or None)
        for place in range(count)
    ]
