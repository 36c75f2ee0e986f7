"""``ForcedExit``: ends a process that does not end by itself in time.

A worker that was told to stop has given its jobs back within its drain time. The process may go on
all the same, because of code that this library cannot stop: a handler that blocks the event loop,
or a thread that the interpreter waits for before it exits.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress

_log = logging.getLogger("bucketq.worker")

_EXIT_CODE = 1
_LAST_WORDS_S = 0.5
"""How long the log and the output may take: whoever reads them may have stopped reading."""


class ForcedExit:
    """A deadline for this process. It holds until it is called off."""

    def __init__(self) -> None:
        self._is_called_off = threading.Event()

    def within(self, seconds: float) -> None:
        """End the process after so long. The earliest deadline counts."""
        threading.Thread(
            target=self._wait, args=(seconds,), name="bucketq exit", daemon=True
        ).start()

    def call_off(self) -> None:
        """Let the process live."""
        self._is_called_off.set()

    def _wait(self, seconds: float) -> None:
        if self._is_called_off.wait(seconds):
            return
        # In a thread of its own: a thread that is blocked may hold the locks of logging.
        saying = threading.Thread(target=_say, daemon=True)
        saying.start()
        saying.join(_LAST_WORDS_S)
        os._exit(_EXIT_CODE)


def _say() -> None:
    _log.error(
        "ending the process: its drain time is over, and a handler blocks the event loop, or a "
        "thread has not ended"
    )
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
