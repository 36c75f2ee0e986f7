"""Notices signals while the main thread is stuck in native code.

Python calls signal handlers in the main thread, between two bytecodes. A driver that waits for a
database, or a long computation in C, delays that. But the interpreter writes the number of each
signal to the wakeup file descriptor at once, and another thread can read it.
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
