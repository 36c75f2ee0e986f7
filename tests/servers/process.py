"""Child processes that cannot outlive the tests, and free ports for them."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

HOST = "127.0.0.1"
_NEVER_HANDED_OUT = range(10_000, 32_000)
"""Linux hands out those from 32768 on, others from 49152 on."""
_READY_S = 60.0
_LOG_BYTES = 4000
# Becomes the server, after it has asked the kernel (PR_SET_PDEATHSIG) to be killed when the
# one that started it has gone.
_DIE_WITH_PARENT = (
    "import ctypes, os; from sys import argv; "
    "ctypes.CDLL(None).prctl(1, 9); os.execvp(argv[1], argv[1:])"
)
DIES_WITH_PARENT = [sys.executable, "-S", "-c", _DIE_WITH_PARENT] if sys.platform == "linux" else []


class NotInstalledError(Exception):
    """A server cannot be run on this machine; the message says how to get it."""


def free_ports(count: int) -> list[int]:
    """Find ports of the loopback interface that nobody uses, all different.

    They are not of those that a system hands out by itself: somebody's connection could come to
    have such a one before it is listened on, or while a server is started again.
    """
    found: list[int] = []
    for port in random.sample(_NEVER_HANDED_OUT, len(_NEVER_HANDED_OUT)):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind((HOST, port))
            found.append(port)
        if len(found) == count:
            return found
    message = f"{count} free ports are wanted, and there are {len(found)}"
    raise RuntimeError(message)


class Child:
    """A running process with its log.

    It gets a process group of its own, so that all of it can be ended, and dies with the
    process that started it even where that is killed: the kernel is asked to see to it, and
    where there is no such kernel (macOS) the end of the interpreter is.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self._name = Path(command[0]).name
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*DIES_WITH_PARENT, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                # What it leaves lying about goes with its folder.
                env={**os.environ, "TMPDIR": str(log.parent), **(environ or {})},
                start_new_session=True,
            )
        atexit.register(self.stop)

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Wait until the process answers; if it ends or takes too long, show its log."""
        deadline = time.monotonic() + _READY_S
        while not is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self._name} did not start; its log ends:\n{self.log_end()}")
            time.sleep(0.05)

    def log_end(self) -> str:
        """The last lines that the process wrote."""
        return self._log.read_bytes()[-_LOG_BYTES:].decode(errors="replace")

    def stop(self) -> None:
        """End the process and those that it started."""
        atexit.unregister(self.stop)
        # At once, since nobody needs its data and some take seconds to say goodbye.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def http(
    method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Make a request; return status and body, or status 0 where nobody answers."""
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)
    try:
        with _opener.open(request, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except (OSError, urllib.error.URLError):
        return 0, b""


# Straight to the server, whatever proxies the environment names.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
