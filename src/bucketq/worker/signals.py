"""Lets signals stop a worker, also while the main thread is stuck in native code.

Python calls signal handlers in the main thread, between two bytecodes. A driver that waits for a
database, or a long computation in C, delays that. But the interpreter writes the number of each
signal to the wakeup file descriptor at once, and another thread can read it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, Protocol

_log = logging.getLogger("bucketq.worker")

_NONE = -1
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ECHO_S = 0.25
"""A second SIGTERM within this time is ignored: ``timeout`` sends two at once."""
_LAST_LINE_S = 1.0
"""How long the end waits for the last line, if stderr is a pipe that no process reads."""
_MEANINGS = (
    "no more jobs are claimed, and handlers may finish; a second signal stops them",
    "handlers are stopped, and their jobs are released; a third signal kills the process",
)


class RequestStop(Protocol):
    """What a signal calls."""

    def __call__(self, *, hurry: bool) -> None:
        """Stop; with ``hurry``, without waiting for handlers."""


@contextmanager
def stopped_by_signals(request_stop: RequestStop) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM stop a worker; the second one hurries, the third kills the process.

    It does not use the event loop, which a handler may block. A signal that is ignored, as shells
    do with Ctrl-C for jobs in the background, stays ignored. A SIGTERM right after another is
    ignored: ``timeout`` sends it to a process and to its group. Only the main thread can receive
    signals, so in any other this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    found = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: how for number, how in found.items() if how is not signal.SIG_IGN}
    count, echo_until_s = 0, 0.0
    # A stream cannot be written by a handler that interrupts another one at its write.
    said = SimpleQueue[tuple[str, str] | None]()
    logging_thread = threading.Thread(target=_log_signals, args=(said,), daemon=True)
    logging_thread.start()

    def on_signal(number: int, _frame: object) -> None:
        nonlocal count, echo_until_s
        if number == signal.SIGTERM:
            if loop.time() < echo_until_s:
                return
            echo_until_s = loop.time() + _ECHO_S
        count += 1
        if count > 1:
            # The previous handler may only notify the event loop, which may be blocked.
            _restore(dict.fromkeys(before, signal.SIG_DFL))
        said.put((signal.Signals(number).name, _MEANINGS[min(count, len(_MEANINGS)) - 1]))
        request_stop(hurry=count > 1)

    for number in before:
        signal.signal(number, on_signal)
    try:
        # Any of them stops it, even if the main thread never gets to run the handler.
        with watched(before, lambda: request_stop(hurry=False)):
            yield
    finally:
        _restore(before)
        said.put(None)
        logging_thread.join(_LAST_LINE_S)


@contextmanager
def watched(numbers: Collection[int], on_signal: Callable[[], None]) -> Iterator[None]:
    """Call a function in a thread when one of these signals arrives, besides its handler.

    Only signals with a Python handler are noticed. Must be used in the main thread.
    """
    reader, writer = socket.socketpair()
    mine = writer.fileno()
    os.set_blocking(mine, False)
    before = signal.set_wakeup_fd(mine, warn_on_full_buffer=False)

    def watch() -> None:
        with reader:
            while number := reader.recv(1):
                if before != _NONE:  # An event loop reads it as well.
                    with suppress(OSError):
                        os.write(before, number)
                if number[0] in numbers:
                    on_signal()

    threading.Thread(target=watch, name="bucketq signals", daemon=True).start()
    try:
        yield
    finally:
        found = signal.set_wakeup_fd(before)
        if found != mine:
            signal.set_wakeup_fd(found)  # An event loop has replaced it meanwhile.
        writer.close()


def _log_signals(said: SimpleQueue[tuple[str, str] | None]) -> None:
    """Log what signals mean, until None comes."""
    while (line := said.get()) is not None:
        _log.info("%s: %s", *line)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
