"""``TokenVerbs``: the part of ``Queue`` that creates, lists and revokes access tokens.

A token is made in the process that requests it, and only its digest is sent to the queue: no
broker, storage or listing ever holds the token itself. So it is returned once, and cannot be read
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from hmac import digest
from typing import cast

from bucketq.commit.request_ids import RequestId
from bucketq.errors import InvalidRequestError
from bucketq.model import operations as ops
from bucketq.model.requests.stateless_checks import check_rights, check_token_id, check_token_name
from bucketq.model.tokens import (
    ID_BYTES,
    SECRET_BYTES,
    Right,
    TokenInfo,
    token_digest,
    token_text,
)
from bucketq.queue.arguments import Duration, seconds
from bucketq.queue.sender import Sender


class TokenVerbs:
    """Access tokens for the clients of brokers."""

    _sender: Sender
    _token_key: bytes
    """Tokens are derived from it, so that a retry makes the same one; made when first needed."""

    async def create_token(
        self,
        name: str,
        rights: Right | Iterable[Right],
        *,
        ttl_s: Duration | None = None,
        request: str | None = None,
    ) -> str:
        """Create a token and return it; it cannot be read again.

        It has a name for people, allows what its rights say (``push``, ``claim``, ``read``, or
        ``admin`` for everything), and never expires if no ``ttl_s`` is given. From the first
        token on, brokers require tokens (setting ``require_token``). To retry after an
        ``UnavailableError``, use the same open queue: no other can make the same token again.
        """
        self._sender.check_open()
        check_token_name(name)
        several = _rights(rights)
        lifetime_s = _lifetime(ttl_s)
        request_id = self._sender.new_id(ops.GrantToken, request)
        token_id, token = self._make(request_id)
        operation = ops.GrantToken(
            id=token_id,
            name=name,
            digest=token_digest(token),
            rights=several,
            ttl_s=lifetime_s,
        )
        await self._sender.send_as(request_id, operation)
        return token

    async def tokens(self) -> list[TokenInfo]:
        """List the valid tokens, in the order in which they were created."""
        return list(await self._sender.send(ops.ReadTokens()))

    async def revoke_token(self, token_id: str, *, request: str | None = None) -> bool:
        """Revoke a token; return whether there was one.

        The queue still requires tokens after that, even if it was the last one.
        """
        check_token_id(token_id)
        return cast("bool", await self._sender.send(ops.RevokeToken(id=token_id), request))

    def _make(self, request_id: RequestId) -> tuple[str, str]:
        """Make the id and the text of a token: the same at every try of one request.

        An answer may be lost after the token was granted. If each try made a new token, the caller
        would get one that the queue does not know.
        """
        if not self._token_key:
            self._token_key = self._sender.clock.entropy(SECRET_BYTES)
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
    check_rights(several)
    return cast("tuple[Right, ...]", several)


def _lifetime(ttl_s: Duration | None) -> float:
    """Return how many seconds a token is valid; 0 means for ever."""
    if ttl_s is None:
        return 0.0
    lifetime_s = float(seconds(ttl_s, "ttl_s"))
    if not lifetime_s:
        message = "ttl_s must be more than 0 seconds; leave it out for a token that never expires"
        raise InvalidRequestError(message)
    return lifetime_s
