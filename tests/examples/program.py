"""Runs an example as a user would: a process of its own, with its output in a file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.environ import ROOT, child_environ

EXAMPLES = ROOT / "examples"
PATIENCE_S = 120.0


class Program:
    """A running example, in a process group of its own; leaving ``with`` ends all of it."""

    def __init__(self, command: list[str], output: Path, **environ: str) -> None:
        self._output = output
        self._command = [sys.executable, "-W", "error", *command]
        # Warnings of what it imports are not ours to mend, but ours would be seen.
        self._environ = child_environ(**environ)

    def __enter__(self) -> Self:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._output.parent,
                env=self._environ,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it and whatever it has started, as ``kill -9`` does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text("utf-8")

    def until(self, is_so: Callable[[str], bool]) -> str:
        """Wait until what it has printed is as wanted, and return that."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so(self.output()):
            assert self._process.poll() is None, f"it ended:\n{self.output()}"
            assert time.monotonic() < deadline, f"that takes too long:\n{self.output()}"
            time.sleep(0.02)
        return self.output()

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        return self._process.wait(PATIENCE_S)
