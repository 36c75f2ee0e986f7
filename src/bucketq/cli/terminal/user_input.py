"""Reads from a person or a pipe: input that Ctrl-C interrupts, and confirmations.

``asyncio.run`` handles the first Ctrl-C by cancelling the running task. A task that blocks while it
reads would never notice, so Ctrl-C raises KeyboardInterrupt there.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

from bucketq.cli.terminal.output import Output, printable
from bucketq.errors import InvalidRequestError


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt inside."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread receives signals.
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def confirmed(out: Output, what: str) -> bool:
    """Ask for confirmation; if stdin is not a terminal, raise an error that names --yes."""
    if not sys.stdin.isatty():
        raise InvalidRequestError(f"this would {what}; add --yes to confirm")
    print(printable(f"{what}? [y/N] "), end="", file=sys.stderr, flush=True)
    try:
        with interruptible():
            answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        out.after_interrupt = "nothing was done"
        raise
    if answer.strip().lower() in {"y", "yes"}:
        return True
    out.note("nothing was done")
    return False
