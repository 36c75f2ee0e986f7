"""What engines did in a simulated world: which handlers ran when, and what their queue was asked.

A ``Shift`` is the life of one engine, a ``Run`` one call of a handler. ``WatchedQueue`` is what an
engine is given: the real queue, with every call written into the history. What it all means is
judged later, by ``oversight``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from bucketq.model.operations import LeaseRef, Pulse, Stats
from bucketq.model.settings import Settings
from bucketq.queue.job import Job, JobPage
from simulator.call_history import CallHistory

RunEnd = Literal["returned", "raised", "stopped"]


@dataclass(slots=True)
class HandlerRun:
    """One call of a handler. Without an end it was cut off by the death of its process."""

    engine: str
    kind: str
    job: str
    attempt: int
    lease: str
    used: int
    """How often the job had failed or lost its worker before."""
    began_s: float
    began_version: int
    beside: int
    """How many handlers of the engine ran then, this one included."""
    asked_to_stop_s: float | None = None
    """When it was told to stop."""
    ended_s: float | None = None
    end: RunEnd | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether it was told to stop, and no more is expected of it."""
        return self.asked_to_stop_s is not None

    def __str__(self) -> str:
        """One line of a trace."""
        told = (
            ""
            if self.asked_to_stop_s is None
            else f", told to stop at {self.asked_to_stop_s:.3f} s"
        )
        ended = "never over" if self.ended_s is None else f"{self.end} at {self.ended_s:.3f} s"
        return (
            f"{self.kind} job {self.job} (attempt {self.attempt}) began at {self.began_s:.3f} s "
            f"in {self.engine}{told}, {ended}"
        )


@dataclass(slots=True)
class EngineRun:
    """One engine, from its start to its end."""

    engine: str
    process: str
    kinds: tuple[str, ...]
    concurrency: int
    began_s: float
    is_burst: bool = False
    stopped_s: float | None = None
    """When it was told to stop; or when its burst was over."""
    hurried_s: float | None = None
    ended_s: float | None = None
    running: int = 0

    def may_leave_jobs(self, *, is_well: bool) -> bool:
        """Whether it may have left jobs to their leases: it ended without being answered in time.

        In a hurry that can be so also where all is well: each job is given back for itself.
        """
        return self.hurried_s is not None or (self.stopped_s is not None and not is_well)

    def __str__(self) -> str:
        """One line of a trace."""
        times = (self.stopped_s, self.hurried_s, self.ended_s)
        stopped, hurried, ended = ("never" if t is None else f"at {t:.3f} s" for t in times)
        return f"{self.engine}: stopped {stopped}, hurried {hurried}, ended {ended}"


@dataclass
class WorkerHistory:
    """All shifts and runs of a world, in the order in which they began."""

    history: CallHistory
    engine_runs: dict[str, EngineRun] = field(default_factory=dict)
    runs: list[HandlerRun] = field(default_factory=list)

    def begin_engine(
        self, engine: str, process: str, kinds: Iterable[str], concurrency: int
    ) -> EngineRun:
        """Write down that an engine starts."""
        now_s = self.history.loop.time()
        engine_run = EngineRun(engine, process, tuple(kinds), concurrency, now_s)
        self.engine_runs[engine] = engine_run
        return engine_run

    def begin_run(self, engine_run: EngineRun, job: Job[Any]) -> HandlerRun:
        """Write down that a handler begins."""
        engine_run.running += 1
        run = HandlerRun(
            engine=engine_run.engine,
            kind=job.kind,
            job=job.id,
            attempt=job.attempt,
            lease=job.lease.lease,
            used=job.failures + job.lost_leases,
            began_s=self.history.loop.time(),
            began_version=self.history.version(),
            beside=engine_run.running,
        )
        self.runs.append(run)
        return run

    def end_run(self, engine_run: EngineRun, run: HandlerRun, end: RunEnd) -> None:
        """Write down that a handler is over."""
        engine_run.running -= 1
        run.ended_s, run.end = self.history.loop.time(), end


class RecordingEngineQueue:
    """The verbs that an engine uses, watched."""

    def __init__(self, history: CallHistory, engine: str, queue: Any) -> None:
        """Watch what ``engine`` does with ``queue``."""
        self._history = history
        self._engine = engine
        self._queue = queue

    async def config(self) -> Settings:
        """Read the settings; nothing is promised about when they change."""
        settings: Settings = await self._queue.config()
        return settings

    async def stats(self) -> Stats:
        """Count the jobs."""
        answer: Stats = await self._note("stats", {}, self._queue.stats)
        return answer

    async def jobs(self, **wanted: Any) -> JobPage[str]:
        """Look at jobs; nothing follows from it but how long an engine waits."""
        page: JobPage[str] = await self._queue.jobs(**wanted)
        return page

    async def claim(
        self,
        kinds: tuple[str, ...],
        *,
        limit: int,
        wait_s: float,
        worker: str,
        request: str | None = None,
    ) -> list[Job[str]]:
        """Claim jobs."""
        answer: list[Job[str]] = await self._note(
            "claim",
            {"kinds": kinds, "limit": limit, "request": request},
            lambda: self._queue.claim(
                kinds, limit=limit, wait_s=wait_s, worker=worker, request=request
            ),
        )
        return answer

    async def heartbeat(self, leases: list[LeaseRef]) -> list[Pulse]:
        """Beat for jobs."""
        answer: list[Pulse] = await self._note(
            "heartbeat",
            {"leases": [lease.lease for lease in leases]},
            lambda: self._queue.heartbeat(leases),
        )
        return answer

    async def complete(self, job: Job[str], result: Any, *, request: str | None = None) -> None:
        """Complete a job."""
        await self._note(
            "complete",
            _held(job, request),
            lambda: self._queue.complete(job, result, request=request),
        )

    async def complete_many(
        self, jobs: list[tuple[Job[str], Any]], *, request: str | None = None
    ) -> list[bool]:
        """Complete jobs together."""
        held = [(job.id, job.lease.lease) for job, _ in jobs]
        answer: list[bool] = await self._note(
            "complete_many",
            {"jobs": held, "request": request},
            lambda: self._queue.complete_many(jobs, request=request),
        )
        return answer

    async def fail(
        self, job: Job[str], error: str, *, request: str | None = None, **options: Any
    ) -> str:
        """Fail a job."""
        answer: str = await self._note(
            "fail",
            _held(job, request),
            lambda: self._queue.fail(job, error, request=request, **options),
        )
        return answer

    async def release(self, job: Job[str], *, request: str | None = None) -> None:
        """Give a job back."""
        await self._note(
            "release", _held(job, request), lambda: self._queue.release(job, request=request)
        )

    async def release_many(self, jobs: list[Job[str]], *, request: str | None = None) -> list[bool]:
        """Give jobs back together."""
        answer: list[bool] = await self._note(
            "release_many",
            {"jobs": [(job.id, job.lease.lease) for job in jobs], "request": request},
            lambda: self._queue.release_many(jobs, request=request),
        )
        return answer

    async def _note(
        self, verb: str, detail: dict[str, Any], ask: Callable[[], Awaitable[Any]]
    ) -> Any:
        return await self._history.note(self._engine, verb, detail, ask)


def _held(job: Job[str], request: str | None) -> dict[str, Any]:
    return {"job": job.id, "lease": job.lease.lease, "request": request}
