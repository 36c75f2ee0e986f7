"""``ReportingLink``: how a process that runs handlers answers its worker.

Beside the outcome of a handler it sends how far the handler has come. A handler may report that
thousands of times a second, so a thread sends the newest report every tenth of a second.
"""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection

import msgspec

from bucketq.model.records import Progress
from bucketq.worker.runners.reply import Reply

_PAUSE_S = 0.1
"""How long reports are collected: short against the interval of heartbeats, which carry them."""


class ReportingLink:
    """The end of a pipe in the process of handlers, which run one at a time."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._is_due = threading.Event()
        self._newest: tuple[object, Progress] | None = None
        self._running: object = None
        self._thread: threading.Thread | None = None

    def begin(self, running: object) -> None:
        """Send reports of this handler from now on, until ``answer``."""
        self._running = running

    def report(self, running: object, progress: Progress) -> None:
        """Send this soon, unless something newer comes or the handler is over by then."""
        self._newest = (running, progress)
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_reports, daemon=True)
            self._thread.start()
        self._is_due.set()

    def answer(self, reply: Reply) -> None:
        """Send the outcome; after it no report of this handler is sent."""
        with self._lock:
            self._running = None
            self._pipe.send_bytes(msgspec.json.encode(reply))

    def _send_reports(self) -> None:
        pause = threading.Event()
        while self._is_due.wait():
            self._is_due.clear()
            with self._lock:
                newest = self._newest
                if newest is not None and newest[0] is self._running:
                    try:
                        report = Reply("progress", progress=newest[1])
                        self._pipe.send_bytes(msgspec.json.encode(report))
                    except OSError:
                        return  # The worker is gone, and ends this process.
            pause.wait(_PAUSE_S)
