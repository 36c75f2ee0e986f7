"""A pseudo terminal for a command, and what can be seen on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.console import Console

TIMEOUT_S = 120
ROWS, COLUMNS = 30, 120

# Lets Ctrl-C that is typed at this terminal reach the processes that run in it. Not by code between
# fork and exec, which may fail in a process with threads.
_TAKE_TERMINAL = (
    "import fcntl, os, termios; from sys import argv; "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(argv[1], argv[1:])"
)
_CONTROL = re.compile(r"\x1b\[\??([0-9;]*)([A-Za-z])")


class Terminal:
    """Runs a command whose input and output are a terminal; it is killed in the end."""

    def __init__(self, console: Console, *words: str, columns: int = COLUMNS) -> None:
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        self.process: subprocess.Popen[bytes] = console.start(
            *words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            through=[sys.executable, "-S", "-c", _TAKE_TERMINAL],
            env={"TERM": "xterm", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        os.close(theirs)
        self.text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_S)
        os.close(self._own)

    def type(self, keys: bytes) -> None:
        os.write(self._own, keys)

    def modes(self) -> list[object]:
        """How the terminal handles input and output, as ``termios`` has it."""
        return termios.tcgetattr(self._own)

    def until(self, pattern: str, *, after: int = 0) -> int:
        """Read until a pattern has been written, and return where it ends."""
        limit = time.monotonic() + TIMEOUT_S
        while (found := re.search(pattern, self.text[after:])) is None:
            assert self._read(limit), f"{pattern!r} did not come: {self.text[after:]!r}"
        return after + found.end()

    def finish(self) -> int:
        """Read to the end, and return the exit code."""
        limit = time.monotonic() + TIMEOUT_S
        while self._read(limit):
            pass
        return self.process.wait(TIMEOUT_S)

    def _read(self, limit: float) -> bool:
        ready, _, _ = select.select([self._own], [], [], max(0.0, limit - time.monotonic()))
        try:
            data = os.read(self._own, 65536) if ready else b""
        except OSError:  # No process has it open any more.
            data = b""
        self.text += data.decode(errors="replace")
        return bool(data)

    def screen(self) -> list[str]:
        """The lines that a person would see, those that were scrolled away too."""
        lines, row, column, place = [""], 0, 0, 0
        while place < len(self.text):
            control = _CONTROL.match(self.text, place)
            if control is not None:
                place = control.end()
                if control[2] == "K":
                    lines[row] = lines[row][:column] if control[1] in {"", "0"} else ""
                elif control[2] == "A":
                    row = max(0, row - int(control[1] or 1))
                continue
            letter = self.text[place]
            place += 1
            if letter == "\r":
                column = 0
            elif letter == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            else:
                line = lines[row].ljust(column)
                lines[row] = line[:column] + letter + line[column + 1 :]
                column += 1
        return lines


def write_module(folder: Path, source: str, name: str = "tasks.py") -> None:
    """Write a module; two writes are never taken for one."""
    path = folder / name
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(source)
    os.utime(path, ns=(before + 10**9, max(before + 10**9, path.stat().st_mtime_ns)))
