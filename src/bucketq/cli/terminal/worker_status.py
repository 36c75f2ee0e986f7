"""A status line for a worker, on the last line of the terminal.

A thread of rich draws it, so it is updated even while a handler blocks the event loop. Other
output is printed above it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from bucketq.cli.terminal.log import to_stderr
from bucketq.errors import BucketQError, UnavailableError

if TYPE_CHECKING:
    from bucketq.worker.worker import Worker

# Looks live to a person, and costs little even if a handler needs the whole CPU.
_DRAWINGS_PER_S = 4
# The rate is averaged over this time: long enough to be steady, short enough to follow a change.
_WINDOW_S = 5.0
_SAMPLE_S = 0.5
# How often the queue is asked for its counts, which may be a request to the store.
_STATS_S = 4.0


class Rate:
    """A rate per second over the last few seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, count: int) -> float:
        """Record the current count, and return the rate."""
        samples = self._samples
        if not samples or now_s - samples[-1][0] >= _SAMPLE_S:
            samples.append((now_s, count))
        while now_s - samples[0][0] > _WINDOW_S and len(samples) > 1:
            samples.popleft()
        since_s, before = samples[0]
        return (count - before) / (now_s - since_s) if now_s > since_s else 0.0


class WorkerStatusLine:
    """The status line; shows nothing if stderr is not a terminal, or if it is not wanted."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_shown = is_wanted and sys.stderr.isatty()
        self._worker: Worker | None = None
        self._kinds: tuple[str, ...] = ()
        self._queued: int | None = None
        self._rate = Rate()
        self._console: Any = None
        self._live: Any = None

    def __enter__(self) -> Self:
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
                # Drawn at once: until there is a line, a log line that is printed while the thread
                # draws the first one would not go above it.
                self._live.start(refresh=True)
                # rich hides the cursor, and a worker that is killed could not show it again.
                console.show_cursor(show=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Print a line above this one."""
        if self._live is None:
            to_stderr(text)
            return
        from rich.text import Text

        self._console.print(Text(text), soft_wrap=True)

    async def follow(self, worker: Worker, kinds: tuple[str, ...]) -> None:
        """Show what a worker does, and how many jobs of these kinds are queued, until cancelled."""
        self._worker, self._kinds = worker, kinds
        while self._live is not None:
            if worker.is_ready:
                try:
                    stats = await worker.stats()
                except UnavailableError:
                    self._queued = None
                except BucketQError:
                    return  # Its token has no right to read, or the worker is ending.
                else:
                    by_kind = [stats.counts.get(kind, {}) for kind in kinds]
                    self._queued = sum(counts.get("queued", 0) for counts in by_kind)
            await asyncio.sleep(_STATS_S if worker.is_ready else _SAMPLE_S)

    def _draw(self) -> Any:
        from rich.text import Text

        return Text(self._text(), no_wrap=True, overflow="ellipsis")

    def _text(self) -> str:
        worker = self._worker
        if worker is None:
            return ""
        if not worker.is_ready:
            return "connecting to the queue"
        counters = worker.counters
        done, retried, dead = (counters.count(end) for end in ("done", "retried", "dead"))
        rate = self._rate.note(self._console.get_time(), done + retried + dead)
        parts = [
            f"running {counters.running}/{worker.slots}, waiting {counters.waiting}",
            f"{done:,} done, {retried:,} retried, {dead:,} dead",
            f"{rate:,.1f} jobs/s",
        ]
        if self._queued is not None:
            parts.append(f"{self._queued:,} queued")
        return " | ".join(parts)
