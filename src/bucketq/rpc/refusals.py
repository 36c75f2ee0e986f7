"""Converts errors to ``Refusal`` messages and back.

An error of ``bucketq.errors`` keeps its class. A class that this side does not know, because the
other is newer, becomes ``UnavailableError``. So does an unexpected exception in the broker, because
what it had done by then is unknown.
"""

from __future__ import annotations

from bucketq import errors
from bucketq.rpc.messages import Refusal

_KNOWN: dict[str, type[errors.BucketQError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.BucketQError)
}


def refusal_of(error: Exception) -> Refusal:
    """Convert an error to a message."""
    if isinstance(error, errors.BucketQError):
        # The nearest class that is part of the protocol.
        kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _KNOWN)
        return Refusal(
            kind=kind,
            message=str(error),
            retry_after_s=getattr(error, "retry_after_s", None),
            leader=getattr(error, "leader", None),
            is_repeatable=getattr(error, "request", None) is not None,
        )
    message = f"the broker failed with {type(error).__name__}: {error}; see its log"
    return Refusal(kind="UnavailableError", message=message)


def kind_of(refusal: Refusal) -> type[errors.BucketQError]:
    """Return the class of a refusal's error."""
    return _KNOWN.get(refusal.kind, errors.UnavailableError)


def error_of(refusal: Refusal) -> errors.BucketQError:
    """Convert a message to an error."""
    kind = kind_of(refusal)
    if issubclass(kind, errors.OverloadedError):
        return kind(refusal.message, retry_after_s=refusal.retry_after_s or 0.0)
    if issubclass(kind, errors.SupersededError):
        return kind(refusal.message, leader=refusal.leader)
    return kind(refusal.message)
