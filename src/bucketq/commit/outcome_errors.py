"""Errors for requests that may or may not have taken effect, with a token for a safe retry."""

from __future__ import annotations

from bucketq.commit.request_ids import token_of
from bucketq.errors import NotDurableError, UnavailableError
from bucketq.model.operations import READS, Request


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
    """A request that was sent before is rejected now, by something that knows nothing of before."""
    message = (
        f"{where} rejected a repeated request, whose first try may have taken effect: "
        f"{error}. The outcome is unknown; try again with the same request"
    )
    return UnavailableError(message, request=token_of(request, 0))


def not_durable(error: NotDurableError, request: Request, version: int) -> NotDurableError:
    """A request was written and could not be made durable: a power failure may lose it."""
    return NotDurableError(str(error), request=token_of(request, version))
