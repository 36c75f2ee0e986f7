"""What a handler may ask for beside its payload."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, Protocol, TypeVar, Unpack, overload

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model.base import NewJob
from bucketq.model.operations import LeaseRef
from bucketq.model.records import Progress
from bucketq.queue.job import Job
from bucketq.queue.promised_jobs import FollowUps, PromisedJobId
from bucketq.queue.push_options import JobSpec, PushOptions
from bucketq.queue.queue import Queue
from bucketq.worker.handler_exceptions import JobCancelled
from bucketq.worker.handler_queue import HandlerQueue
from bucketq.worker.looped_committer import LoopedCommitter

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class MakesJobs(Protocol[T_contra]):
    """A handler whose payload is of a type, as ``@worker.handler`` returns it."""

    def job(self, payload: T_contra, **options: Unpack[PushOptions]) -> JobSpec[Any]:
        """Return a job for it."""
        ...


class MakesBareJobs(Protocol):
    """A handler that takes no payload."""

    def job(self, **options: Unpack[PushOptions]) -> JobSpec[Any]:
        """Return a job for it."""
        ...


class _Reported:
    """What a report returns: it can be awaited, and is done already."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        """Return at once."""
        yield from ()


class Context:
    """One attempt at a job, as its handler sees it.

    An async handler that should stop is cancelled, and one in a process is killed. A handler in a
    thread cannot be stopped: one that runs long should check ``cancelled`` regularly.

    Attributes:
        job: The job.
        cancelled: Whether to stop: the result is no longer wanted.
    """

    def __init__(self, job: Job[Any], access: HandlerQueue | None = None) -> None:
        self.job = job
        self._access = access
        self._follow_ups: FollowUps | None = None
        self.cancelled = False
        """Whether to stop: the result is no longer wanted."""
        self.reported: Progress | None = None
        """The progress that was reported last."""
        self.on_report: Callable[[Progress], object] | None = None
        """In another process than the worker's: sends a progress there."""

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1. It never repeats, so it can be a fencing token."""
        return self.job.attempt

    @property
    def lease(self) -> LeaseRef:
        """The lease by which this attempt holds the job."""
        return self.job.lease

    @property
    def queue(self) -> Queue[Any]:
        """The queue of the worker, for async handlers: ``await context.queue.push(...)``.

        What it does takes effect at once, whatever becomes of this job; ``push`` of the context
        itself does so when this job is completed. On Spark executors it raises.
        """
        return self._reach().queue

    @property
    def queue_sync(self) -> BlockingQueue[Any]:
        """The queue of the worker, for handlers that are not async."""
        return self._reach().queue_sync

    @property
    def relay(self) -> LoopedCommitter | None:
        """What commits the requests of a handler in another process."""
        return None if self._access is None else self._access.relay

    @overload
    def push(self, kind: str, payload: Any, **options: Unpack[PushOptions]) -> PromisedJobId: ...

    @overload
    def push(
        self, kind: MakesJobs[T], payload: T, **options: Unpack[PushOptions]
    ) -> PromisedJobId: ...

    @overload
    def push(self, kind: MakesBareJobs, **options: Unpack[PushOptions]) -> PromisedJobId: ...

    @overload
    def push(self, kind: JobSpec[Any]) -> PromisedJobId: ...

    def push(self, kind: Any, *payload: Any, **options: Any) -> PromisedJobId:
        """Push a follow-up job: it exists if and only if this job is completed.

        ``await context.push("log", {...})``, with the options of ``Queue.push``, or with a handler
        in place of the kind: ``await context.push(send, Email(to="ada"))``. A handler that is not
        async calls it without ``await``. The jobs are part of the commit that completes this one:
        if the handler raises, snoozes or loses its lease, they are dropped.

        The id is known at once, and cannot be waited for in this handler. A job whose key, unique
        name or id belongs to another job by then is not added. At most 1,000 jobs, with 1 MiB of
        payloads together, besides those that are large; a full queue takes them too.
        """
        if isinstance(kind, JobSpec):
            spec: JobSpec[Any] = kind
        elif isinstance(kind, str):
            given = {"payload": payload[0]} if payload else {}
            spec = JobSpec[Any](kind=kind, **given, **options)
        elif hasattr(kind, "job"):
            spec = kind.job(*payload, **options)
        else:
            message = f"push a kind, a handler or a JobSpec, not {type(kind).__name__}"
            raise InvalidRequestError(message)
        return self._promises().add(spec)

    def use(self, access: HandlerQueue) -> None:
        """Reach the queue in this way from now on."""
        self._access = access

    def take_follow_ups(self, jobs: Iterable[NewJob]) -> None:
        """Push jobs that the handler has asked for in another process."""
        for job in jobs:
            self._promises().take(job)

    def end(self) -> tuple[NewJob, ...]:
        """Return the follow-up jobs; from now on there can be no more."""
        if self._follow_ups is None:
            return ()
        self._follow_ups.is_closed = True
        return self._follow_ups.jobs

    @property
    def follow_ups(self) -> tuple[NewJob, ...]:
        """The jobs that were pushed so far."""
        return () if self._follow_ups is None else self._follow_ups.jobs

    def _promises(self) -> FollowUps:
        if self._follow_ups is None:
            self._follow_ups = self._reach().follow_ups(self.lease)
        return self._follow_ups

    def _reach(self) -> HandlerQueue:
        if self._access is None:
            self._access = HandlerQueue(SystemClock())
        return self._access

    def progress(self, done: float, total: float | None = None, note: str = "") -> Awaitable[None]:
        """Report how far the handler has come: ``await context.progress(40, 100, "frames")``.

        It is sent with the next heartbeat and costs nothing more, so it may be called often. A
        handler that is not async calls it without ``await``.
        """
        self.note(Progress(done, total, note))
        return _Reported()

    def note(self, progress: Progress) -> None:
        """Take what a handler reports, here or in another process."""
        check.progress(progress)
        self.reported = progress
        if self.on_report is not None:
            self.on_report(progress)

    def raise_if_cancelled(self) -> None:
        """Raise ``JobCancelled`` if the handler should stop."""
        if self.cancelled:
            raise JobCancelled(f"job {self.job.id} (attempt {self.job.attempt}) should stop")
