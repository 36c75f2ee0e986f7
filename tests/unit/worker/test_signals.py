"""Signals are seen by another thread, and by an event loop that waited for them before."""

from __future__ import annotations

import os
import queue
import signal
import socket

from bucketq.worker.signals import watched


def test_a_signal_is_seen_besides_its_handler_and_others_are_left_alone() -> None:
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()
    before = {number: signal.signal(number, lambda *_: None) for number in _BOTH}
    reader, writer = socket.socketpair()
    os.set_blocking(writer.fileno(), False)
    signal.set_wakeup_fd(writer.fileno())
    try:
        with reader, writer, watched([signal.SIGUSR1], lambda: seen.put("seen")):
            os.kill(os.getpid(), signal.SIGUSR2)
            os.kill(os.getpid(), signal.SIGUSR1)
            assert seen.get(timeout=20) == "seen"
            assert seen.empty()
            # The loop that was replaced gets both.
            received = reader.recv(1) + reader.recv(1)
            assert sorted(received) == sorted(_BOTH)
    finally:
        kept = signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert kept != -1


_BOTH = (signal.SIGUSR1, signal.SIGUSR2)
