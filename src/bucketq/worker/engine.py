"""The engine of a worker: claims jobs, keeps its slots busy, and drains.

It runs on one event loop and uses only its queue and its runner, so the simulator can run it
unchanged. Every claimed job is settled, or known to be lost, or left until its lease expires
because the worker had to exit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from bucketq.clock import Clock
from bucketq.errors import BucketQError, ClosedError, UnavailableError
from bucketq.model.queue_stats import Stats
from bucketq.queue.job import Job
from bucketq.queue.queue import Queue
from bucketq.worker.announcing import Announcer, WorkerProcess, WorkerStatus
from bucketq.worker.attempt import Attempt, Ended
from bucketq.worker.counters import WorkerCounters
from bucketq.worker.drain import Drain
from bucketq.worker.handler_queue import HandlerQueue
from bucketq.worker.handlers import Handler
from bucketq.worker.job_log import LEASE_NOTICES, log_end, log_job
from bucketq.worker.lease_renewal import LeaseEvent, LeaseKeeper
from bucketq.worker.prefetch import Prefetch
from bucketq.worker.queue_warnings import QueueWarnings
from bucketq.worker.runners.runner import Runner
from bucketq.worker.settling import Settling, Unsettled
from bucketq.worker.silent_jobs import worth_waiting_s

A = TypeVar("A")

_log = logging.getLogger("bucketq.worker")

_WAIT_S = 20.0
"""How long a claim waits for a job. An idle worker sends three a minute."""
_AGAIN_S = 0.5
"""How often a burst with free slots claims while other handlers run: it need not be sooner."""
_LONGEST_BACKLOG_S = 2.0
"""How long a job may wait for a slot before it is released for other workers."""
_MOST_UNSETTLED = 2000
"""With more outcomes than this unacknowledged, no more jobs are claimed."""
_REFRESH_S = 60.0
"""How often the queue's settings are read again; they change rarely."""
_SECOND_LOOK_S = 3.0
"""How soon after its start a worker looks at the queue again: someone who tries it out pushes a job
right after that, and waits for it. Later looks are as rare as the settings are read."""
_LOOK_S = 5.0
"""How long counting the jobs may take; it is only for warnings."""
_WITHDRAW_S = 1.0
"""How long withdrawing a claim may take; no answer is needed."""
_DONE, _LOST = Ended("done"), Ended("lost")


class Engine:
    """Runs the jobs of one queue."""

    def __init__(
        self,
        queue: Queue[Any],
        handlers: Mapping[str, Handler],
        runner: Runner,
        clock: Clock,
        *,
        name: str,
        concurrency: int,
        burst: bool = False,
        drain_s: float = 30.0,
        known: Collection[str] = (),
        access: HandlerQueue | None = None,
        process: WorkerProcess = WorkerProcess(),  # noqa: B008 - it is immutable
        on_drain: Callable[[], None] | None = None,
    ) -> None:
        """Make an engine.

        Args:
            queue: An open queue.
            handlers: What to do with each kind of job; no other kinds are claimed.
            runner: How handlers are run.
            clock: For jitter, and to find jobs without heartbeats.
            name: The name under which jobs are claimed.
            concurrency: How many handlers run at once.
            burst: Whether to stop when no job is available.
            drain_s: How long it may take to end after ``stop``, in seconds.
            known: Kinds that have a handler too, though this engine does not claim them.
            access: How handlers reach the queue; None: they only push follow-up jobs.
            process: What the queue lists as the place of this worker.
            on_drain: Called if the queue asks it to finish; by default it is stopped.
        """
        self._queue = queue
        self._handlers = handlers
        self._runner = runner
        self._name = name
        self.concurrency = concurrency
        self._burst = burst
        self.drain = Drain(drain_s)
        self._clock = clock
        self._wait_s = 0.0 if burst else _WAIT_S
        self._settling = Settling(queue, clock)
        self._access = HandlerQueue(clock) if access is None else access
        self._keeper = LeaseKeeper(queue.heartbeat, self._settling.settings)
        self._announcer = Announcer(queue, clock, name, handlers, process)
        self._announcer.on_drain, self._announcer.starts_late = on_drain or self.stop, burst
        self._prefetch = Prefetch(concurrency)
        self._fetches_payloads = True
        self._backlog: deque[Attempt] = deque()
        self._attempts: dict[int, Attempt] = {}
        """The attempts that hold a lease: in the backlog, running, or being settled."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """What settles attempts that did not simply succeed."""
        self._on_over, self._on_ended = self._free_slot, self._settle
        self._on_completed = self._completed
        self._looks: dict[int, asyncio.Task[Stats]] = {}
        self._busy = 0
        """How many slots are taken by running handlers."""
        self._changed = asyncio.Event()
        """A slot is free, a job is settled, or the worker is stopped."""
        self._watching: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()
        self._warnings = QueueWarnings(handlers, known)
        self._hurrying = self.has_begun = self.is_running = False
        self.counters = WorkerCounters()

    def stop(self, *, hurry: bool = False) -> None:
        """Claim no more jobs; let handlers finish, or with ``hurry`` stop them."""
        now_s = asyncio.get_running_loop().time()
        self._stopped.set()
        self.drain.begin(now_s)
        if hurry:
            self._hurrying = True
            self.drain.hurry(now_s)
            self._settling.give_up()
            for attempt in list(self._attempts.values()):
                attempt.stop("hurry", self.drain.stop_s(now_s))
        self._changed.set()

    def leave_to_runner(self) -> None:
        """Fetch no jobs ahead, and no payloads: the runner has waiting jobs, and fetches these."""
        self._prefetch.most, self._fetches_payloads = 0, False

    def resize(self, concurrency: int) -> None:
        """Run more handlers at once, or fewer once enough of the running ones have ended."""
        self.concurrency = concurrency
        self._prefetch.concurrency = concurrency
        self._fill()
        self._changed.set()

    async def run(self) -> None:
        """Run jobs until stopped, or in a burst until no job is available.

        Raises the error that makes the queue unusable, after all jobs were released.
        """
        loop = asyncio.get_running_loop()
        await self._read_settings()
        self.has_begun = self.is_running = True
        announcing = self._announcer.run(self._status, self._settling, self._stopped)
        chores = [*map(loop.create_task, (self._keeper.run(), self._refresh(), announcing))]
        claiming = loop.create_task(self._claim_on())
        try:
            await asyncio.wait([claiming, *chores], return_when=asyncio.FIRST_COMPLETED)
            is_burst_over = self._burst and not self._stopped.is_set()
            # If a chore has failed, or the queue is gone, leases are not renewed any more, so
            # handlers need not continue.
            self.stop(hurry=any(map(_has_failed, (claiming, *chores))))
            await asyncio.wait([claiming], timeout=_WITHDRAW_S)
            await self._drain()
            if is_burst_over:
                self.counters.left = await self._look()
        finally:
            for task in (claiming, *chores, *self._looks.values()):
                task.cancel()
            ended = await asyncio.gather(claiming, *chores, return_exceptions=True)
            if not any(isinstance(end, Exception) for end in ended):
                await self._announcer.leave(self.drain.close_left_s(loop.time()))
            await self._settling.close()
            self.is_running = False
        for end in ended:
            if isinstance(end, Exception):
                raise end

    async def stats(self) -> Stats:
        """Count the jobs of the queue. Raises ``ClosedError`` if the worker ends meanwhile."""
        looking = asyncio.get_running_loop().create_task(self._queue.stats())
        self._looks[id(looking)] = looking
        try:
            return await looking
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if asking is not None and asking.cancelling():
                raise
            raise ClosedError("the worker has ended, so its queue cannot be read") from None
        finally:
            del self._looks[id(looking)]

    async def _look(self) -> Stats | None:
        """Count the jobs of the queue, if permitted and quick, and log warnings."""
        try:
            async with asyncio.timeout(_LOOK_S):
                stats = await self._queue.stats()
        except (BucketQError, TimeoutError):
            return None
        self._warnings.look(stats)
        return stats

    async def _insist(self, ask: Callable[[str | None], Awaitable[A]]) -> A:
        """Retry until the queue answers. Raises the last error if the worker has to stop."""
        try:
            return await self._settling.insist(ask)
        except Unsettled as error:
            raise error.__cause__ or error from None

    async def _read_settings(self) -> None:
        settings = await self._insist(lambda _: self._queue.settings())
        self._keeper.settings = self._settling.settings = self._access.settings = settings

    async def _refresh(self) -> None:
        await self._look()
        await asyncio.sleep(_SECOND_LOOK_S)
        while True:
            await self._look()
            await asyncio.sleep(_REFRESH_S)
            try:
                await self._read_settings()
            except UnavailableError:
                return  # The worker is stopping at once and waits for no answer.

    def _status(self) -> WorkerStatus:
        return WorkerStatus(self.concurrency, len(self._attempts), self._stopped.is_set())

    async def _claim_on(self) -> None:
        """Claim whenever there is room, until stopped or a burst is over."""
        while not self._stopped.is_set():
            self._changed.clear()
            room = self._room()
            if room <= 0:
                await self._changed.wait()
                continue
            # Checked before the claim: a job that ends during it may be queued again after it.
            was_idle = not self._attempts
            jobs = await self._claim(room)
            if not jobs and self._burst:
                if was_idle and not await self._is_worth_waiting():
                    return
                if self._attempts:  # A handler may push a job and wait for it, so look again.
                    timer = asyncio.get_running_loop().call_later(_AGAIN_S, self._changed.set)
                    await self._changed.wait()
                    timer.cancel()

    async def _is_worth_waiting(self) -> bool:
        """Whether a burst that found nothing should wait for jobs of workers that are gone."""
        if self._wait_s:
            return False  # It has waited already.
        settings, now = self._settling.settings, self._clock.now()
        self._wait_s = await worth_waiting_s(self._queue, self._handlers, settings, now)
        return self._wait_s > 0

    def _room(self) -> int:
        """How many jobs to ask for."""
        if len(self._attempts) - self._busy - len(self._backlog) > _MOST_UNSETTLED:
            return 0  # Completions are not acknowledged; more of them would not help.
        wanted = self.concurrency + self._prefetch.ahead
        room = wanted - self._busy - len(self._backlog)
        # Claiming whenever a job ends would fetch one job at a time: wait for several.
        enough = max(1, self._prefetch.ahead // 2)
        return min(room, self._settling.settings.max_batch_jobs) if room >= enough else 0

    async def _claim(self, room: int) -> list[Job[Any]]:
        loop = asyncio.get_running_loop()
        kinds, wait_s, since_s = tuple(self._handlers), self._wait_s, loop.time()
        fetch = self._fetches_payloads
        claiming = self._insist(
            lambda request: self._queue.claim(
                kinds, limit=room, wait_s=wait_s, worker=self._name, fetch=fetch, request=request
            )
        )
        jobs = await self._unless_stopped(loop.create_task(claiming))
        if len(jobs) == room:
            self._prefetch.note_claim(loop.time() - since_s)
        # A claim that waited was answered just now; what is older than that proves nothing.
        now_s, heartbeat_s = loop.time(), self._settling.settings.heartbeat_s
        known_s = since_s if not wait_s else max(since_s, now_s - heartbeat_s)
        for job in jobs:
            self._take(job, known_s, now_s)
        self._fill()
        if jobs and self._burst:
            self._wait_s = 0.0
        return jobs

    async def _unless_stopped(self, claiming: asyncio.Task[list[Job[Any]]]) -> list[Job[Any]]:
        """Wait for a claim; when the worker is stopped, withdraw it."""
        stopping = asyncio.get_running_loop().create_task(self._stopped.wait())
        try:
            await asyncio.wait([claiming, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not claiming.done():
                claiming.cancel()
                await asyncio.gather(claiming, return_exceptions=True)
        return [] if claiming.cancelled() else claiming.result()

    def _take(self, job: Job[Any], since_s: float, now_s: float) -> None:
        """Take charge of a claimed job."""
        attempt = Attempt(job, self._handlers[job.kind], self._settling, now_s, self._access)
        self._attempts[id(attempt)] = attempt
        self._keeper.keep(attempt.lease, since_s, partial(self._warn, attempt), attempt.progress)
        self._backlog.append(attempt)
        self.counters.claimed += 1

    def _warn(self, attempt: Attempt, event: LeaseEvent) -> None:
        """Stop a handler because of its lease."""
        log_job(logging.WARNING, LEASE_NOTICES[event], attempt.job)
        attempt.stop(event)

    def _fill(self) -> None:
        """Start jobs of the backlog while slots are free."""
        backlog = self._backlog
        while backlog and self._busy < self.concurrency and not self._stopped.is_set():
            self._busy += 1
            self._start(backlog.popleft())
        self._watch_backlog()
        self.counters.running, self.counters.waiting = self._busy, len(backlog)

    def _start(self, attempt: Attempt) -> None:
        """Run one job; it has a slot."""
        attempt.begun_s = asyncio.get_running_loop().time()
        if attempt.has_used_up_attempts:
            self._begin(attempt, self._refuse(attempt))
            return
        log_job(logging.DEBUG, "started", attempt.job)
        attempt.start(self._runner, self._on_over, self._on_ended)

    def _free_slot(self, attempt: Attempt) -> None:
        """Give the slot of a job to the next one."""
        self._busy -= 1
        attempt.took_s = asyncio.get_running_loop().time() - attempt.begun_s
        self._prefetch.note_run(attempt.took_s)
        self._fill()
        self._changed.set()

    def _settle(self, attempt: Attempt) -> None:
        """Report the outcome of a job whose handler has ended."""
        if not attempt.took_s:  # It was stopped, and is not over.
            attempt.took_s = asyncio.get_running_loop().time() - attempt.begun_s
        # Nearly all jobs succeed, and are too many to have a task each.
        if not attempt.complete_soon(self._on_completed):
            self._begin(attempt, self._report(attempt, attempt.settle()))

    def _completed(self, attempt: Attempt, is_held: bool, error: Exception | None) -> None:  # noqa: FBT001 - see OnAnswer
        if id(attempt) not in self._attempts:
            return  # The worker did not wait for the answer.
        if error is not None:
            self._begin(attempt, self._report(attempt, attempt.settle_rejected(error)))
            return
        self._count(attempt, _DONE if is_held else _LOST)
        self._forget(attempt)

    async def _refuse(self, attempt: Attempt) -> None:
        try:
            refused = await attempt.refuse()
        finally:
            self._free_slot(attempt)
        self._count(attempt, refused)

    async def _report(self, attempt: Attempt, settling: Awaitable[Ended]) -> None:
        self._count(attempt, await settling)

    def _begin(self, attempt: Attempt, work: Coroutine[Any, Any, None]) -> None:
        """Settle a job in a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[id(attempt)] = task

        def over(task: asyncio.Task[None]) -> None:
            self._tasks.pop(id(attempt), None)
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("the outcome of a job could not be reported", exc_info=error)
            self._forget(attempt)

        task.add_done_callback(over)

    def _forget(self, attempt: Attempt) -> None:
        """Hold a job no longer."""
        self._keeper.drop(attempt.lease)
        self._attempts.pop(id(attempt), None)
        self._changed.set()

    def _count(self, attempt: Attempt, ended: Ended) -> None:
        self.counters.add(attempt, ended)
        log_end(attempt, ended)

    def _watch_backlog(self) -> None:
        """Set a timer for when the oldest job of the backlog has waited too long for a slot."""
        if self._backlog and self._watching is None:
            loop = asyncio.get_running_loop()
            at_s = self._backlog[0].claimed_s + _LONGEST_BACKLOG_S
            self._watching = loop.call_at(at_s, self._release_overdue)

    def _release_overdue(self) -> None:
        """Release jobs that got no slot in time, for other workers."""
        self._watching = None
        now_s = asyncio.get_running_loop().time()
        # The same expression as for the timer: another one could round differently, and loop.
        while self._backlog and self._backlog[0].claimed_s + _LONGEST_BACKLOG_S <= now_s:
            self._prefetch.note_jam(_LONGEST_BACKLOG_S)
            self._release_next()
        self._watch_backlog()

    def _release_next(self) -> None:
        attempt = self._backlog.popleft()
        self.counters.waiting = len(self._backlog)
        attempt.stop("hurry")
        self._begin(attempt, self._report(attempt, attempt.settle()))

    async def _drain(self) -> None:
        """Release jobs that have not started, let others finish, and hurry if that takes long."""
        while self._backlog:
            self._release_next()
        if self._watching is not None:
            self._watching.cancel()
        loop = asyncio.get_running_loop()
        if not self._hurrying:
            await self._until_settled(self.drain.handlers_left_s(loop.time()))
        if self._attempts:
            self.stop(hurry=True)
            await self._until_settled(self.drain.settle_left_s(loop.time()))
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for attempt in list(self._attempts.values()):
            attempt.abandon()
            self._forget(attempt)

    async def _until_settled(self, patience_s: float) -> None:
        """Wait until no job is held, the time is over, or ``stop(hurry=True)`` is called."""
        was_hurrying = self._hurrying
        try:
            async with asyncio.timeout(patience_s):
                while self._attempts and self._hurrying == was_hurrying:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None
