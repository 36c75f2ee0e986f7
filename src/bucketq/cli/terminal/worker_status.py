"""What a worker is doing, on the last line of a terminal, where somebody can see it.

A thread of the terminal library draws it, so it moves on while a handler blocks the event loop.
Whatever else is written to the terminal goes above it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bucketq.cli.terminal.log import to_stderr
from bucketq.errors import BucketQError, UnavailableError

if TYPE_CHECKING:
    from bucketq.worker.worker import Worker

_DRAWINGS_PER_S = 4
_WINDOW_S = 5.0
"""Over how long the rate is measured."""
_SAMPLE_S = 0.5
_LOOK_S = 4.0
"""How often the jobs of the queue are counted."""


class Rate:
    """How many a second, lately."""

    def __init__(self) -> None:
        """Begin without any."""
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, count: int) -> float:
        """Take how many there are by now, and return how many came a second."""
        samples = self._samples
        if not samples or now_s - samples[-1][0] >= _SAMPLE_S:
            samples.append((now_s, count))
        while now_s - samples[0][0] > _WINDOW_S and len(samples) > 1:
            samples.popleft()
        since_s, before = samples[0]
        return (count - before) / (now_s - since_s) if now_s > since_s else 0.0


class WorkerLine:
    """The last line of a terminal; nothing where stderr is no terminal, or nobody wants it."""

    def __init__(self, *, is_wanted: bool) -> None:
        """Show nothing yet."""
        self._is_shown = is_wanted and sys.stderr.isatty()
        self._worker: Worker | None = None
        self._kinds: tuple[str, ...] = ()
        self._queued: int | None = None
        self._rate = Rate()
        self._console: Any = None
        self._live: Any = None

    def __enter__(self) -> Self:
        """Take the last line, and let what is printed go above it."""
        if self._is_shown:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            if console.is_terminal and not console.is_dumb_terminal:
                self._console = console
                self._live = Live(
                    console=console,
                    get_renderable=self._draw,
                    transient=True,
                    refresh_per_second=_DRAWINGS_PER_S,
                    redirect_stdout=sys.stdout.isatty(),
                )
                self._live.start()
                # A worker that is killed could not show it again.
                console.show_cursor(show=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give it back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Write a line without spoiling this one."""
        if self._live is None:
            to_stderr(text)
            return
        from rich.text import Text

        self._console.print(Text(text), soft_wrap=True)

    async def follow(self, worker: Worker, kinds: tuple[str, ...]) -> None:
        """Show what a worker does, and how many jobs of these kinds wait, until cancelled."""
        self._worker, self._kinds = worker, kinds
        while self._live is not None:
            if worker.is_ready:
                try:
                    stats = await worker.stats()
                except UnavailableError:
                    self._queued = None
                except BucketQError:
                    return  # It has no right to look, or ends.
                else:
                    by_kind = [stats.counts.get(kind, {}) for kind in kinds]
                    self._queued = sum(counts.get("queued", 0) for counts in by_kind)
            await asyncio.sleep(_LOOK_S if worker.is_ready else _SAMPLE_S)

    def _draw(self) -> Any:
        from rich.text import Text

        return Text(self._text(), no_wrap=True, overflow="ellipsis")

    def _text(self) -> str:
        worker = self._worker
        if worker is None:
            return ""
        if not worker.is_ready:
            return "looking for the queue"
        tally = worker.counters
        done, retried, dead = (tally.count(end) for end in ("done", "retried", "dead"))
        rate = self._rate.note(self._console.get_time(), done + retried + dead)
        parts = [
            f"running {tally.running}/{worker.slots}, waiting {tally.waiting}",
            f"{done:,} done, {retried:,} retried, {dead:,} dead",
            f"{rate:,.1f} jobs/s",
        ]
        if self._queued is not None:
            parts.append(f"{self._queued:,} queued")
        return " | ".join(parts)
