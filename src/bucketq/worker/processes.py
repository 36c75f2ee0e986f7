"""Runs handlers in processes of their own: for work that needs a core, and for code that crashes.

Each process runs one handler at a time, and is kept for the next. Payloads and results travel as
JSON; nothing that comes from a job is ever unpickled. A handler that is to stop is ended with its
process, and a process that dies takes one attempt of one job with it.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from bucketq.model.job import JobRecord
from bucketq.queue.job import Job
from bucketq.worker.context import Context
from bucketq.worker.handlers import Handler
from bucketq.worker.reply import Reply, how_it_ended, reply_done, reply_failed, value_of
from bucketq.worker.runner import Begun, call, call_plain
from bucketq.worker.threads import ThreadRunner

_SPAWN = multiprocessing.get_context("spawn")
_IGNORED = (signal.SIGINT, signal.SIGTERM)
_END_S = 2.0


class ProcessDied(Exception):  # noqa: N818 - a handler's misfortune, told like its errors
    """The process that ran a handler ended before the handler did."""


class _Child:
    """One process, seen from here."""

    def __init__(self, handlers: dict[str, Handler]) -> None:
        """Start it. What it is told to run is chosen here, by kind, from ``handlers``."""
        self._closing, self._is_closed = threading.Lock(), False
        self._link, theirs = _SPAWN.Pipe()
        life, self._life = _SPAWN.Pipe(duplex=False)
        self.process = _SPAWN.Process(
            target=_live, args=(theirs, life, handlers), name="bucketq handler", daemon=True
        )
        # Signals that come before it can ignore them wait for it: the mask is inherited.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # It heeds no SIGTERM, which is how multiprocessing would end it with this process.
        atexit.register(self.process.kill)
        theirs.close()
        life.close()

    def until_ready(self) -> None:
        """Wait until it has imported what its handlers need."""
        try:
            self._link.recv_bytes()
        except (EOFError, OSError):
            raise self._death() from None

    def ask(self, kind: str, record: JobRecord) -> Reply:
        """Run a handler there, and wait for what comes of it."""
        try:
            self._link.send_bytes(kind.encode())
            self._link.send_bytes(msgspec.json.encode(record))
            return msgspec.json.decode(self._link.recv_bytes(), type=Reply)
        except (EOFError, OSError):
            raise self._death() from None

    def _death(self) -> ProcessDied:
        """Tell how it ended."""
        try:
            self.process.join(_END_S)
            return ProcessDied(how_it_ended(self.process.exitcode))
        except ValueError:  # It was closed meanwhile, and keeps nothing to tell.
            return ProcessDied("the process that ran the handler was ended with its worker")

    def kill(self) -> None:
        """End it now."""
        with suppress(ValueError):  # It is closed.
            self.process.kill()

    def close(self) -> None:
        """End it, and wait for that."""
        # The worker may end it while whoever ran a handler there finds that out and does the same;
        # and a file that is closed twice may be another's the second time.
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        # Not even a kill ends it in time where it waits for a disk.
        with suppress(ValueError):
            atexit.unregister(self.process.kill)
            self._life.close()
            self.process.kill()
            self.process.join(_END_S)
            self._link.close()
            self.process.close()


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
        child = self._take_idle() or await self._start()
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            self._idle.append(child)  # It was to stop before there was a process for it.
            raise asyncio.CancelledError
        self._busy[id(child)] = child
        begun()
        ask = partial(child.ask, handler.kind, context.job.record)
        asking = asyncio.get_running_loop().create_task(self._threads.call(ask))
        is_cancelled = False
        while not asking.done():
            try:
                await asyncio.shield(asking)
            except asyncio.CancelledError:
                is_cancelled = True
                child.kill()
            except ProcessDied:
                break
        del self._busy[id(child)]
        if asking.exception() is None and not is_cancelled:
            self._idle.append(child)
        else:
            # Also where it had answered already when it was ended: there is nobody in it now.
            await self._threads.call(child.close)
            if asking.exception() is not None and is_cancelled:
                raise asyncio.CancelledError
        return value_of(asking.result())

    async def close(self) -> None:
        """End the processes."""
        for child in (*self._idle, *self._busy.values()):
            await self._threads.call(child.close)
        self._idle.clear()
        await self._threads.close()

    async def _start(self) -> _Child:
        """Start a process, and wait until it is ready to run handlers."""
        child: _Child = await self._threads.call(partial(_Child, self._handlers))
        try:
            await self._threads.call(child.until_ready)
        except ProcessDied:
            await self._threads.call(child.close)
            raise
        return child

    def _take_idle(self) -> _Child | None:
        """A process that waits, if there is one; it may have been ended while it did."""
        while self._idle:
            child = self._idle.pop()
            if child.process.is_alive():
                return child
            child.close()
        return None


def _live(link: Connection, life: Connection, handlers: dict[str, Handler]) -> None:
    """What runs in the process: one handler after another, until the worker is gone."""
    # They go to all processes of a terminal or a service, and it is the worker that decides.
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    with suppress(EOFError, OSError):
        link.send_bytes(b"ready")
        while True:
            kind = link.recv_bytes().decode()
            record = msgspec.json.decode(link.recv_bytes(), type=JobRecord)
            link.send_bytes(msgspec.json.encode(_reply(handlers[kind], record)))


def _end_with(life: Connection) -> None:
    """End this process when the worker's is gone, also where a handler is at work."""
    with suppress(EOFError, OSError):
        life.recv_bytes()
    os._exit(1)


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
