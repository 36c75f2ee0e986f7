"""Runs handlers in separate processes: for CPU-bound work, and for code that may crash.

Each process runs one handler at a time, and is reused. Payloads and results are sent as JSON; data
from a job is never unpickled. A handler that should stop is killed with its process, and a process
that dies fails one attempt of one job.

A handler may start processes, with ``subprocess`` or ``multiprocessing``. Its own process leads a
session, and is killed together with all that it started: if the handler should stop, if the process
dies, and if the worker is gone, even by ``kill -9``.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any
from weakref import WeakSet

import msgspec

from bucketq.clock import SystemClock
from bucketq.model.records import JobRecord
from bucketq.queue.job import Job
from bucketq.worker.context import Context
from bucketq.worker.handler_queue import HandlerQueue
from bucketq.worker.handlers import Handler
from bucketq.worker.runners.queue_calls import CallRelay, ChildQueue
from bucketq.worker.runners.reply import (
    ENDED,
    Reply,
    how_it_ended,
    reply_done,
    reply_failed,
    value_of,
)
from bucketq.worker.runners.reporting_link import ReportingLink
from bucketq.worker.runners.runner import Begun, Runner, call, call_plain
from bucketq.worker.runners.threads import ThreadRunner

_SPAWN = multiprocessing.get_context("spawn")
_IGNORED = (signal.SIGINT, signal.SIGTERM)
_END_S = 2.0
"""How long to wait for the end of a process that was killed or closed its pipe."""
_STEP_S = 0.01
"""How often it is polled for its end meanwhile: usually it has ended already."""
_START_S = 20.0
"""The least time for a process to start, even if its handler's timeout is shorter: importing the
modules of handlers takes seconds on a busy host."""
_LOOK_S = 0.5
"""How often a process is checked for being alive: another process may keep its pipe open."""

# Made once: msgspec crashes if two threads look up the fields of a struct for the first time.
_decode_reply = msgspec.json.Decoder(Reply).decode


class ProcessDied(Exception):  # noqa: N818 - reported like an error of the handler
    """The process that ran a handler ended before the handler did."""


class _Child:
    """One process, as the worker sees it."""

    def __init__(self, handlers: dict[str, Handler]) -> None:
        """Start it with ``handlers``, of which ``ask`` selects one by kind."""
        self._closing, self.is_closed = threading.Lock(), False
        self._is_over = False
        """Whether it is certainly gone; its pid may belong to another process then."""
        self._link, theirs = _SPAWN.Pipe()
        life, self._life = _SPAWN.Pipe(duplex=False)
        ours, calls = _SPAWN.Pipe()
        self._relay = CallRelay(ours)
        # It unpickles them, which imports their modules, once it leads its own session.
        packed = bytes(ForkingPickler.dumps(handlers))
        # Not a daemon, which may not have children; ``kill`` ends it with this process.
        self.process = _SPAWN.Process(
            target=_live, args=(theirs, life, calls, packed), name="bucketq handler", daemon=False
        )
        # Signals are blocked until it can ignore them: the mask is inherited.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        pid = self.process.pid
        assert pid is not None  # noqa: S101 - group 0 would be our own
        self._pid = pid
        # At exit this process would join the other.
        atexit.register(self.kill)
        for end in (theirs, life, calls):
            end.close()
        _children.add(self)

    def until_ready(self) -> None:
        """Wait until it has imported the handlers."""
        self._receive()

    def ask(self, kind: str, context: Context) -> Reply:
        """Run a handler there, and wait for the reply.

        Meanwhile it may use the queue, and report how far it has come.
        """
        self._relay.serve(context.relay)
        try:
            self._link.send_bytes(kind.encode())
            self._link.send_bytes(msgspec.json.encode(context.job.record))
        except OSError:
            raise self._death() from None
        while (reply := _decode_reply(self._receive())).kind == "progress":
            if reply.progress is not None:
                context.note(reply.progress)
        return reply

    def _receive(self) -> bytes:
        """Wait for a message, or until the process ends, even if its pipe stays open."""
        try:
            while not self._link.poll(_LOOK_S):
                if not self.process.is_alive() and not self._link.poll():
                    raise self._death()
            return self._link.recv_bytes()
        except (EOFError, OSError, ValueError):
            raise self._death() from None

    def _death(self) -> ProcessDied:
        """Find out how it ended, and kill what it has started."""
        try:
            # Not join, which also waits for other processes that hold its pipes.
            left_s = _END_S
            while (exitcode := self.process.exitcode) is None and left_s > 0:
                threading.Event().wait(_STEP_S)
                left_s -= _STEP_S
        except ValueError:  # It was closed meanwhile, so its exit code is unknown.
            return ProcessDied("the process that ran the handler was ended with its worker")
        if exitcode is None:
            self.kill()
        else:
            self.end_rest()
        return ProcessDied(how_it_ended(exitcode))

    def kill(self) -> None:
        """Kill it and all that it has started."""
        if self._is_over:
            return
        # Before it leads a group, there is none with its pid.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ValueError):  # It is closed.
            self.process.kill()

    def end_rest(self) -> None:
        """Kill what a process that is gone has left behind."""
        if not self._is_over:
            self._is_over = True
            # Its pid is not reused while a process of its group is left.
            if not _is_taken(self._pid):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, signal.SIGKILL)

    def forget(self) -> None:
        """In a fork of the worker, close the pipes and leave the process to the worker."""
        self._is_over = True
        self._life.close()
        self._link.close()
        self._relay.forget()

    def close(self) -> None:
        """Kill it, and wait until it is gone."""
        # The worker may close it while the task that ran a handler does the same; closing a file
        # descriptor twice could close another file.
        with self._closing:
            if self.is_closed:
                return
            self.is_closed = True
        # A process that waits for a disk is not killed in time.
        with suppress(ValueError):
            atexit.unregister(self.kill)
            self._life.close()
            self.kill()
            self.process.join(_END_S)
            self._is_over = True
            self._link.close()
            self._relay.stop()
            self.process.close()


_children: WeakSet[_Child] = WeakSet()


def _forget_all() -> None:
    for child in list(_children):
        child.forget()


# A fork of the worker would keep the pipes open that show the worker's end, and would kill the
# worker's handlers at its own exit.
os.register_at_fork(after_in_child=_forget_all)


def _is_taken(pid: int) -> bool:
    """Whether there is a process with this pid."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


class ProcessRunner(Runner):
    """A pool of processes, as many as were ever needed at once."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        """Start without processes; only the ``handlers`` that run in processes are used."""
        self._handlers = {
            kind: handler for kind, handler in handlers.items() if handler.place == "process"
        }
        self._threads = ThreadRunner()
        self._idle: list[_Child] = []
        self._busy: dict[int, _Child] = {}

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler in a process; if cancelled, kill the process."""
        child = self._take_idle() or await self._start(handler.timeout_s)
        begun()
        ask = partial(child.ask, handler.kind, context)
        reply: Reply = await self._use(child, ask)
        if not child.is_closed:
            self._idle.append(child)
        context.take_follow_ups(reply.follow_ups)
        return value_of(reply)

    async def close(self) -> None:
        """Kill the processes."""
        children = (*self._idle, *self._busy.values())
        for child in children:
            child.kill()
        for child in children:
            await self._threads.call(child.close)
        self._idle.clear()
        await self._threads.close()

    async def _start(self, timeout_s: float | None) -> _Child:
        """Start a process, and wait until it is ready to run handlers."""
        child: _Child = await self._threads.call(partial(_Child, self._handlers))
        limit_s = None if timeout_s is None else max(timeout_s, _START_S)
        await self._use(child, child.until_ready, limit_s)
        if child.is_closed:
            raise asyncio.CancelledError  # It was ready when it was stopped.
        return child

    async def _use(
        self, child: _Child, ask: Callable[[], Any], limit_s: float | None = None
    ) -> Any:
        """Wait for a call to a process.

        The process is killed if this is cancelled, or takes longer than ``limit_s``.
        """
        loop = asyncio.get_running_loop()
        self._busy[id(child)] = child
        asking = loop.create_task(self._threads.call(ask))
        task = asyncio.current_task()
        is_cancelled = task is not None and task.cancelling() > 0
        if is_cancelled:
            child.kill()
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = True
            child.kill()

        timer = None if limit_s is None else loop.call_later(limit_s, give_up)
        while not asking.done():
            try:
                await asyncio.shield(asking)
            except asyncio.CancelledError:
                is_cancelled = True
                child.kill()
            except Exception:  # noqa: BLE001 - raised below
                break
        if timer is not None:
            timer.cancel()
        del self._busy[id(child)]
        error = asking.exception()
        if error is None and not is_cancelled and not is_late:
            return asking.result()
        # Even if it had answered before it was killed: it cannot be reused.
        await self._threads.call(child.close)
        if error is not None and is_cancelled:
            raise asyncio.CancelledError
        if is_late:
            raise ProcessDied(f"{ENDED} was not ready after {limit_s:g} s, and was ended")
        return asking.result()

    def _take_idle(self) -> _Child | None:
        """An idle process that is still alive, if there is one."""
        while self._idle:
            child = self._idle.pop()
            if child.process.is_alive():
                return child
            child.end_rest()
            child.close()
        return None


def _live(link: Connection, life: Connection, calls: Connection, packed: bytes) -> None:
    """The main function of the process: run handlers until the worker is gone."""
    os.setsid()
    # They go to all processes of a terminal or a service, and the worker decides. Not SIG_IGN,
    # which programs that a handler starts would inherit.
    for number in _IGNORED:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
    # A fork gets no signal before its signal handlers are reset.
    os.register_at_fork(
        before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, _IGNORED),
        after_in_parent=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, _IGNORED),
        after_in_child=partial(_leave, link, life, calls),
    )
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    queue, replies = ChildQueue(calls), ReportingLink(link)
    handlers: dict[str, Handler] = pickle.loads(packed)  # noqa: S301 - from the worker
    with suppress(EOFError, OSError):
        link.send_bytes(b"ready")
        while True:
            kind = link.recv_bytes().decode()
            record = msgspec.json.decode(link.recv_bytes(), type=JobRecord)
            replies.answer(_reply(handlers[kind], record, queue, replies))


def _ignore(_number: int, _frame: object) -> None:
    """Ignore a signal."""


def _leave(*pipes: Connection) -> None:
    """In a fork of a handler, restore signal handlers and close the pipes."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
    for pipe in pipes:
        pipe.close()


def _end_with(life: Connection) -> None:
    """Kill this process and its group when the worker is gone, even if a handler runs."""
    with suppress(EOFError, OSError):
        life.recv_bytes()
    os.killpg(0, signal.SIGKILL)


def _reply(handler: Handler, record: JobRecord, queue: ChildQueue, replies: ReportingLink) -> Reply:
    access = HandlerQueue(SystemClock(), blocking=queue.blocking)
    context = Context(Job[Any](record, Any), access)
    context.on_report = partial(replies.report, context)
    replies.begin(context)

    async def run() -> Any:
        context.use(HandlerQueue(SystemClock(), await queue.open()))
        return await call(handler, context)

    try:
        is_async = inspect.iscoroutinefunction(handler.function)
        result = asyncio.run(run()) if is_async else call_plain(handler, context)
    except BaseException as error:  # noqa: BLE001 - fails the job, not this process
        return reply_failed(error)
    return reply_done(result, context.end())
