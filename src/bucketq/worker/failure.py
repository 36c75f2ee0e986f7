"""The recorded text of a handler's error: the error and its traceback, within a limit."""

from __future__ import annotations

import traceback

from bucketq.errors import PayloadTooLargeError
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, Snooze, UnfitPayload

_CUT = "[...]\n"
_MOST_CAUSES = 5
"""Chains may be circular or very long."""
_OWN = ("bucketq/worker/", "bucketq/spark/")


def describe(error: BaseException, limit_bytes: int) -> str:
    """The error on the first line, then its traceback, the innermost calls if not all fit.

    ``Retry``, ``GiveUp`` and the like are recorded by their reason alone.
    """
    if isinstance(error, Retry | Snooze | GiveUp | UnfitPayload | HandlerFailed):
        return _cut(_clean(_words(error) or type(error).__name__), limit_bytes)
    summary = _clean(f"{type(error).__name__}: {_words(error)}".removesuffix(": "))
    lines = _lines(error)
    cause = _cause(error)
    for _ in range(_MOST_CAUSES):
        if cause is None:
            break
        text = f"{type(cause).__name__}: {_clean(_words(cause))}".removesuffix(": ")
        lines += [f"caused by {text}\n", *_lines(cause)]
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
    """The type of an error, even if it was raised in another process."""
    return (isinstance(error, HandlerFailed) and error.type_name) or type(error).__name__


def unkept(error: Exception, *, has_pushed: bool = False) -> str:
    """The recorded text if a handler returned a result that cannot be stored."""
    what = "result or follow-up jobs" if has_pushed else "result"
    text = f"the handler returned, but its {what} cannot be stored: {_words(error)}"
    if has_pushed or isinstance(error, PayloadTooLargeError):
        return text  # It says what to do.
    return f"{text}; return JSON values, bytes, a dataclass or the like"


def _lines(error: BaseException) -> list[str]:
    """The traceback of an error, without the frames of this package."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(own in frame.filename.replace("\\", "/") for own in _OWN)
    ]
    return traceback.format_list(frames)


def _cause(error: BaseException) -> BaseException | None:
    """The cause or the context of an error."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _words(error: BaseException) -> str:
    """The message of an error, or a placeholder if ``str`` raises."""
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 - the user's code may raise anything
        return f"(its message cannot be shown: {type(other).__name__})"


def _clean(text: str) -> str:
    """Escape what JSON cannot encode, like surrogates in a file name."""
    return text.encode(errors="backslashreplace").decode()


def _cut(text: str, limit_bytes: int) -> str:
    raw = text.encode()
    return text if len(raw) <= limit_bytes else raw[:limit_bytes].decode(errors="ignore")
