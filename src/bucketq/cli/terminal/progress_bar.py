"""A progress bar for long commands, shown if stderr is a terminal."""

from __future__ import annotations

import sys
from typing import Any, Self

from bucketq.cli.terminal.output import Output


class Bar:
    """Counts up to a total, or just counts if the total is unknown."""

    def __init__(self, out: Output, total: int | None, noun: str) -> None:
        """Show nothing if stderr is not a terminal, or with --quiet or --json."""
        self._is_shown = sys.stderr.isatty() and not out.quiet and not out.json
        self._total = total
        self._noun = noun
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._is_shown:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(f"{self._noun}s"),
                TimeElapsedColumn(),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, what: str, done: int) -> None:
        """Begin a stage, with ``done`` items done already."""
        if self._progress is not None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(what, total=self._total, completed=done)

    def show(self, done: int, total: int | None = None) -> None:
        """Show how many items are done, and the total once it is known."""
        if self._progress is not None:
            self._total = total or self._total
            self._progress.update(self._task, completed=done, total=self._total)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self._progress is not None:
            self._progress.console.print(text)
        else:
            print(text, file=sys.stderr)

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
