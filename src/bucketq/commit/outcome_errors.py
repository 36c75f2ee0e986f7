"""Errors of committers: closed, or an unknown outcome with a token for a safe retry."""

from __future__ import annotations

from bucketq.commit.request_ids import token_of
from bucketq.errors import ClosedError, NotDurableError, UnavailableError
from bucketq.model.operations import READS, Request


def closed(where: str) -> ClosedError:
    """The queue takes no more requests."""
    return ClosedError(f"the queue {where} is closed: connect again")


def unanswered(
    where: str, limit: str, why: object, request: Request, version: int
) -> UnavailableError:
    """A request got no certain answer within ``limit``; ``version`` was the newest one then."""
    reason = f" ({why})" if why else ""
    if isinstance(request.operation, READS):
        return UnavailableError(f"{where} could not be read {limit}{reason}: try again")
    message = (
        f"{where} gave no certain answer {limit}{reason}: the outcome is unknown; "
        "try again with the same request"
    )
    return UnavailableError(message, request=token_of(request, version))


def rejected_repeat(where: str, request: Request, error: Exception) -> UnavailableError:
    """A repeated request was rejected before it was compared with those that took effect."""
    message = (
        f"{where} rejected a repeated request, whose first try may have taken effect: "
        f"{error}. The outcome is unknown; try again with the same request"
    )
    return UnavailableError(message, request=token_of(request, 0))


def not_durable(error: NotDurableError, request: Request, version: int) -> NotDurableError:
    """A request was written and could not be made durable: a power failure may lose it."""
    return NotDurableError(str(error), request=token_of(request, version))
