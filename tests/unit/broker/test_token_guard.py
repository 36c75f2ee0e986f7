"""Who is let in at a broker, and what they may ask for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from bucketq.broker.token_guard import Guard, ShownToken, refusal
from bucketq.errors import AccessDeniedError, InvalidRequestError, UnavailableError
from bucketq.model import operations as ops
from bucketq.model.operations import GrantToken, Request, RevokeToken
from bucketq.model.state import State
from bucketq.model.tokens import token_digest
from bucketq.model.transitions import apply
from bucketq.rpc.credentials import broker_proof
from bucketq.rpc.messages import Hello, Welcome

TOKEN = "bq_0123abcd_" + "5e" * 32
OTHER = "bq_0123abcd_" + "00" * 32
WELCOME = Welcome(incarnation="i", broker="b", epoch=3, version=9)
PUSH = ops.Push(jobs=())
SHOWN = ShownToken("0123abcd", token_digest(TOKEN))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class FixedClock:
    """A clock that stands still, and draws the same bytes."""

    def __init__(self, drawn: bytes = b"\0") -> None:
        self._drawn = drawn

    def now(self) -> datetime:
        return NOW

    def entropy(self, size_bytes: int) -> bytes:
        return self._drawn * size_bytes


def grant(state: State, token: str = TOKEN, *rights: str, ttl_s: float = 0.0) -> None:
    operation = GrantToken(
        id=token[3:11],
        name="test",
        digest=token_digest(token),
        rights=rights or ("push",),  # type: ignore[arg-type]  # they are rights
        ttl_s=ttl_s,
    )
    assert apply(state, Request(operation), NOW).error is None


@pytest.fixture
def state() -> State:
    """A queue that asks for tokens, and has one."""
    made = State(incarnation="i", created_at=NOW)
    grant(made)
    return made


@pytest.fixture
def guard() -> Guard:
    return Guard(FixedClock())


def test_a_queue_without_tokens_accepts_all_clients(guard: Guard) -> None:
    state = State(incarnation="i", created_at=NOW)
    assert guard.greet(state, Hello(), WELCOME) == (WELCOME, None)
    assert guard.admit(state, "nonsense") is None
    assert refusal(state, None, PUSH, NOW) is None
    guard.check(state, None, PUSH)


def test_a_guarded_queue_wants_a_token_named_at_once(guard: Guard, state: State) -> None:
    with pytest.raises(AccessDeniedError, match="BUCKETQ_TOKEN"):
        guard.greet(state, Hello(), WELCOME)
    welcome, shown = guard.greet(state, Hello(token_id="0123abcd", nonce=bytes(16)), WELCOME)
    assert shown is None, "it is named, and not shown yet"
    assert welcome.proof == broker_proof(token_digest(TOKEN), bytes(16), "i", "b", 3)
    with pytest.raises(InvalidRequestError, match="16 bytes"):
        guard.greet(state, Hello(token_id="0123abcd"), WELCOME)
    assert guard.greet(state, Hello(token=TOKEN), WELCOME) == (WELCOME, SHOWN)


@pytest.mark.parametrize("token", [OTHER, "bq_ffffffff_" + "5e" * 32, "", "bq_", "\ud800"])
def test_every_bad_token_is_refused_in_the_same_words(
    guard: Guard, state: State, token: str
) -> None:
    with pytest.raises(AccessDeniedError, match=r"^the token is invalid: it is wrong"):
        guard.admit(state, token)


def test_what_is_allowed_follows_the_state(guard: Guard, state: State) -> None:
    shown = guard.admit(state, TOKEN)
    assert shown == SHOWN
    assert refusal(state, shown, PUSH, NOW) is None
    assert "'claim'" in str(refusal(state, shown, ops.Claim(worker="w", secret="s"), NOW))
    assert "'admin'" in str(refusal(state, shown, RevokeToken(id="0123abcd"), NOW))
    assert "token=" in str(refusal(state, None, PUSH, NOW))
    with pytest.raises(AccessDeniedError):
        guard.check(state, None, PUSH)
    apply(state, Request(RevokeToken(id="0123abcd")), NOW)
    assert "revoked" in str(refusal(state, shown, PUSH, NOW))
    grant(state, OTHER)
    assert "revoked" in str(refusal(state, shown, PUSH, NOW)), "the same id is another token now"


def test_a_token_is_good_until_it_expires(guard: Guard) -> None:
    state = State(incarnation="i", created_at=NOW)
    grant(state, TOKEN, "admin", ttl_s=60.0)
    shown = guard.admit(state, TOKEN)
    assert refusal(state, shown, PUSH, NOW + timedelta(seconds=59)) is None
    assert "expired" in str(refusal(state, shown, PUSH, NOW + timedelta(seconds=60)))


def test_while_the_state_is_reloaded_a_token_is_neither_accepted_nor_denied(guard: Guard) -> None:
    with pytest.raises(UnavailableError):
        guard.greet(None, Hello(token=TOKEN), WELCOME)
    with pytest.raises(UnavailableError):
        guard.greet(None, Hello(token_id="0123abcd", nonce=bytes(16)), WELCOME)
    assert guard.greet(None, Hello(), WELCOME) == (WELCOME, None), "its calls are looked at again"
    guard.check(None, None, PUSH)


def test_an_unknown_id_has_a_proof_that_is_always_the_same_and_never_right(
    guard: Guard, state: State
) -> None:
    hello = Hello(token_id="ffffffff", nonce=bytes(16))
    first, second = (guard.greet(state, hello, WELCOME)[0].proof for _ in range(2))
    assert first == second
    other = Guard(FixedClock(b"\1"))
    assert other.greet(state, hello, WELCOME)[0].proof != first, "nobody can compute it"


def test_a_client_is_trusted_with_a_good_token_or_if_none_is_asked_for(
    guard: Guard, state: State
) -> None:
    assert guard.trusts(state, TOKEN)
    assert not guard.trusts(state, OTHER)
    assert not guard.trusts(state, "")
    assert not guard.trusts(None, ""), "while it is read again, what was known of it holds"
    assert not guard.trusts(None, TOKEN), "its tokens are not known"
    state.settings = replace(state.settings, require_token=False)
    assert guard.trusts(state, "")
    assert guard.trusts(None, "")
