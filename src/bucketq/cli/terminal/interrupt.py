"""Ctrl-C while something blocks the event loop.

``asyncio.run`` handles the first Ctrl-C by cancelling the running task. A task that blocks while
it reads from a person or a pipe would never notice, so Ctrl-C raises KeyboardInterrupt there.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt inside."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
