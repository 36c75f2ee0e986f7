"""Errors on the way: an exception to a ``Refusal`` and back.

An error of ``bucketq.errors`` arrives as the class that it was. One that this side does not know
(the other is newer) arrives as what its branch of the tree means, and a fault of the other side
as *unknown*, because nobody can tell what it had done by then.
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
    """Write an error down."""
    if isinstance(error, errors.BucketQError):
        # The nearest class that the other side knows.
        kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _KNOWN)
        return Refusal(
            kind=kind,
            message=str(error),
            retry_after_s=getattr(error, "retry_after_s", None),
            leader=getattr(error, "leader", None),
            is_repeatable=getattr(error, "request", None) is not None,
        )
    message = f"the broker failed with {type(error).__name__}: {error}; its log tells more"
    return Refusal(kind="UnavailableError", message=message)


def kind_of(refusal: Refusal) -> type[errors.BucketQError]:
    """The class of an error that was written down."""
    return _KNOWN.get(refusal.kind, errors.UnavailableError)


def error_of(refusal: Refusal) -> errors.BucketQError:
    """Read an error that was written down."""
    kind = kind_of(refusal)
    if issubclass(kind, errors.OverloadedError):
        return kind(refusal.message, retry_after_s=refusal.retry_after_s or 0.0)
    if issubclass(kind, errors.SupersededError):
        return kind(refusal.message, leader=refusal.leader)
    return kind(refusal.message)
