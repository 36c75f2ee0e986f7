"""Access tokens as their rules define them: a part of the reference."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from bucketq.errors import KeyConflictError, RejectedError
from bucketq.model.operations import GrantToken, RevokeToken
from bucketq.model.settings import Settings
from bucketq.model.tokens import RIGHTS, TokenInfo
from tests.unit.model.reference_turns import TurnReference

Row = dict[str, Any]


class TokenReference(TurnReference):
    """The tokens of a queue, and whether brokers ask for them."""

    settings: Settings

    def __init__(self) -> None:
        """Begin without tokens."""
        super().__init__()
        self.tokens: dict[str, Row] = {}

    def good_tokens(self, now: datetime) -> tuple[TokenInfo, ...]:
        """What a listing shows."""
        return tuple(_info(row) for row in self.tokens.values() if not _has_expired(row, now))

    def grant_again(self, operation: GrantToken, answer: TokenInfo) -> TokenInfo:
        """Answer a grant that comes again."""
        row = self.tokens.get(answer.id)
        if row is None:
            raise RejectedError
        if row["digest"] != operation.digest:
            raise KeyConflictError
        return _info(row)

    def drop_expired_tokens(self, now: datetime) -> int:
        """Drop what has expired; return how many."""
        expired = [name for name, row in self.tokens.items() if _has_expired(row, now)]
        for name in expired:
            del self.tokens[name]
        return len(expired)

    def _granttoken(self, operation: GrantToken, now: datetime, _seen: object) -> TokenInfo:
        known = self.tokens.get(operation.id)
        if known is not None:
            if known["digest"] != operation.digest:
                raise KeyConflictError
            return _info(known)
        good = len(self.good_tokens(now))
        if good >= self.settings.max_tokens:
            raise RejectedError
        if good == 0:
            self.settings = msgspec.structs.replace(self.settings, require_token=True)
        self.tokens[operation.id] = {
            "id": operation.id,
            "name": operation.name,
            "digest": operation.digest,
            "rights": tuple(sorted(set(operation.rights), key=RIGHTS.index)),
            "created_at": now,
            "expires_at": now + timedelta(seconds=operation.ttl_s) if operation.ttl_s else None,
        }
        return _info(self.tokens[operation.id])

    def _revoketoken(self, operation: RevokeToken, _now: datetime, _seen: object) -> bool:
        return self.tokens.pop(operation.id, None) is not None


def _has_expired(row: Row, now: datetime) -> bool:
    return row["expires_at"] is not None and row["expires_at"] <= now


def _info(row: Row) -> TokenInfo:
    return TokenInfo(**{name: value for name, value in row.items() if name != "digest"})
