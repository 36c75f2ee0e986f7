"""Tables for people, printed page by page, so that a long one starts at once.

On a terminal a table fits its width: cells of flexible columns are truncated, and columns are
dropped in a fixed order, the identifying ones last. In a file or a pipe nothing is truncated.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

# Spaces between columns: one would look like a space within a cell.
_GAP = 2
# The least width of a flexible cell; fewer characters would say nothing.
_NARROWEST = 12
# The least width of a wrapped cell: room for two or three words per line.
_NARROWEST_WRAPPED = 20
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Column(Struct, frozen=True):
    """A column of a table, and how it adapts to a narrow terminal.

    A flexible column is truncated, one that wraps takes several lines, and one with a ``drop`` is
    left out, the highest first. Any other keeps its width. ``usual`` is how wide the cells of later
    pages may be, so that a list that is written line by line stays aligned.
    """

    title: str
    flexible: bool = False
    right: bool = False
    wraps: bool = False
    drop: int = 0
    usual: int = 0

    @property
    def narrowest(self) -> int:
        """The least width to which it may be reduced."""
        return max(_NARROWEST_WRAPPED if self.wraps else _NARROWEST, len(self.title))


class TextTable:
    """A table on stdout. Its columns grow with the cells of later pages, and never shrink.

    ``show`` turns a value into the text of its cell.
    """

    def __init__(self, columns: Sequence[Column], show: Callable[[object], str]) -> None:
        self._columns = list(columns)
        self._places = list(range(len(columns)))
        """Which cells of a row are shown."""
        self._show = show
        self._widths = [max(len(column.title), column.usual) for column in columns]
        self._has_header = False
        self._is_terminal = sys.stdout.isatty()

    def write(self, rows: Iterable[Sequence[object]]) -> None:
        """Write rows, after the titles if these are the first."""
        shown = [[self._show(row[place]) for place in self._places] for row in rows]
        for row in shown:
            for place, cell in enumerate(row):
                if (width := _width(cell)) > self._widths[place]:
                    self._widths[place] = width
        limit = shutil.get_terminal_size().columns if self._is_terminal else None
        widths = fit(self._columns, self._widths, limit)
        lines: list[str] = []
        if not self._has_header:
            [header] = self._lines([column.title for column in self._columns], widths)
            lines.append(f"{_BOLD}{header}{_PLAIN}" if self._is_bold() else header)
        for row in shown:
            lines += self._lines(row, widths)
        if not self._has_header:
            self._has_header = True
            self._keep([place for place, width in enumerate(widths) if width])
        if lines:
            print("\n".join(lines))

    def _keep(self, places: list[int]) -> None:
        """Fix the columns to show: after the titles they no longer change."""
        self._places = places
        self._columns = [replace(self._columns[place], drop=0) for place in places]
        self._widths = [self._widths[place] for place in places]

    def _is_bold(self) -> bool:
        return self._is_terminal and os.environ.get("TERM", "dumb") != "dumb"

    def _lines(self, row: Sequence[str], widths: Sequence[int]) -> list[str]:
        """A row: one line, or several if a cell is wrapped."""
        cells: list[list[str]] = []
        for column, cell, width in zip(self._columns, row, widths, strict=True):
            if not width:
                continue
            if _width(cell) <= width:
                parts = [cell]
            elif column.wraps:
                parts = textwrap.wrap(cell, width)
            else:
                parts = [_cut(cell, width)]
            cells.append([_padded(part, width, right=column.right) for part in parts])
        height = max(map(len, cells))
        kept = [width for width in widths if width]
        return [
            (" " * _GAP)
            .join(
                parts[number] if number < len(parts) else " " * width
                for parts, width in zip(cells, kept, strict=True)
            )
            .rstrip()
            for number in range(height)
        ]


def fit(columns: Sequence[Column], widths: Sequence[int], limit: int | None) -> list[int]:
    """Compute the width of each column to fit the limit; 0 means left out.

    Flexible columns are reduced from right to left. If that does not suffice, a column is dropped.
    """
    if limit is None:
        return list(widths)
    droppable = [place for place, column in enumerate(columns) if column.drop]
    droppable.sort(key=lambda place: -columns[place].drop)
    found: list[int] = []
    for count in range(len(droppable) + 1):
        dropped = set(droppable[:count])
        found = [0 if place in dropped else width for place, width in enumerate(widths)]
        excess = sum(found) + _GAP * (len(found) - count - 1) - limit
        for place in reversed(range(len(columns))):
            if excess > 0 and (columns[place].flexible or columns[place].wraps):
                spare = max(0, min(excess, found[place] - columns[place].narrowest))
                found[place] -= spare
                excess -= spare
        if excess <= 0:
            break
    return found


def _width(text: str) -> int:
    """The width of a text on a terminal, on which some characters take two cells."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    if text.isascii():
        return f"{text[: width - 1]}…"
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, width - 1)}…"


def _padded(text: str, width: int, *, right: bool) -> str:
    padding = " " * (width - _width(text))
    return padding + text if right else text + padding
