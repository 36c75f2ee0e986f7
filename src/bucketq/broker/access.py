"""Who is let in at a broker, and what may they ask for?

The queue's tokens are in its state, so every broker knows them, and what is granted or revoked is
so from the next call on, in connections that are open too. A queue that does not ask for tokens
lets everybody in.

What is told to strangers is the same whichever part of a token was wrong.
"""

from __future__ import annotations

from datetime import datetime
from hmac import compare_digest
from typing import NamedTuple

from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.errors import AccessDeniedError, InvalidRequestError, UnavailableError
from bucketq.model.access import may, right_of
from bucketq.model.state import State
from bucketq.model.tokens import parse_token, token_digest
from bucketq.rpc.credentials import NONCE_BYTES, broker_proof
from bucketq.rpc.messages import Hello, Welcome

_NONE_SHOWN = (
    "the queue asks for a token: set BUCKETQ_TOKEN, or pass token=, to one that "
    "`bucketq token create` has printed"
)
_NOT_GOOD = "the token is not good: it is wrong, has expired or was revoked"


class ShownToken(NamedTuple):
    """A token that was shown and was good then."""

    id: str
    digest: str


class Guard:
    """Checks tokens for one broker."""

    def __init__(self, clock: Clock) -> None:
        """Begin with nobody let in."""
        self._clock = clock
        self._decoy = ""
        self._asks = False
        """Whether the queue asked for tokens when it was last known."""

    def greet(
        self, state: State | None, hello: Hello, welcome: Welcome
    ) -> tuple[Welcome, ShownToken | None]:
        """Answer a greeting: with the broker's proof, where a token is named.

        Raises ``AccessDeniedError`` where a token is wanted and none is named, or is shown and bad.
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
        if self._asks_for_token(state):
            raise AccessDeniedError(_NONE_SHOWN)
        return welcome, None  # Each of its calls is looked at again.

    def admit(self, state: State | None, token: str) -> ShownToken | None:
        """Take a token that is shown. Raises ``AccessDeniedError`` on one that is bad."""
        state = self._known(state)
        if not state.settings.require_token:
            return None
        try:
            token_id = parse_token(token)
        except InvalidRequestError:
            raise AccessDeniedError(_NOT_GOOD) from None
        digest = token_digest(token)
        if not compare_digest(self._digest_of(state, token_id), digest):
            raise AccessDeniedError(_NOT_GOOD)
        return ShownToken(token_id, digest)

    def trusts(self, state: State | None, token: str) -> bool:
        """Whether a client with this token may be here; an empty one was not shown.

        While the queue is read again that is answered by what was known of it before.
        """
        if not self._asks_for_token(state):
            return True
        try:
            return self.admit(state, token) is not None
        except (AccessDeniedError, UnavailableError):
            return False

    def _asks_for_token(self, state: State | None) -> bool:
        if state is not None:
            self._asks = state.settings.require_token
        return self._asks

    def check(self, state: State | None, shown: ShownToken | None, operation: object) -> None:
        """Keep strangers out before anything is kept of their requests.

        Whoever applies a request asks ``refusal`` again. Raises ``AccessDeniedError``.
        """
        if state is not None and state.settings.require_token:
            error = refusal(state, shown, operation, self._clock.now())
            if error is not None:
                raise error

    def _known(self, state: State | None) -> State:
        if state is None:
            message = "the queue is being read again, and its tokens are not known: try again"
            raise UnavailableError(message)
        return state

    def _digest_of(self, state: State, token_id: str) -> str:
        """The digest of a token; for one that is not there, one that nobody can meet.

        It is always the same for an id, so that asking twice does not tell which ids there are.
        """
        record = state.find_token(token_id, self._clock.now())
        if not self._decoy:
            self._decoy = self._clock.entropy(32).hex()
        decoy = token_digest(self._decoy + token_id)
        return decoy if record is None else record.digest


def refusal(
    state: State, shown: ShownToken | None, operation: object, now: datetime
) -> AccessDeniedError | None:
    """Why this may not be done by whoever has shown this, as things are now; None: it may."""
    if not state.settings.require_token:
        return None
    if shown is None:
        return AccessDeniedError(_NONE_SHOWN)
    record = state.find_token(shown.id, now)
    if record is None or record.digest != shown.digest:
        return AccessDeniedError(_NOT_GOOD)
    if not may(record.rights, operation):
        message = f"token {shown.id} lacks the right {right_of(operation)!r}: ask for another"
        return AccessDeniedError(message)
    return None
