"""``ForcedExit``: exits a process that does not exit in time.

A stopped worker has released its jobs within its drain time. The process may still not exit,
because of code that this library cannot stop: a handler that blocks the event loop, one that
ignores its cancellation, or a thread that the interpreter joins at exit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from contextlib import suppress

_log = logging.getLogger("bucketq.worker")

JOB_TASK = "job "
"""What the names of tasks begin with that run handlers."""
_EXIT_CODE = 1
_LAST_WORDS_S = 0.5
"""How long the log and the output may take: their reader may have stopped reading."""
_LOOP_ANSWER_S = 0.25
"""How long the event loop may take to answer before it counts as blocked. It must be less than
_LAST_WORDS_S, or nothing would be logged."""
_NAMED_MAX = 5
"""How many jobs or threads a log line names."""


class ForcedExit:
    """A deadline for this process, unless it is cancelled; none outside the main thread."""

    def __init__(self) -> None:
        self._is_called_off = threading.Event()
        if threading.current_thread() is not threading.main_thread():
            self._is_called_off.set()  # The process is not the worker's to end.
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop on which async handlers run, if it is known."""

    @property
    def is_called_off(self) -> bool:
        """Whether no deadline ends the process."""
        return self._is_called_off.is_set()

    def within(self, seconds: float) -> None:
        """Exit the process after this time. The earliest deadline counts."""
        threading.Thread(
            target=self._wait, args=(seconds,), name="bucketq exit", daemon=True
        ).start()

    def call_off(self) -> None:
        """Cancel the deadline."""
        self._is_called_off.set()

    def _wait(self, seconds: float) -> None:
        if self._is_called_off.wait(seconds):
            return
        # In another thread: a blocked thread may hold the locks of logging.
        logging_thread = threading.Thread(target=self._report, daemon=True)
        logging_thread.start()
        logging_thread.join(_LAST_WORDS_S)
        os._exit(_EXIT_CODE)

    def _report(self) -> None:
        _log.error("ending the process: its drain time is over, and %s", cause(self.loop))
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()


def cause(loop: asyncio.AbstractEventLoop | None) -> str:
    """Say what keeps the process from ending, as far as that can be found out in a moment."""
    jobs = _jobs_on(loop)
    if jobs is None:
        return "a handler blocks the event loop"
    if jobs:
        return f"async handlers go on although they were cancelled: {_listed(jobs)}"
    main = threading.main_thread()
    threads = [t.name for t in threading.enumerate() if not t.daemon and t is not main]
    if threads:
        return f"threads have not ended: {_listed(threads)}"
    return "something in it does not end"


def _jobs_on(loop: asyncio.AbstractEventLoop | None) -> list[str] | None:
    """The jobs whose handlers still run on a loop; None: the loop does not answer."""
    if loop is None or not loop.is_running():
        return []
    jobs: list[str] = []
    has_answered = threading.Event()

    def look() -> None:
        names = (task.get_name() for task in asyncio.all_tasks())
        jobs.extend(name for name in names if name.startswith(JOB_TASK))
        has_answered.set()

    try:
        loop.call_soon_threadsafe(look)
    except RuntimeError:  # It was closed in this moment.
        return []
    return sorted(jobs) if has_answered.wait(_LOOP_ANSWER_S) else None


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
