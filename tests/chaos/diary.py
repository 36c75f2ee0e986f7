"""Diaries: what the processes of a run have seen and were promised.

A diary is a file of JSON lines, each written by one system call. Whatever happens to its writer,
the lines that are there are true. Several processes may write into one: a worker, and those in
which its handlers run.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Diary:
    """What one process was promised."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, **facts: object) -> None:
        line = json.dumps({"what": what, "at": time.monotonic(), **facts})
        os.write(self._file, f"{line}\n".encode())


def read_diary(path: Path) -> list[dict[str, Any]]:
    """What was written down; a last line that is not whole was not yet said."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
