"""The verbs for access tokens: create, list, revoke.

A token is made here, by whoever will hand it on, and only its digest goes to the queue: no broker,
no storage and no listing ever holds the token itself. So it can be read once, from the answer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from datetime import timedelta
from hmac import digest
from typing import Any, cast

from bucketq.clock import Clock
from bucketq.commit.request_ids import RequestId, RequestIds, parse_token
from bucketq.errors import InvalidRequestError
from bucketq.model import access, check
from bucketq.model import operations as ops
from bucketq.model.tokens import (
    ID_BYTES,
    SECRET_BYTES,
    Right,
    TokenInfo,
    token_digest,
    token_text,
)
from bucketq.queue.host import Host


class TokenVerbs(Host):
    """The part of the ``Queue`` protocol that is about tokens."""

    _ids: RequestIds

    def __init__(self, where: str, clock: Clock, *, timeout_s: float) -> None:
        """Make the verbs of a queue."""
        super().__init__(where, clock, timeout_s=timeout_s)
        self._token_key = b""

    @abstractmethod
    async def _do(self, operation: ops.AnyOperation, token: str | None) -> Any:
        """Give an operation its id, and submit it."""

    @abstractmethod
    async def _submit_as(
        self, request_id: RequestId, operation: ops.AnyOperation, ids: RequestIds
    ) -> Any:
        """Submit an operation under an id."""

    async def create_token(
        self,
        name: str,
        rights: Right | Iterable[Right],
        *,
        ttl_s: float | timedelta | None = None,
        request: str | None = None,
    ) -> str:
        """Let in whoever shows a new token, and return it. It cannot be read again."""
        self._guard()
        access.check_token_name(name)
        several = _rights(rights)
        lifetime_s = _lifetime(ttl_s)
        request_id = self._ids.give() if request is None else parse_token(request, ops.GrantToken)
        token_id, token = self._make(request_id)
        operation = ops.GrantToken(
            id=token_id,
            name=name,
            digest=token_digest(token),
            rights=several,
            ttl_s=lifetime_s,
        )
        await self._submit_as(request_id, operation, self._ids)
        return token

    async def tokens(self) -> list[TokenInfo]:
        """Read which tokens are good, in the order in which they were created."""
        return list(await self._do(ops.ReadTokens(), None))

    async def revoke_token(self, token_id: str, *, request: str | None = None) -> bool:
        """Take a token back; return whether there was one."""
        access.check_token_id(token_id)
        return cast("bool", await self._do(ops.RevokeToken(id=token_id), request))

    def _make(self, request_id: RequestId) -> tuple[str, str]:
        """Make the id and the text of a token: the same at every try of one request.

        An answer may be lost after the token was granted. If each try made another, the caller
        would be given one that nobody knows.
        """
        if not self._token_key:
            self._token_key = self._clock.entropy(SECRET_BYTES)
        name = f"{request_id.session}/{request_id.number}".encode()
        drawn = digest(self._token_key, name, "sha512")
        token_id, secret = drawn[:ID_BYTES].hex(), drawn[-SECRET_BYTES:].hex()
        return token_id, token_text(token_id, secret)


def _rights(rights: object) -> tuple[Right, ...]:
    if isinstance(rights, str):
        several: tuple[object, ...] = (rights,)
    elif isinstance(rights, Iterable):
        several = tuple(rights)
    else:
        several = ()
    access.check_rights(several)
    return cast("tuple[Right, ...]", several)


def _lifetime(ttl_s: float | timedelta | None) -> float:
    """How many seconds a token is good for; 0 where it is for ever."""
    if ttl_s is None:
        return 0.0
    seconds = ttl_s.total_seconds() if isinstance(ttl_s, timedelta) else ttl_s
    check.delay(seconds, "ttl_s")
    if not seconds:
        message = "ttl_s must be more than 0 seconds; leave it out for a token that never expires"
        raise InvalidRequestError(message)
    return float(seconds)
