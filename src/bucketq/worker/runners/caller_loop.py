"""Runs async handlers on the event loop that called ``Worker.run``.

The engine runs on another loop, in another thread. Handlers and their outcomes are passed between
the two loops in batches, because waking a loop from another thread costs more than a short handler.

**One task for many handlers.** A task for each job would cost more than a handler that does not
wait for anything. So a task runs one handler after the other, each in its own context, until one
waits: from then on the task belongs to that handler alone, and the next task takes the others. To
a handler that is the same: it is in a task, which only it can cancel, and sees no context variable
of another.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from types import coroutine
from typing import Any, Generic, TypeVar

from bucketq.worker.context import Context
from bucketq.worker.forced_exit import JOB_TASK
from bucketq.worker.handlers import Handler
from bucketq.worker.runners.runner import Begun, Handling, Runner, call

Item = TypeVar("Item")

_MOST = 100
_TURN_S = 0.001
"""How many handlers a task runs, and for how long, before other tasks of the loop have a turn and
the engine gets the outcomes."""


class _Mailbox(Generic[Item]):
    """Items for another loop, handed over together."""

    def __init__(
        self,
        sender: asyncio.AbstractEventLoop,
        receiver: asyncio.AbstractEventLoop,
        empty: Callable[[], None],
    ) -> None:
        """Call ``empty`` on ``receiver`` when there are items; it takes them and calls ``rest``."""
        self._sender = sender
        self._receiver = receiver
        self._empty = empty
        self._is_waking = False
        self._is_awake = False
        self.items: deque[Item] = deque()

    def post(self, item: Item) -> None:
        """Pass an item to the receiver, together with those that follow at once."""
        self.items.append(item)
        if not self._is_waking:
            self._is_waking = True
            self._sender.call_soon(self._wake_now)

    def wake(self) -> None:
        """Let the receiver take the items."""
        if not self._is_awake:
            self._is_awake = True
            # The loop may be closed, and then nothing waits for the items.
            with suppress(RuntimeError):
                self._receiver.call_soon_threadsafe(self._empty)

    def __iter__(self) -> Iterator[Item]:
        """Take all items, and rest."""
        try:
            while self.items:
                yield self.items.popleft()
        finally:
            self.rest()

    def rest(self) -> None:
        """Let the next item wake the receiver."""
        self._is_awake = False
        # An item that came just before did not wake it.
        if self.items:
            self.wake()

    def _wake_now(self) -> None:
        self._is_waking = False
        self.wake()


class _HandlerCall:
    """One handler that runs on the other loop; to the engine, a ``Handling``."""

    __slots__ = (
        *("_error", "_is_done", "_on_done", "_result", "_runner"),
        *("begun", "context", "handler", "is_cancelled", "task"),
    )

    def __init__(
        self, runner: CallerLoopRunner, handler: Handler, context: Context, begun: Begun
    ) -> None:
        self._runner = runner
        self.handler = handler
        self.context = context
        self.begun = begun
        self.task: asyncio.Task[Any] | None = None
        """Its own task, once it has waited for something."""
        self.is_cancelled = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._is_done = False
        self._on_done: Callable[[Any], object] | None = None

    def add_done_callback(self, function: Callable[[Any], object], /) -> None:
        """Call a function when the handler is over; there can be one."""
        self._on_done = function

    def cancel(self) -> bool:
        """Cancel the handler on its loop, or keep it from starting."""
        if self._is_done:
            return False
        self.is_cancelled = True
        self._runner.post_cancellation(self)
        return True

    def done(self) -> bool:
        """Whether the engine knows that it is over."""
        return self._is_done

    def cancelled(self) -> bool:
        """Whether it ended by its cancellation, or never ran."""
        return isinstance(self._error, asyncio.CancelledError)

    def exception(self) -> BaseException | None:
        """What it raised."""
        return self._error

    def result(self) -> Any:
        """What it returned."""
        if self._error is not None:
            raise self._error
        return self._result

    @property
    def ends_task(self) -> bool:
        """Whether it ends its task: it was cancelled, or wants to end the process."""
        return self._error is not None and not isinstance(self._error, Exception)

    def end(self, result: Any, error: BaseException | None) -> None:
        """Keep the outcome, on the loop of the handler."""
        self._result, self._error = result, error

    def finish(self) -> None:
        """Report the outcome, on the engine's loop."""
        if not self._is_done:
            self._is_done = True
            # What it calls refers to this: without a cycle, no garbage collection is needed.
            on_done, self._on_done, self.begun = self._on_done, None, _ignore
            if on_done is not None:
                on_done(self)


class CallerLoopRunner(Runner):
    """Runs handlers on another loop. Created and used on the engine's loop."""

    def __init__(self, caller: asyncio.AbstractEventLoop) -> None:
        engine = asyncio.get_running_loop()
        self._caller = caller
        self._starts = _Mailbox[_HandlerCall](engine, caller, self._start_all)
        self._cancellations = _Mailbox[_HandlerCall](engine, caller, self._cancel_all)
        self._begins = _Mailbox[_HandlerCall](caller, engine, self._report_begins)
        self._ends = _Mailbox[_HandlerCall](caller, engine, self._report_ends)
        self._calls: dict[int, _HandlerCall] = {}
        self._do_they_wait = False
        """Whether the last handler has waited for something."""

    def start(self, handler: Handler, context: Context, begun: Begun) -> Handling:
        """Start a handler on the other loop."""
        call_ = _HandlerCall(self, handler, context, begun)
        self._calls[id(call_)] = call_
        self._starts.post(call_)
        return call_

    async def run(self, handler: Handler, context: Context, begun: Begun) -> Any:
        """Run a handler on the other loop, and return when it is over."""
        over = asyncio.get_running_loop().create_future()
        call_ = self.start(handler, context, begun)
        call_.add_done_callback(over.set_result)
        while not over.done():
            try:
                await asyncio.shield(over)
            except asyncio.CancelledError:
                call_.cancel()
        return call_.result()

    async def close(self) -> None:
        """Stop waiting for handlers that still run."""
        for call_ in list(self._calls.values()):
            call_.end(None, asyncio.CancelledError())
            self._finish(call_)
        await asyncio.sleep(0)  # Let the tasks that waited see it.

    def post_cancellation(self, call_: _HandlerCall) -> None:
        """Cancel a handler on its loop."""
        self._cancellations.post(call_)

    def _cancel_all(self) -> None:
        for call_ in self._cancellations:
            if call_.task is not None:
                call_.task.cancel()

    def _report_begins(self) -> None:
        for call_ in self._begins:
            call_.begun()

    def _report_ends(self) -> None:
        for call_ in self._ends:
            self._finish(call_)

    def _finish(self, call_: _HandlerCall) -> None:
        self._calls.pop(id(call_), None)
        call_.finish()

    def _start_all(self) -> None:
        """Make tasks for the handlers that are to be started, and look again after their turn."""
        waiting = len(self._starts.items)
        if not waiting:
            self._starts.rest()
            return
        # If handlers wait, each needs a task, and they need not take turns to get one.
        for _ in range(waiting if self._do_they_wait else 1):
            self._caller.create_task(self._run_some())
        self._caller.call_soon(self._start_all)

    async def _run_some(self) -> Any:
        """Run handlers until one waits, and then only that one."""
        task, loop = asyncio.current_task(), self._caller
        assert task is not None  # noqa: S101 - this is one
        starts, ended = self._starts.items, self._ends.items
        until_s = loop.time() + _TURN_S
        for _ in range(_MOST):
            if not starts:
                break
            call_ = starts.popleft()
            rest = self._begin(call_, task)
            if rest is not None or call_.ends_task or task.cancelling():
                self._leave_task_to(call_, task)
                return call_.result() if rest is None else await rest
            ended.append(call_)
            if loop.time() > until_s:
                break
        if ended:
            self._ends.wake()
        return None

    def _begin(self, call_: _HandlerCall, task: asyncio.Task[Any]) -> Awaitable[Any] | None:
        """Run a handler until it waits, and return the rest of it; None if it is over."""
        if call_.is_cancelled:
            call_.end(None, asyncio.CancelledError())
            return None
        if call_.handler.timeout_s is not None:
            self._begins.post(call_)
        task.set_name(f"{JOB_TASK}{call_.context.job.id}")
        work, within = call(call_.handler, call_.context), contextvars.copy_context()
        try:
            awaited = within.run(work.send, None)
        except StopIteration as over:
            call_.end(over.value, None)
        except BaseException as error:  # noqa: BLE001 - it is the outcome of the job
            call_.end(None, error)
        else:
            self._do_they_wait = True
            return _continue(work, within, awaited)
        self._do_they_wait = False
        return None

    def _leave_task_to(self, call_: _HandlerCall, task: asyncio.Task[Any]) -> None:
        """Let the end of a task be the end of a handler."""
        call_.task = task
        if self._ends.items:
            self._ends.wake()

        def over(task: asyncio.Task[Any]) -> None:
            if task.cancelled():
                call_.end(None, asyncio.CancelledError())
            elif (error := task.exception()) is not None:
                call_.end(None, error)
            else:
                call_.end(task.result(), None)
            self._ends.post(call_)

        task.add_done_callback(over)


def _ignore() -> None:
    """Do nothing."""


@coroutine
def _continue(
    work: Coroutine[Any, Any, Any], within: contextvars.Context, awaited: Any
) -> Generator[Any, Any, Any]:
    """Run the rest of a coroutine in its own context, as a task would."""
    step: Callable[[Any], Any]
    while True:
        try:
            value, step = (yield awaited), work.send
        except BaseException as error:  # noqa: BLE001 - passed on
            value, step = error, work.throw
        try:
            awaited = within.run(step, value)
        except StopIteration as over:
            return over.value


async def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Do something on another loop; if this is cancelled, so is that."""
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
