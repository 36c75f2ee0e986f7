"""Access tokens: what one looks like, and what the object keeps of it.

A token is the text ``bq_<id>_<secret>``. The id is public and names the record; the secret has 256
random bits, so that it cannot be guessed and a plain hash of the text is enough. The object holds
only that hash: readers of the object, a listing or a log learn no token from it.
"""

import re
from datetime import datetime
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct, structs

from bucketq.errors import InvalidRequestError

Right = Literal["push", "claim", "read", "admin"]
"""What a token allows: adding jobs, working on them, reading the queue, or everything."""

RIGHTS: tuple[Right, ...] = ("push", "claim", "read", "admin")
ID_BYTES = 4  # Ids name at most ``max_tokens`` tokens of one queue, so 32 bits rarely collide.
SECRET_BYTES = 32  # 256 bits, so that a plain hash of the token is enough.
MAX_TOKEN_NAME = 64  # Keeps a listing readable.

_FORMAT = r"bq_([0-9a-f]{8})_[0-9a-f]{64}"


class TokenInfo(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A token without its digest, with which a broker proves its identity."""

    id: str
    name: str
    rights: tuple[Right, ...]
    created_at: datetime
    expires_at: datetime | None = None
    """None: never."""


class TokenRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A token as the object holds it: all but the token."""

    id: str
    seq: int
    name: str
    """For people. Two tokens may share it, while one takes the place of the other."""
    digest: str
    rights: tuple[Right, ...]
    created_at: datetime
    expires_at: datetime | None = None
    """None: never."""

    def __repr__(self) -> str:
        """Leave the digest out: records end up in messages and logs."""
        return repr_without_digest(self)

    def info(self) -> TokenInfo:
        """Its public part."""
        return msgspec.convert(self, TokenInfo, from_attributes=True)

    def is_live(self, now: datetime) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


def repr_without_digest(row: Struct) -> str:
    """Show a struct as usual, but for its digest."""
    fields = structs.asdict(row)
    shown = ", ".join(f"{name}={fields[name]!r}" for name in fields if name != "digest")
    return f"{type(row).__name__}({shown})"


def token_text(token_id: str, secret: str) -> str:
    """Put a token together."""
    return f"bq_{token_id}_{secret}"


def token_digest(token: str) -> str:
    """What the object keeps of a token: the SHA-256 of its text, in hexadecimal."""
    return sha256(token.encode(errors="surrogatepass")).hexdigest()


def parse_token(token: object) -> str:
    """Return the id in a token; raises ``InvalidRequestError`` on anything else, unseen."""
    found = re.fullmatch(_FORMAT, token) if isinstance(token, str) else None
    if found is None:
        raise InvalidRequestError(
            "this is not a token: one reads bq_<id>_<secret>, with 8 and 64 hexadecimal digits; "
            "pass it as `bucketq token create` printed it"
        )
    return found[1]
