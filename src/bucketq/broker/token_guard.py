"""Checks tokens and rights.

The queue's tokens are in its state, so every broker knows them, and a grant or revocation counts
from the next call on, in open connections too. A queue that requires no token accepts all clients.

An error does not reveal which part of a token was wrong.
"""

from __future__ import annotations

from datetime import datetime
from hmac import compare_digest
from typing import NamedTuple

from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.errors import AccessDeniedError, InvalidRequestError, UnavailableError
from bucketq.model.effects.access import find_token, missing_right
from bucketq.model.state import State
from bucketq.model.tokens import parse_token, token_digest
from bucketq.rpc.credentials import NONCE_BYTES, broker_proof
from bucketq.rpc.messages import Hello, Welcome

_NONE_SHOWN = (
    "the queue asks for a token: set BUCKETQ_TOKEN, or pass token=, to one that "
    "`bucketq token create` has printed"
)
_INVALID = "the token is invalid: it is wrong, has expired or was revoked"


class ShownToken(NamedTuple):
    """A token that was shown, and was valid then."""

    id: str
    digest: str


class Guard:
    """Checks tokens for one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._decoy = ""
        self._requires = False
        """Whether the queue required tokens when its state was last known."""

    def greet(
        self, state: State | None, hello: Hello, welcome: Welcome
    ) -> tuple[Welcome, ShownToken | None]:
        """Answer the first message, with the broker's proof if a token is named.

        Raises ``AccessDeniedError`` if a token is required and none is named, or it is not valid.
        """
        if hello.token:
            return welcome, self.admit(state, hello.token)
        if hello.token_id:
            if len(hello.nonce) != NONCE_BYTES:
                message = f"`nonce` must have {NONCE_BYTES} bytes, drawn for this stream"
                raise InvalidRequestError(message)
            proof = broker_proof(
                self._digest_of(self._known(state), hello.token_id),
                hello.nonce,
                welcome.incarnation,
                welcome.broker,
                welcome.epoch,
            )
            return replace(welcome, proof=proof), None
        if self._requires_token(state):
            raise AccessDeniedError(_NONE_SHOWN)
        return welcome, None  # Each of its calls is checked again.

    def admit(self, state: State | None, token: str) -> ShownToken | None:
        """Check a token. Raises ``AccessDeniedError`` if it is not valid."""
        state = self._known(state)
        if not state.settings.require_token:
            return None
        try:
            token_id = parse_token(token)
        except InvalidRequestError:
            raise AccessDeniedError(_INVALID) from None
        digest = token_digest(token)
        if not compare_digest(self._digest_of(state, token_id), digest):
            raise AccessDeniedError(_INVALID)
        return ShownToken(token_id, digest)

    def trusts(self, state: State | None, token: str) -> bool:
        """Whether a client with this token is accepted; empty: it has shown none.

        While the state is being reloaded, the last known state decides.
        """
        if not self._requires_token(state):
            return True
        try:
            return self.admit(state, token) is not None
        except (AccessDeniedError, UnavailableError):
            return False

    def _requires_token(self, state: State | None) -> bool:
        if state is not None:
            self._requires = state.settings.require_token
        return self._requires

    def check(self, state: State | None, shown: ShownToken | None, operation: object) -> None:
        """Reject a request before it uses memory. Raises ``AccessDeniedError``.

        The leader calls ``refusal`` again when it applies the request.
        """
        if state is not None and state.settings.require_token:
            error = refusal(state, shown, operation, self._clock.now())
            if error is not None:
                raise error

    def _known(self, state: State | None) -> State:
        if state is None:
            message = "the queue is being reloaded, and its tokens are not known yet: try again"
            raise UnavailableError(message)
        return state

    def _digest_of(self, state: State, token_id: str) -> str:
        """Return the digest of a token; for an unknown id, one that no token has.

        It is always the same for an id, so that asking twice does not reveal which ids exist.
        """
        record = find_token(state, token_id, self._clock.now())
        if not self._decoy:
            self._decoy = self._clock.entropy(32).hex()
        decoy = token_digest(self._decoy + token_id)
        return decoy if record is None else record.digest


def refusal(
    state: State, shown: ShownToken | None, operation: object, now: datetime
) -> AccessDeniedError | None:
    """Return why an operation is denied to a client with this token now; None: it is allowed."""
    if not state.settings.require_token:
        return None
    if shown is None:
        return AccessDeniedError(_NONE_SHOWN)
    record = find_token(state, shown.id, now)
    if record is None or record.digest != shown.digest:
        return AccessDeniedError(_INVALID)
    if (missing := missing_right(record.rights, operation)) is not None:
        message = f"token {shown.id} lacks the right {missing!r}: ask for another"
        return AccessDeniedError(message)
    return None
