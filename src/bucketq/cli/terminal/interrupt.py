"""Ctrl-C while something blocks the event loop.

``asyncio.run`` takes the first Ctrl-C for a wish to cancel the task that runs. A task that waits
for a person or a pipe never comes to know of it, so that it is told the plain way there.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Let Ctrl-C end what is done inside by a KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
