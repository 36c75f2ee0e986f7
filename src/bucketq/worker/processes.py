"""Runs handlers in processes of their own: for work that needs a core, and for code that crashes.

Each process runs one handler at a time, and is kept for the next. Payloads and results travel as
JSON; nothing that comes from a job is ever unpickled. A handler that is to stop is ended with its
process, and a process that dies takes one attempt of one job with it.

A handler may start processes, with ``subprocess`` or ``multiprocessing``. Its own process leads a
session, and is ended together with all that it started: when the handler is to stop, when the
process dies, and when the worker is gone, even by ``kill -9``.
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

from bucketq.model.job import JobRecord
from bucketq.queue.job import Job
from bucketq.worker.context import Context
from bucketq.worker.handlers import Handler
from bucketq.worker.reply import ENDED, Reply, how_it_ended, reply_done, reply_failed, value_of
from bucketq.worker.runner import Begun, call, call_plain
from bucketq.worker.threads import ThreadRunner

_SPAWN = multiprocessing.get_context("spawn")
_IGNORED = (signal.SIGINT, signal.SIGTERM)
_END_S = 2.0
_STEP_S = 0.01
_START_S = 20.0
"""How long a process may take to start even if its handler's timeout is shorter: importing what
handlers need takes seconds on a busy host."""
_LOOK_S = 0.5
"""How often it is seen whether a process lives whose pipe another process keeps open."""


class ProcessDied(Exception):  # noqa: N818 - a handler's misfortune, told like its errors
    """The process that ran a handler ended before the handler did."""


class _Child:
    """One process, seen from here."""

    def __init__(self, handlers: dict[str, Handler]) -> None:
        """Start it. What it is told to run is chosen here, by kind, from ``handlers``."""
        self._closing, self.is_closed = threading.Lock(), False
        self._is_over = False
        """Whether it is gone for certain; its number may belong to another process then."""
        self._link, theirs = _SPAWN.Pipe()
        life, self._life = _SPAWN.Pipe(duplex=False)
        # It unpickles them, and so imports what they need, when it leads its own session.
        packed = bytes(ForkingPickler.dumps(handlers))
        # A daemon may not have children. That it ends with this process is seen to here.
        self.process = _SPAWN.Process(
            target=_live, args=(theirs, life, packed), name="bucketq handler", daemon=False
        )
        # Signals that come before it can ignore them wait for it: the mask is inherited.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        pid = self.process.pid
        assert pid is not None  # noqa: S101 - a group of number 0 would be our own
        self._pid = pid
        # At its end this process would wait for the other.
        atexit.register(self.kill)
        theirs.close()
        life.close()
        _children.add(self)

    def until_ready(self) -> None:
        """Wait until it has imported what its handlers need."""
        self._receive()

    def ask(self, kind: str, record: JobRecord) -> Reply:
        """Run a handler there, and wait for what comes of it."""
        try:
            self._link.send_bytes(kind.encode())
            self._link.send_bytes(msgspec.json.encode(record))
        except OSError:
            raise self._death() from None
        return msgspec.json.decode(self._receive(), type=Reply)

    def _receive(self) -> bytes:
        """Wait for a message. The end of the process ends that, even if its pipe stays open."""
        try:
            while not self._link.poll(_LOOK_S):
                if not self.process.is_alive() and not self._link.poll():
                    raise self._death()
            return self._link.recv_bytes()
        except (EOFError, OSError, ValueError):
            raise self._death() from None

    def _death(self) -> ProcessDied:
        """Say how it ended, and end what it has started."""
        try:
            # Not by join, which also waits for whatever else holds the pipes of the process.
            left_s = _END_S
            while (exitcode := self.process.exitcode) is None and left_s > 0:
                threading.Event().wait(_STEP_S)
                left_s -= _STEP_S
        except ValueError:  # It was closed meanwhile, and keeps nothing to tell.
            return ProcessDied("the process that ran the handler was ended with its worker")
        if exitcode is None:
            self.kill()
        else:
            self.end_rest()
        return ProcessDied(how_it_ended(exitcode))

    def kill(self) -> None:
        """End it now, with all that it has started."""
        if self._is_over:
            return
        # Before it leads a group there is none of its number.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ValueError):  # It is closed.
            self.process.kill()

    def end_rest(self) -> None:
        """End what a process has left behind that is gone."""
        if not self._is_over:
            self._is_over = True
            # Its number is not given to another while any of its group is left.
            if not _is_taken(self._pid):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, signal.SIGKILL)

    def forget(self) -> None:
        """Leave it to the worker: this is a copy of it, after a fork."""
        self._is_over = True
        self._life.close()
        self._link.close()

    def close(self) -> None:
        """End it, and wait for that."""
        # The worker may end it while whoever ran a handler there finds that out and does the same;
        # and a file that is closed twice may be another's the second time.
        with self._closing:
            if self.is_closed:
                return
            self.is_closed = True
        # Not even a kill ends it in time where it waits for a disk.
        with suppress(ValueError):
            atexit.unregister(self.kill)
            self._life.close()
            self.kill()
            self.process.join(_END_S)
            self._is_over = True
            self._link.close()
            self.process.close()


_children: WeakSet[_Child] = WeakSet()


def _forget_all() -> None:
    for child in list(_children):
        child.forget()


# A process that is forked from the worker would keep the pipes open by which its end is seen, and
# would end its handlers with itself.
os.register_at_fork(after_in_child=_forget_all)


def _is_taken(pid: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


class ProcessRunner:
    """Processes that wait for handlers to run; as many as were ever needed at once."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        """Begin without processes; of ``handlers`` only those count that are to run in one."""
        self._handlers = {
            kind: handler for kind, handler in handlers.items() if handler.place == "process"
        }
        self._threads = ThreadRunner()
        self._idle: list[_Child] = []
        self._busy: dict[int, _Child] = {}

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler in a process; where that is cancelled, the process is ended."""
        child = self._take_idle() or await self._start(handler.timeout_s)
        begun()
        ask = partial(child.ask, handler.kind, context.job.record)
        reply: Reply = await self._use(child, ask)
        if not child.is_closed:
            self._idle.append(child)
        return value_of(reply)

    async def close(self) -> None:
        """End the processes."""
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
            raise asyncio.CancelledError  # It was ready when it was told to stop.
        return child

    async def _use(
        self, child: _Child, ask: Callable[[], Any], limit_s: float | None = None
    ) -> Any:
        """Wait for a process to do something.

        It is ended if this is cancelled, or takes longer than ``limit_s``.
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
            except Exception:  # noqa: BLE001 - it is raised below
                break
        if timer is not None:
            timer.cancel()
        del self._busy[id(child)]
        error = asking.exception()
        if error is None and not is_cancelled and not is_late:
            return asking.result()
        # Also where it had answered already when it was ended: there is nobody in it now.
        await self._threads.call(child.close)
        if error is not None and is_cancelled:
            raise asyncio.CancelledError
        if is_late:
            message = f"{ENDED} was not ready after {limit_s:g} s, and was ended"
            raise ProcessDied(message)
        return asking.result()

    def _take_idle(self) -> _Child | None:
        """A process that waits, if there is one; it may have been ended while it did."""
        while self._idle:
            child = self._idle.pop()
            if child.process.is_alive():
                return child
            child.end_rest()
            child.close()
        return None


def _live(link: Connection, life: Connection, packed: bytes) -> None:
    """What runs in the process: one handler after another, until the worker is gone."""
    os.setsid()
    # They go to all processes of a terminal or a service, and it is the worker that decides. Not
    # by SIG_IGN, which programs that a handler starts would inherit.
    for number in _IGNORED:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
    # A fork gets no signal before it is an ordinary process.
    os.register_at_fork(
        before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, _IGNORED),
        after_in_parent=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, _IGNORED),
        after_in_child=partial(_leave, link, life),
    )
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    handlers: dict[str, Handler] = pickle.loads(packed)  # noqa: S301 - our own, from the worker
    with suppress(EOFError, OSError):
        link.send_bytes(b"ready")
        while True:
            kind = link.recv_bytes().decode()
            record = msgspec.json.decode(link.recv_bytes(), type=JobRecord)
            link.send_bytes(msgspec.json.encode(_reply(handlers[kind], record)))


def _ignore(_number: int, _frame: object) -> None:
    """Do nothing about a signal."""


def _leave(link: Connection, life: Connection) -> None:
    """Make a process that a handler forked an ordinary one: signals end it, and no pipe is its."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
    link.close()
    life.close()


def _end_with(life: Connection) -> None:
    """End this process and its group when the worker's is gone, even if a handler is at work."""
    with suppress(EOFError, OSError):
        life.recv_bytes()
    os.killpg(0, signal.SIGKILL)


def _reply(handler: Handler, record: JobRecord) -> Reply:
    context = Context(Job[Any](record, Any))
    try:
        if inspect.iscoroutinefunction(handler.function):
            result = asyncio.run(call(handler, context))
        else:
            result = call_plain(handler, context)
    except BaseException as error:  # noqa: BLE001 - it fails its job, and not this process
        return reply_failed(error)
    return reply_done(result)
