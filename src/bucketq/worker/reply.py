"""``Reply``: what came of a handler that ran in another process, on its way back.

It travels as JSON, so that nothing that comes from a job is ever unpickled. A verdict that the
handler raised there is raised here again; any other error comes as its text.
"""

from __future__ import annotations

import signal
from typing import Any, Literal

from msgspec import Raw, Struct

from bucketq.queue import payload as payloads
from bucketq.worker.failure import describe, unkept
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, UnfitPayload

ENDED = "the process that ran the handler"
"""How a failure begins that tells of a process that ended before its handler did."""
_LIMIT_BYTES = 1 << 20


class Reply(Struct, frozen=True, omit_defaults=True):
    """What came of a handler."""

    kind: Literal["done", "failed", "unfit", "retry", "give up"]
    result: Raw = Raw(b"null")
    is_bytes: bool = False
    text: str = ""
    error: str = ""
    """The type of what was raised."""
    delay_s: float = 0.0


def reply_done(result: object) -> Reply:
    """Tell what a handler returned, or that nobody could keep it."""
    try:
        raw, encoding = payloads.encode(result, "result")
    except Exception as error:  # noqa: BLE001 - encoding a value calls code of the user's
        return Reply("failed", text=unkept(error), error=type(error).__name__)
    return Reply("done", result=raw, is_bytes=encoding is not None)


def reply_failed(error: BaseException) -> Reply:
    """Tell what a handler raised."""
    if isinstance(error, UnfitPayload):
        return Reply("unfit", text=str(error))
    if isinstance(error, Retry):
        return Reply("retry", text=str(error), delay_s=error.delay_s)
    if isinstance(error, GiveUp):
        return Reply("give up", text=str(error))
    return Reply("failed", text=describe(error, _LIMIT_BYTES), error=type(error).__name__)


def value_of(reply: Reply) -> Any:
    """Return or raise what a handler did."""
    if reply.kind == "failed":
        raise HandlerFailed(reply.text, reply.error)
    if reply.kind == "unfit":
        raise UnfitPayload(reply.text)
    if reply.kind == "retry":
        raise Retry(reply.text, delay=reply.delay_s)
    if reply.kind == "give up":
        raise GiveUp(reply.text)
    encoding: Literal["base64"] | None = "base64" if reply.is_bytes else None
    return payloads.decode(reply.result, encoding, Any, "the result of a handler")


def how_it_ended(exitcode: int | None) -> str:
    """How a process ended that ran a handler, for people."""
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        return f"{ENDED} was ended by {name}"
    return f"{ENDED} ended with exit code {exitcode}"
