"""The log of the commands: one line per event, as text or JSON.

A line in JSON has ``time``, ``level``, ``pid`` and ``event``, and if they apply ``queue``,
``worker``, ``job``, ``kind``, ``attempt``, ``took_s`` and ``error``.

Logs name jobs but never include payloads or results. Of a handler's error they show only the type,
because the message may quote a payload; ``work`` adds tracebacks with --debug. Only the logger
``bucketq`` is configured; the rest of the user's logging configuration stays as it is.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from bucketq.cli.terminal.output import Output, log_moment, printable
from bucketq.errors import InvalidRequestError

Format = Literal["text", "json"]

_LOGGER = "bucketq"
_ABOUT_QUEUE = r"(?s)([a-z][a-z0-9+]*://\S+(?: \(partition \d+\))?): (.+)"
"""How messages begin that are about one queue."""


class LineHandler(logging.Handler):
    """Formats log records as lines, and passes each to ``say``."""

    def __init__(self, form: Format, say: Callable[[str], None], *, tracebacks: bool) -> None:
        super().__init__()
        self.worker = ""
        """The name of the worker, once it is known."""
        self._form = form
        self._say = say
        self._tracebacks = tracebacks

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, and pass it to root handlers that do not write to the terminal."""
        try:
            self._say(self._json(record) if self._form == "json" else self._text(record))
        except Exception:  # noqa: BLE001 - handled as logging handles its own failures
            self.handleError(record)
        for handler in logging.getLogger().handlers:
            if not _is_console(handler) and record.levelno >= handler.level:
                handler.handle(record)

    def _facts(self, record: logging.LogRecord) -> dict[str, object]:
        """The fields beside time and level, the event first."""
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
        if about := re.fullmatch(_ABOUT_QUEUE, str(facts["event"])):
            facts |= {"event": about[2], "queue": about[1]}
        if self.worker:
            facts["worker"] = self.worker
        if trace := self._traceback(record):
            facts["traceback"] = trace
        level = record.levelname.lower()
        fields = {"time": _moment(record), "level": level, "pid": record.process, **facts}
        return msgspec.json.encode(fields).decode()

    def _traceback(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info and self._tracebacks else None
        return "" if error is None else "".join(traceback.format_exception(error)).rstrip()


def choose_format(text: str, out: Output) -> None:
    """Parse --log-format, and write notes, errors and the log in that format.

    As text they are as Python's own: warnings without a time. ``serve`` and ``work`` log more.
    """
    if text not in {"", "text", "json"}:
        raise InvalidRequestError(f"--log-format must be text or json, got {text!r}")
    out.json_errors = text == "json" or (out.json and not text)
    out.json_notes = text == "json"
    if out.json_errors:
        # The level stays: what is logged below WARNING is for brokers and workers.
        _add(LineHandler("json", to_stderr, tracebacks=out.debug))


def form_of(out: Output) -> Format:
    """Return the format that was chosen."""
    return "json" if out.json_errors else "text"


def level_of(out: Output) -> int | None:
    """Return the level that --quiet and --debug ask for; None: they do not."""
    if out.debug or out.quiet:
        return logging.DEBUG if out.debug else logging.WARNING
    return None


def log_to(lines: LineHandler, *, level: int | None) -> None:
    """Add the handler to bucketq's logger, unless the user's module has added one.

    It replaces one of ``choose_format``. Without a ``level`` it is INFO, unless the user's module
    has set another.
    """
    log = logging.getLogger(_LOGGER)
    for earlier in [each for each in log.handlers if isinstance(each, LineHandler)]:
        log.removeHandler(earlier)
    if level is not None:
        log.setLevel(level)
    elif log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    _add(lines)


def _add(lines: LineHandler) -> None:
    log = logging.getLogger(_LOGGER)
    if not log.handlers:
        log.addHandler(lines)
        log.propagate = False  # A root handler on the terminal would print each line twice.


def to_stderr(text: str) -> None:
    """Write a line to stderr in one piece."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _is_console(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None)
    if stream is None:
        return False
    own = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    return any(stream is one for one in own)


def _moment(record: logging.LogRecord) -> str:
    return log_moment(datetime.fromtimestamp(record.created, UTC))
