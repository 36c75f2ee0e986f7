"""``python -m tests.chaos.nursery``: the process from which clients and workers are forked.

It reads a line of JSON for each from its standard input, forks a process for it, and answers with
the process id; so all of them are imported once. Here is nothing to import for the processes in
which a worker runs handlers, for they load this module as well.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_DEATH_SIGNAL = 1


def fork_for_each_line(run: Callable[[dict[str, Any]], None]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Whoever ends is gone at once.
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
            try:
                run(json.loads(line))
            finally:
                os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    from tests.chaos.programs import run

    fork_for_each_line(run)
