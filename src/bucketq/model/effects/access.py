"""Who may do what: granting and revoking tokens, and which right an operation needs.

``apply`` itself checks no rights: a process that can write the object needs no token. Brokers call
``may`` before they accept an operation of a client.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime, timedelta
from hmac import compare_digest

from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, KeyConflictError, RejectedError
from bucketq.model import check, job_batches, limits, schedules
from bucketq.model import numbered_batches as batches
from bucketq.model import operations as ops
from bucketq.model.operations import Configure, GrantToken, ReadTokens, RevokeToken
from bucketq.model.requests.stateless_checks import check_rights, check_token_id, check_token_name
from bucketq.model.results import Wait
from bucketq.model.side_objects import KeepObject, PutPart, ReadPart, StageObject
from bucketq.model.state import State
from bucketq.model.tokens import RIGHTS, Right, TokenInfo, TokenRecord
from bucketq.model.worker_records import Announce, ReadWorkers

_DIGEST = r"[0-9a-f]{64}"

_OPERATIONS: dict[Right, tuple[type, ...]] = {
    "push": (
        *(ops.Push, batches.Publish),
        *(job_batches.OpenBatch, job_batches.CloseBatch, job_batches.CancelBatch),
    ),
    "read": (
        *(ops.Get, ops.List, ops.ReadStats, ops.ReadSnapshot, batches.ReadConsumers, Wait),
        *(schedules.ReadSchedules, limits.ReadLimits, job_batches.ReadBatches, ReadWorkers),
        *ops.HISTORY_READS,
    ),
    "claim": (
        *(ops.Claim, ops.Heartbeat, ops.Complete, ops.CompleteMany, ops.Fail),
        *(ops.Release, ops.ReleaseMany, ops.Withdraw, Announce),
        *(batches.OpenConsumer, batches.ClaimBatch, batches.PrepareBatch, batches.ReadBatch),
        *(batches.AckBatch, batches.ReleaseBatch, batches.SettleBatch),
    ),
}
_TRANSFERS = (StageObject, PutPart, KeepObject)
_NEEDS = {operation: right for right, allowed in _OPERATIONS.items() for operation in allowed}


def right_of(operation: object) -> Right | None:
    """The right that an operation needs; None: every token has it.

    An operation that is not listed needs ``admin``, so that a new one is closed until it is listed.
    """
    if isinstance(operation, Configure) and not operation.changes:
        return None  # Workers need to know how long a lease is.
    if isinstance(operation, _TRANSFERS):
        return "claim" if operation.content == "result" else "push"
    if isinstance(operation, ReadPart):
        return "claim" if operation.lease else "read"  # The lease is checked when it is answered.
    return _NEEDS.get(type(operation), "admin")


def missing_right(rights: Collection[Right], operation: object) -> Right | None:
    """A right that an operation needs beside these; None: they allow it, as ``admin`` does all."""
    if "admin" in rights:
        return None
    needed = right_of(operation)
    if needed is not None and needed not in rights:
        return needed
    return "push" if "push" not in rights and _has_follow_ups(operation) else None


def may(rights: Collection[Right], operation: object) -> bool:
    """Whether these rights allow an operation; ``admin`` allows everything."""
    return missing_right(rights, operation) is None


def _has_follow_ups(operation: object) -> bool:
    """Whether an operation of a worker pushes jobs, too."""
    if isinstance(operation, ops.CompleteMany):
        return any(each.follow_ups for each in operation.jobs)
    return isinstance(operation, ops.Complete) and bool(operation.follow_ups)


def find_token(state: State, token_id: str, now: datetime) -> TokenRecord | None:
    """The token with this id if it is valid now, or None."""
    token = state.tokens.get(token_id)
    return token if token is not None and token.is_live(now) else None


def grant(state: State, operation: GrantToken, now: datetime) -> TokenInfo:
    """Add a token; from the first one on, brokers require tokens. It is idempotent."""
    _check(operation)
    known = state.tokens.get(operation.id)
    if known is not None:
        if compare_digest(known.digest, operation.digest):
            return known.info()
        raise KeyConflictError(f"the id {operation.id} belongs to another token; make a new token")
    live = sum(token.is_live(now) for token in state.tokens)
    if live >= state.settings.max_tokens:
        raise RejectedError(
            f"too many tokens: the queue has {live:,}, {state.settings.max_tokens:,} are allowed "
            "(max_tokens); revoke those that are not used"
        )
    token = TokenRecord(
        id=operation.id,
        seq=state.tokens.next_seq,
        name=operation.name,
        digest=operation.digest,
        rights=tuple(right for right in RIGHTS if right in operation.rights),
        created_at=now,
        expires_at=now + timedelta(seconds=operation.ttl_s) if operation.ttl_s else None,
    )
    state.put_row(token)
    if not live and not state.settings.require_token:
        state.settings = replace(state.settings, require_token=True)
        state.touch_head()
    return token.info()


def remember_grant(_operation: GrantToken, answer: TokenInfo) -> str:
    """Keep which token was granted; the record is in the object already."""
    return answer.id


def recall_grant(state: State, operation: GrantToken, stored: str) -> TokenInfo:
    """Answer a retried grant, if it comes with the same token and that is still there."""
    token = state.tokens.get(stored)
    if token is None:
        raise RejectedError(f"token {stored} was granted, and has expired or been revoked since")
    if not compare_digest(token.digest, operation.digest):
        raise KeyConflictError(
            f"the request has granted token {stored}, of which the text is lost; "
            "revoke it, and make a new token with a new request"
        )
    return token.info()


def revoke(state: State, operation: RevokeToken, now: datetime) -> bool:
    """Revoke a token. Brokers still require tokens, even after the last one was revoked."""
    check_token_id(operation.id)
    del now  # By another clock it may still be valid, so it is revoked in any case.
    if operation.id not in state.tokens:
        return False
    state.forget("tokens", operation.id)
    return True


def read_tokens(state: State, _operation: ReadTokens, now: datetime) -> tuple[TokenInfo, ...]:
    """Return the valid tokens, in the order in which they were granted."""
    return tuple(token.info() for token in state.tokens if token.is_live(now))


def _check(operation: GrantToken) -> None:
    check_token_id(operation.id)
    check_token_name(operation.name)
    if not isinstance(operation.digest, str) or not re.fullmatch(_DIGEST, operation.digest):
        raise InvalidRequestError("a token's digest must be a SHA-256 of 64 hexadecimal digits")
    check_rights(operation.rights)
    check.delay(operation.ttl_s, "ttl_s")
