"""Sees signals while the main thread is stuck in native code.

Python calls the handler of a signal in the main thread, between two steps of the interpreter. A
driver that waits for a database, or a long computation in C, keeps it from doing so. But the
interpreter writes the number of each signal to a file at once, and another thread can read that.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

_NONE = -1


@contextmanager
def watched(numbers: Collection[int], on_signal: Callable[[], None]) -> Iterator[None]:
    """Call a function when one of these signals comes, in a thread, as well as its handler.

    Only signals that have a handler are seen, and this is for the main thread to use.
    """
    reader, writer = socket.socketpair()
    mine = writer.fileno()
    os.set_blocking(mine, False)
    before = signal.set_wakeup_fd(mine, warn_on_full_buffer=False)

    def watch() -> None:
        with reader:
            while number := reader.recv(1):
                if before != _NONE:  # An event loop waits for it as well.
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
            signal.set_wakeup_fd(found)  # An event loop has taken the place meanwhile.
        writer.close()
