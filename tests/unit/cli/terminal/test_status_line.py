"""The line that commands show while they wait."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest

from bucketq.cli.commands.producers.wait import print_result
from bucketq.cli.terminal.output import Output
from bucketq.model.records import Progress
from bucketq.queue.queue import Queue

PLAIN = Output(json=False, quiet=False, debug=False, timeout_s=5.0)
QUIET = Output(json=False, quiet=True, debug=False, timeout_s=5.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Waiting:
    """A queue whose job reports progress once."""

    async def wait(
        self, _job_id: str, *, timeout_s: float, on_progress: Callable[[Progress], object]
    ) -> int:
        on_progress(Progress(done=40, total=100, note="frames"))
        return int(timeout_s)


async def shown(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, out: Output) -> str:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    assert await print_result(out, cast("Queue[Any]", Waiting()), "film-1", 5.0) == 0
    return stderr.getvalue()


async def test_a_terminal_shows_how_far_the_job_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    text = await shown(monkeypatch, Terminal(), PLAIN)
    assert "job film-1: 40/100 frames (40%)" in text


async def test_no_line_is_shown_if_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await shown(monkeypatch, io.StringIO(), PLAIN) == ""
    assert await shown(monkeypatch, Terminal(), QUIET) == ""
