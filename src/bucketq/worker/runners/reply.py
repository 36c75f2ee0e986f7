"""``Reply``: what a handler in another process sends: how far it has come, and its outcome.

It is sent as JSON, so that data from a job is never unpickled. ``Retry``, ``GiveUp`` and the like
are raised here again; any other exception arrives as text.
"""

from __future__ import annotations

import signal
from typing import Any, Literal

from msgspec import Raw, Struct

from bucketq.model.base import NewJob
from bucketq.model.records import Progress
from bucketq.queue import payload as payloads
from bucketq.worker.failure import describe, unkept
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, Snooze, UnfitPayload

ENDED = "the process that ran the handler"
"""The start of the error if a process ended before its handler."""
_LIMIT_BYTES = 1 << 20
"""Bounds the text of an error here; max_error_bytes of the queue is applied by ``Attempt``."""


class Reply(Struct, frozen=True, omit_defaults=True):
    """The outcome of a handler; of kind ``progress``, a report before it."""

    kind: Literal["done", "failed", "unfit", "retry", "snooze", "give up", "progress"]
    result: Raw = Raw(b"null")
    is_bytes: bool = False
    text: str = ""
    error: str = ""
    """The type of the exception."""
    delay_s: float = 0.0
    follow_ups: tuple[NewJob, ...] = ()
    """Jobs that the handler pushed; they count if it is done."""
    progress: Progress | None = None


def reply_done(result: object, follow_ups: tuple[NewJob, ...] = ()) -> Reply:
    """Reply with what a handler returned and pushed, or that it cannot be encoded."""
    try:
        raw, encoding = payloads.encode(result, "result")
    except Exception as error:  # noqa: BLE001 - encoding runs the user's code
        return Reply("failed", text=unkept(error), error=type(error).__name__)
    return Reply("done", result=raw, is_bytes=encoding is not None, follow_ups=follow_ups)


def reply_failed(error: BaseException) -> Reply:
    """Reply with what a handler raised."""
    if isinstance(error, UnfitPayload):
        return Reply("unfit", text=str(error))
    if isinstance(error, Retry):
        return Reply("retry", text=str(error), delay_s=error.delay_s)
    if isinstance(error, Snooze):
        return Reply("snooze", text=str(error), delay_s=error.delay_s)
    if isinstance(error, GiveUp):
        return Reply("give up", text=str(error))
    return Reply("failed", text=describe(error, _LIMIT_BYTES), error=type(error).__name__)


def value_of(reply: Reply) -> Any:
    """Return or raise what the handler did."""
    if reply.kind == "failed":
        raise HandlerFailed(reply.text, reply.error)
    if reply.kind == "unfit":
        raise UnfitPayload(reply.text)
    if reply.kind == "retry":
        raise Retry(reply.text, delay_s=reply.delay_s)
    if reply.kind == "snooze":
        raise Snooze(reply.delay_s, reply.text)
    if reply.kind == "give up":
        raise GiveUp(reply.text)
    encoding: Literal["base64"] | None = "base64" if reply.is_bytes else None
    return payloads.decode(reply.result, encoding, Any, "the result of a handler")


def how_it_ended(exitcode: int | None) -> str:
    """Describe how the process of a handler ended."""
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        return f"{ENDED} was ended by {name}"
    return f"{ENDED} ended with exit code {exitcode}"
