"""How a handler in a process of its own uses the queue of its worker.

Its requests go through a pipe to the worker, which commits them. They are sent as JSON, so that the
worker never unpickles what a handler sends; answers are pickled, since the handlers' process trusts
its worker.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Union

import msgspec
from msgspec import Struct

from bucketq import errors
from bucketq.client.blocking_queue import BlockingQueue
from bucketq.client.loop_thread import LoopThread
from bucketq.clock import SystemClock
from bucketq.errors import BucketQError, ClosedError
from bucketq.model.operations import AnyOperation, Request
from bucketq.queue.queue import Queue
from bucketq.rpc.messages import OFFERED, FlushArchive
from bucketq.worker.looped_committer import LoopedCommitter

if TYPE_CHECKING:
    _Sent = AnyOperation
else:
    _Sent = Union[tuple(each for each in OFFERED if each is not FlushArchive)]  # noqa: UP007

_LOOK_S = 0.5
"""How often the worker looks whether a process is gone: another may keep its pipe open."""
_WHERE = "the queue of the worker"
_LOST = "the worker does not answer any more"


class QueueCall(Struct, frozen=True, omit_defaults=True):
    """A request of a handler; without an operation, it asks to flush the archive."""

    number: int
    timeout_s: float
    operation: _Sent | None = None
    session: str = ""
    request: int = 0
    acknowledged_below: int = 0
    since: int | None = None
    made_ms: int | None = None


# Made once: msgspec crashes if two threads look up the fields of a struct for the first time.
_decode_call = msgspec.json.Decoder(QueueCall).decode


class PipeCommitter:
    """In the process of a handler: sends requests to the worker."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._number = 0
        self._pending: dict[int, Future[Any]] = {}
        self._reader: threading.Thread | None = None
        self._is_lost = False

    where = _WHERE
    mode = "through its worker"
    version = 0
    is_open = True
    joins = False

    async def open(self) -> None:
        """Do nothing: the worker has opened the queue."""

    async def close(self) -> None:
        """Do nothing: the worker closes the queue."""

    async def submit(self, request: Request, timeout_s: float) -> Any:
        """Let the worker commit a request."""
        operation: Any = request.operation
        number = request.number
        rest = (request.acknowledged_below, request.since, request.made_ms)
        return await self._ask(timeout_s, operation, request.session, number, *rest)

    async def flush_archive(self) -> int:
        """Let the worker archive everything that is finished now."""
        count: int = await self._ask(0.0)
        return count

    async def _ask(self, timeout_s: float, *fields: Any) -> Any:
        answer: Future[Any] = Future()
        with self._lock:
            if self._is_lost:
                raise ClosedError(_LOST)
            self._number += 1
            self._pending[self._number] = answer
            call = QueueCall(self._number, timeout_s, *fields)
            if self._reader is None:
                self._reader = threading.Thread(target=self._read, daemon=True)
                self._reader.start()
            self._pipe.send_bytes(msgspec.json.encode(call))
        return await asyncio.wrap_future(answer)

    def _read(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                number, answer, error = pickle.loads(self._pipe.recv_bytes())  # noqa: S301 - from the worker
                with self._lock:
                    waiting = self._pending.pop(number, None)
                if waiting is None or waiting.cancelled():
                    continue
                with suppress(Exception):  # The caller was cancelled just now.
                    if error is None:
                        waiting.set_result(answer)
                    else:
                        waiting.set_exception(_error_of(*error))
        with self._lock:
            self._is_lost = True
            lost, self._pending = list(self._pending.values()), {}
        for waiting in lost:
            with suppress(Exception):
                waiting.set_exception(ClosedError(_LOST))


class ChildQueue:
    """In the process of a handler: makes the two faces of the queue when they are needed."""

    def __init__(self, pipe: Connection) -> None:
        self._committer = PipeCommitter(pipe)
        self._blocking: BlockingQueue[Any] | None = None

    async def open(self) -> Queue[Any]:
        """Return an open queue for the running loop."""
        return await Queue[Any](self._committer, SystemClock()).__aenter__()

    def blocking(self) -> BlockingQueue[Any]:
        """Return the blocking queue."""
        if self._blocking is None:
            thread = LoopThread()
            self._blocking = BlockingQueue(thread, thread.call(self.open))
        return self._blocking


class CallRelay:
    """In the worker: commits the requests that come through the pipe of a process."""

    def __init__(self, pipe: Connection) -> None:
        """Take over a pipe; ``serve`` begins, and ``stop`` closes it."""
        self._pipe = pipe
        self._answers: SimpleQueue[bytes | None] = SimpleQueue()
        self._committer: LoopedCommitter | None = None
        self._threads: list[threading.Thread] = []
        self._is_stopped = False

    def serve(self, committer: LoopedCommitter | None) -> None:
        """Commit requests with this committer from now on."""
        self._committer = committer
        if committer is not None and not self._threads:
            for work in (self._receive, self._send):
                self._threads.append(threading.Thread(target=work, daemon=True))
                self._threads[-1].start()

    def forget(self) -> None:
        """In a fork of the worker, which has no threads, close the pipe."""
        self._pipe.close()

    def stop(self) -> None:
        """Close the pipe, here or in the thread that uses it."""
        self._is_stopped = True
        self._answers.put(None)
        if not self._threads:
            self._pipe.close()

    def _receive(self) -> None:
        with suppress(EOFError, OSError, msgspec.MsgspecError):
            while not self._is_stopped:
                if self._pipe.poll(_LOOK_S):
                    self._start(_decode_call(self._pipe.recv_bytes()))
        self._answers.put(None)
        self._threads[1].join()
        self._pipe.close()

    def _start(self, call: QueueCall) -> None:
        committer = self._committer
        try:
            if committer is None:
                raise ClosedError("the worker has no queue for its handlers")
            if call.operation is None:
                running: Future[Any] = committer.start_flush()
            else:
                ids = (call.session, call.request, call.acknowledged_below, call.since)
                request = Request(call.operation, *ids, call.made_ms)
                running = committer.start(request, call.timeout_s)
        except BucketQError as error:
            self._answers.put(pickle.dumps((call.number, None, _sendable(error))))
        else:
            running.add_done_callback(partial(self._finish, call.number))

    def _finish(self, number: int, running: Future[Any]) -> None:
        if running.cancelled():
            error: BaseException | None = ClosedError("the worker has ended")
        else:
            error = running.exception()
        if error is not None:
            self._answers.put(pickle.dumps((number, None, _sendable(error))))
        else:
            self._answers.put(pickle.dumps((number, running.result(), None)))

    def _send(self) -> None:
        with suppress(OSError):
            while (answer := self._answers.get()) is not None:
                self._pipe.send_bytes(answer)


def _sendable(error: BaseException) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return an error as plain values: its class, arguments and attributes."""
    if not isinstance(error, BucketQError):
        return "BucketQError", (f"{type(error).__name__}: {error}",), {}
    return type(error).__name__, tuple(map(str, error.args)), dict(vars(error))


def _error_of(name: str, args: tuple[Any, ...], fields: dict[str, Any]) -> BucketQError:
    kind: type[BucketQError] = getattr(errors, name, BucketQError)
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error
