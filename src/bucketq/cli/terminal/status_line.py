"""A status line for commands that wait, shown if stderr is a terminal."""

from __future__ import annotations

import sys
from typing import Any, Self

from bucketq.cli.terminal.output import Output


class StatusLine:
    """One line that is replaced, and removed at the end."""

    def __init__(self, out: Output, text: str) -> None:
        """Show nothing if stderr is not a terminal, or with --quiet or --json."""
        self._is_shown = sys.stderr.isatty() and not out.quiet and not out.json
        self._text = text
        self._status: Any = None

    def __enter__(self) -> Self:
        if self._is_shown:
            from rich.console import Console
            from rich.text import Text

            self._status = Console(stderr=True).status(Text(self._text))
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def show(self, text: str) -> None:
        """Replace the text."""
        if self._status is not None:
            from rich.text import Text

            self._status.update(Text(text))
