"""The text that is recorded of a handler's error: what it was, and where, within a limit."""

from __future__ import annotations

import traceback

from bucketq.errors import PayloadTooLargeError
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, UnfitPayload

_CUT = "[...]\n"
_MOST_CAUSES = 5
_OWN = ("bucketq/worker/", "bucketq/spark/")


def describe(error: BaseException, limit_bytes: int) -> str:
    """The error on the first line, then its traceback, the innermost calls if not all fit.

    What a handler raises to say what it wants is told by its reason alone.
    """
    if isinstance(error, Retry | GiveUp | UnfitPayload | HandlerFailed):
        return _cut(_clean(_words(error) or type(error).__name__), limit_bytes)
    summary = _clean(f"{type(error).__name__}: {_words(error)}".removesuffix(": "))
    lines = _lines(error)
    cause = _cause(error)
    for _ in range(_MOST_CAUSES):
        if cause is None:
            break
        told = f"{type(cause).__name__}: {_clean(_words(cause))}".removesuffix(": ")
        lines += [f"caused by {told}\n", *_lines(cause)]
        cause = _cause(cause)
    head = _cut(summary, limit_bytes // 2 if lines else limit_bytes)
    left = limit_bytes - len(head.encode()) - len(_CUT) - 1
    kept: list[str] = []
    for line in reversed([_clean(line) for line in lines]):
        left -= len(line.encode())
        if left < 0:
            kept.append(_CUT)
            break
        kept.append(line)
    return "\n".join(filter(None, (head, "".join(reversed(kept)).rstrip("\n"))))


def name_of(error: BaseException) -> str:
    """The type of an error, also of one that was raised in another process."""
    return (isinstance(error, HandlerFailed) and error.type_name) or type(error).__name__


def unkept(error: Exception) -> str:
    """What is recorded where a handler is done, and the queue cannot keep what it returned."""
    text = f"the handler is done, but its result cannot be kept: {_words(error)}"
    if isinstance(error, PayloadTooLargeError):
        return text  # It tells what to do.
    return f"{text}; let it return JSON, bytes, a dataclass or the like"


def _lines(error: BaseException) -> list[str]:
    """Where an error was raised, without what is ours of that way."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(own in frame.filename.replace("\\", "/") for own in _OWN)
    ]
    return traceback.format_list(frames)


def _cause(error: BaseException) -> BaseException | None:
    """What an error was raised for, or while it was handled."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _words(error: BaseException) -> str:
    """What an error says; it may fail at that, and its job is to be told of all the same."""
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 - a handler's own code, whatever it raises
        return f"(what it says cannot be told: {type(other).__name__})"


def _clean(text: str) -> str:
    """Text that JSON can hold: a file name may not be."""
    return text.encode(errors="backslashreplace").decode()


def _cut(text: str, limit_bytes: int) -> str:
    raw = text.encode()
    return text if len(raw) <= limit_bytes else raw[:limit_bytes].decode(errors="ignore")
