"""The log of ``bucketq work`` and ``bucketq serve``: one line per event, as text or JSON.

Logs name jobs but never include payloads or results. Of a handler's error they show only the type,
because the message may quote a payload; ``work`` adds tracebacks with --debug. Only the logger
``bucketq`` is configured; the rest of the user's logging configuration stays as it is.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from bucketq.cli.parameters import option
from bucketq.cli.terminal.output import Output, printable
from bucketq.errors import InvalidRequestError

Format = Literal["text", "json"]
LogFormat = Annotated[
    str, option("--log-format text|json", "Format of the log on stderr; json with --json.")
]

_LOGGER = "bucketq"


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
        if self.worker:
            facts["worker"] = self.worker
        if trace := self._traceback(record):
            facts["traceback"] = trace
        fields = {"time": _moment(record), "level": record.levelname.lower(), **facts}
        return msgspec.json.encode(fields).decode()

    def _traceback(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info and self._tracebacks else None
        return "" if error is None else "".join(traceback.format_exception(error)).rstrip()


def choose_format(text: str, out: Output) -> Format:
    """Parse --log-format, and report errors in that format, as they go to stderr as well."""
    if text not in {"", "text", "json"}:
        raise InvalidRequestError(f"--log-format must be text or json, got {text!r}")
    form: Format = "json" if text == "json" or (out.json and not text) else "text"
    out.json_errors = form == "json"
    return form


def log_to(lines: LineHandler, *, quiet: bool, debug: bool) -> None:
    """Add the handler to bucketq's logger, unless the user's module has added one."""
    log = logging.getLogger(_LOGGER)
    if debug or quiet:
        log.setLevel(logging.DEBUG if debug else logging.WARNING)
    elif log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
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
    made = datetime.fromtimestamp(record.created, UTC)
    return made.isoformat(timespec="milliseconds").replace("+00:00", "Z")
