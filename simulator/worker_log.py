"""Records of worker engines: which handlers ran when, and which calls the engines made.

An ``EngineRun`` is one engine from start to end, a ``HandlerRun`` one call of a handler. An engine
gets a ``RecordingEngineQueue``: the real queue, with every call recorded. ``worker_invariants``
checks the records afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from bucketq.model.operations import LeaseRef, Pulse
from bucketq.model.queue_stats import Stats
from bucketq.model.settings import Settings
from bucketq.queue.job import Job, JobPage
from simulator.call_log import CallLog

RunEnd = Literal["returned", "raised", "stopped"]


@dataclass(slots=True)
class HandlerRun:
    """One call of a handler. It has no end if its process died."""

    engine: str
    kind: str
    job: str
    attempt: int
    lease: str
    used: int
    """How many attempts had failed or lost their lease before."""
    began_s: float
    began_version: int
    beside: int
    """How many handlers of the engine ran at its start, including this one."""
    asked_to_stop_s: float | None = None
    """When it was asked to stop."""
    ended_s: float | None = None
    end: RunEnd | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether it was asked to stop."""
        return self.asked_to_stop_s is not None

    def __str__(self) -> str:
        """One line of a trace."""
        asked = (
            ""
            if self.asked_to_stop_s is None
            else f", asked to stop at {self.asked_to_stop_s:.3f} s"
        )
        ended = "never over" if self.ended_s is None else f"{self.end} at {self.ended_s:.3f} s"
        return (
            f"{self.kind} job {self.job} (attempt {self.attempt}) began at {self.began_s:.3f} s "
            f"in {self.engine}{asked}, {ended}"
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
    """When it was asked to stop, or when its burst was over."""
    hurried_s: float | None = None
    ended_s: float | None = None
    running: int = 0

    def may_leave_jobs(self, *, is_well: bool) -> bool:
        """Whether it may have left jobs to their leases because it got no answer in time.

        An engine that was hurried may do so even without faults.
        """
        return self.hurried_s is not None or (self.stopped_s is not None and not is_well)

    def __str__(self) -> str:
        """One line of a trace."""
        times = (self.stopped_s, self.hurried_s, self.ended_s)
        stopped, hurried, ended = ("never" if t is None else f"at {t:.3f} s" for t in times)
        return f"{self.engine}: stopped {stopped}, hurried {hurried}, ended {ended}"


@dataclass
class WorkerLog:
    """All engine runs and handler runs of a simulation, in the order in which they began."""

    history: CallLog
    engine_runs: dict[str, EngineRun] = field(default_factory=dict)
    runs: list[HandlerRun] = field(default_factory=list)

    def begin_engine(
        self, engine: str, process: str, kinds: Iterable[str], concurrency: int
    ) -> EngineRun:
        """Record the start of an engine."""
        now_s = self.history.loop.time()
        engine_run = EngineRun(engine, process, tuple(kinds), concurrency, now_s)
        self.engine_runs[engine] = engine_run
        return engine_run

    def begin_run(self, engine_run: EngineRun, job: Job[Any]) -> HandlerRun:
        """Record the start of a handler."""
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
        """Record the end of a handler."""
        engine_run.running -= 1
        run.ended_s, run.end = self.history.loop.time(), end


class RecordingEngineQueue:
    """The verbs that an engine uses; every call is recorded."""

    def __init__(self, history: CallLog, engine: str, queue: Any) -> None:
        """Record the calls of ``engine``."""
        self._history = history
        self._engine = engine
        self._queue = queue

    async def settings(self) -> Settings:
        """Read the settings; this call is not recorded."""
        settings: Settings = await self._queue.settings()
        return settings

    async def stats(self) -> Stats:
        """Count the jobs."""
        answer: Stats = await self._note("stats", {}, self._queue.stats)
        return answer

    async def jobs(self, **wanted: Any) -> JobPage[str]:
        """List jobs; this call is not recorded."""
        page: JobPage[str] = await self._queue.jobs(**wanted)
        return page

    async def claim(
        self,
        kinds: tuple[str, ...],
        *,
        limit: int,
        wait_s: float,
        worker: str,
        fetch: bool = True,
        request: str | None = None,
    ) -> list[Job[str]]:
        """Claim jobs."""
        answer: list[Job[str]] = await self._note(
            "claim",
            {"kinds": kinds, "limit": limit, "request": request},
            lambda: self._queue.claim(
                kinds, limit=limit, wait_s=wait_s, worker=worker, fetch=fetch, request=request
            ),
        )
        return answer

    async def heartbeat(self, leases: list[LeaseRef]) -> list[Pulse]:
        """Heartbeat jobs."""
        answer: list[Pulse] = await self._note(
            "heartbeat",
            {"leases": [lease.lease for lease in leases]},
            lambda: self._queue.heartbeat(leases),
        )
        return answer

    async def announce(self, worker: str, **fields: Any) -> bool:
        """Let the queue list the engine."""
        detail = {name: fields[name] for name in ("run_id", "draining", "leaving")}
        answer: bool = await self._note(
            "announce", detail, lambda: self._queue.announce(worker, **fields)
        )
        return answer

    async def drain(self) -> int:
        """Ask the engine to finish, as an operator does."""
        answer: int = await self._note(
            "drain", {"worker": self._engine}, lambda: self._queue.drain(self._engine)
        )
        return answer

    async def complete_many(
        self, jobs: list[tuple[Job[str], Any, Any]], *, request: str | None = None
    ) -> list[bool]:
        """Complete jobs together."""
        held = [(job.id, job.lease.lease) for job, *_ in jobs]
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
            {"job": job.id, "lease": job.lease.lease, "request": request},
            lambda: self._queue.fail(job, error, request=request, **options),
        )
        return answer

    async def release_many(self, jobs: list[Job[str]], *, request: str | None = None) -> list[bool]:
        """Release jobs together."""
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
