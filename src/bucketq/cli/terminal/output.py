"""The output of a command: results on stdout, everything else on stderr.

Results are for people by default (tables as wide as the terminal) and for programs with
``--json``. Control characters in text from jobs are escaped, so that a payload cannot send escape
sequences to the terminal.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from bucketq.cli.terminal.text_table import Column, TextTable
from bucketq.clock import SystemClock

_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}
T = TypeVar("T")

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def flush_each_line() -> None:
    """Flush stdout after each line, even if it is a file or a pipe.

    Otherwise a program that waits for a line of a long-running command, like the address that
    `serve` prints, waits until the buffer is full. It costs about a microsecond per line, less
    than encoding it.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


class Output:
    """Prints the results, notes and errors of a command."""

    def __init__(self, *, json: bool, quiet: bool, debug: bool, timeout_s: float) -> None:
        self.json = json
        self.quiet = quiet
        self.debug = debug
        self.timeout_s = timeout_s
        self.after_interrupt = "running it again is safe"
        """What the message after Ctrl-C says about the outcome."""
        self.json_errors = json
        """Whether errors and the log are JSON."""
        self.json_notes = False
        """Whether all that goes to stderr is JSON with the fields of a log: --log-format json."""

    def result(self, text: str, value: object) -> None:
        """Print a result: as text, or with --json as a value."""
        if self.json:
            self.value(value)
        else:
            print(printable(text))

    def done(self, text: str, value: object) -> None:
        """Confirm what was done; --quiet silences the text."""
        if self.json or not self.quiet:
            self.result(text, value)

    def value(self, value: object) -> None:
        """Print a value as one line of JSON."""
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")

    def note(self, text: str) -> None:
        """Print a remark on stderr, unless --quiet."""
        if self.json_notes and not self.quiet:
            print(_log_line("info", event=text), file=sys.stderr)
        elif not self.quiet:
            print(printable(text), file=sys.stderr)

    def error(self, text: str, **fields: object) -> None:
        """Report an error: a sentence, or with --json an object."""
        if self.json_notes:
            print(_log_line("error", event="failed", error=text, **fields), file=sys.stderr)
        elif self.json_errors:
            line = msgspec.json.encode({"error": text, **fields}).decode()
            print(line, file=sys.stderr)
        else:
            print(printable(f"bucketq: {text}"), file=sys.stderr)

    def table(
        self, columns: Sequence[Column], rows: Iterable[Sequence[object]] | None = None
    ) -> TextTable:
        """Print a table with these rows, or return one to write them to page by page."""
        table = TextTable(columns, one_line)
        if rows is not None:
            table.write(rows)
        return table

    def records(
        self, columns: Sequence[Column], records: Iterable[T], row: Callable[[T], Sequence[object]]
    ) -> None:
        """Print records: as a table, or with --json one per line."""
        if self.json:
            for record in records:
                self.value(record)
        else:
            self.table(columns, map(row, records))


def _log_line(level: str, **fields: object) -> str:
    """Return a line as the log has them."""
    at = log_moment(SystemClock().now())
    common = {"time": at, "level": level, "pid": os.getpid()}
    return msgspec.json.encode({**common, **fields}).decode()


def log_moment(at: datetime) -> str:
    """Return a time as the log shows it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Escape control characters."""
    return text.translate(_CONTROLS).encode(errors="backslashreplace").decode()


def one_line(value: object) -> str:
    """A cell of a table."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return moment(value)
    return printable(str(value).replace("\n", "\\n").replace("\t", " "))


def moment(value: datetime) -> str:
    """A time in UTC, to the second."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{seconds:.0f}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02d}h"


def age(since: datetime, now: datetime) -> str:
    """How long ago a moment was; never negative, even if a clock is behind."""
    return duration(max(timedelta(), now - since).total_seconds())


def size(count_bytes: float) -> str:
    """A size in the largest unit that suits."""
    for unit in ("B", "KiB", "MiB"):
        if count_bytes < 1024:  # noqa: PLR2004 - bytes in a KiB
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} GiB"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def counted_jobs(by_status: Mapping[str, int]) -> str:
    """The number of jobs, in all and by status."""
    parts = ", ".join(f"{count:,} {status}" for status, count in by_status.items())
    return counted(sum(by_status.values()), "job") + (f" ({parts})" if parts else "")


def plain(value: Any) -> Any:
    """A record as JSON has it: payloads and results as values, absent fields left out."""
    return msgspec.json.decode(msgspec.json.encode(value))
