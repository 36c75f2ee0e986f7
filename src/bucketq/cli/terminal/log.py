"""The log of ``bucketq work`` and ``bucketq serve``: one line for each event, as text or as JSON.

It names jobs, and never includes what is in them: no payloads, no results, and of a handler's error
only the type, because the message may quote a payload; ``work`` adds tracebacks with --debug. Only
the logger ``bucketq`` is touched, so that whatever else the user's module has configured stays.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
import typer

from bucketq.cli.terminal.output import Output, printable
from bucketq.errors import InvalidRequestError

Format = Literal["text", "json"]
LogFormat = Annotated[
    str,
    typer.Option("--log-format", metavar="text|json", help="How to log to stderr; --json: json."),
]

_LOGGER = "bucketq"


class Lines(logging.Handler):
    """Writes records as lines."""

    def __init__(self, form: Format, say: Callable[[str], None], *, tracebacks: bool) -> None:
        """Give each line to ``say``."""
        super().__init__()
        self.worker = ""
        """The name of the worker, once it is known."""
        self._form = form
        self._say = say
        self._tracebacks = tracebacks

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; pass it on to handlers of the user that do not write to the terminal."""
        try:
            self._say(self._json(record) if self._form == "json" else self._text(record))
        except Exception:  # noqa: BLE001 - logging says how its own failures are told
            self.handleError(record)
        for handler in logging.getLogger().handlers:
            if not _is_console(handler) and record.levelno >= handler.level:
                handler.handle(record)

    def _facts(self, record: logging.LogRecord) -> dict[str, object]:
        """What is told beside time and level, the event first."""
        facts = dict(getattr(record, "bucketq", None) or {"event": record.getMessage()})
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            facts.setdefault("error", type(error).__name__)
        return facts

    def _text(self, record: logging.LogRecord) -> str:
        facts = self._facts(record)
        event = facts.pop("event")
        fields = "".join(f" {name}={value}" for name, value in facts.items())
        line = f"{_moment(record)} {record.levelname.lower()} {event}{fields}"
        return printable("\n".join(filter(None, (line, self._traceback(record)))))

    def _json(self, record: logging.LogRecord) -> str:
        facts = self._facts(record)
        if self.worker:
            facts["worker"] = self.worker
        if trace := self._traceback(record):
            facts["traceback"] = trace
        told = {"time": _moment(record), "level": record.levelname.lower(), **facts}
        return msgspec.json.encode(told).decode()

    def _traceback(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info and self._tracebacks else None
        return "" if error is None else "".join(traceback.format_exception(error)).rstrip()


def choose_format(text: str, out: Output) -> Format:
    """Read --log-format, and report errors in the same format: they go to stderr as well."""
    if text not in {"", "text", "json"}:
        message = f"--log-format must be text or json, got {text!r}"
        raise InvalidRequestError(message)
    form: Format = "json" if text == "json" or (out.json and not text) else "text"
    out.json_errors = form == "json"
    return form


def log_to(lines: Lines, *, quiet: bool, debug: bool) -> None:
    """Let the logger of bucketq write lines, unless the user's module has given it handlers."""
    log = logging.getLogger(_LOGGER)
    if debug or quiet:
        log.setLevel(logging.DEBUG if debug else logging.WARNING)
    elif log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    if not log.handlers:
        log.addHandler(lines)
        log.propagate = False  # A root handler that writes to the terminal would tell all twice.


def to_stderr(text: str) -> None:
    """Write a line to stderr, in one piece."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _is_console(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None)
    if stream is None:
        return False
    own = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    return any(stream is one for one in own)


def _moment(record: logging.LogRecord) -> str:
    made = datetime.fromtimestamp(record.created, UTC)
    return made.isoformat(timespec="milliseconds").replace("+00:00", "Z")
