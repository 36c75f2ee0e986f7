"""What travels between a client and a broker, whatever carries it.

A client opens a connection about one queue (``Hello``, answered by ``Welcome``) and sends calls,
many in one message; the answers come in any order, each under the tag of its call. A call carries
the request as it is applied, ids and all, so that it can be sent again, here or to another broker,
to the effect of one.

A ``Ping`` is apart from that: it is answered from memory, at once, whatever the storage does, and
is what tells a dead broker from one whose storage is slow.

These are plain values. No message is trusted: who receives one checks it.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from bucketq.model import numbered_batches
from bucketq.model import operations as ops
from bucketq.model.operations import Request

Role = Literal["leading", "cut off", "standing by", "retired"]
"""What somebody is to a queue. Cut off: it led, and can no longer prove that it does."""


OFFERED = (
    ops.Push,
    ops.Claim,
    ops.Heartbeat,
    ops.Complete,
    ops.CompleteMany,
    ops.Fail,
    ops.Release,
    ops.Withdraw,
    ops.ReleaseMany,
    ops.Cancel,
    ops.Redrive,
    ops.Purge,
    ops.Pause,
    ops.Resume,
    ops.Configure,
    ops.Get,
    ops.List,
    ops.ReadStats,
    ops.ReadSnapshot,
    ops.GrantToken,
    ops.RevokeToken,
    ops.ReadTokens,
    numbered_batches.OpenConsumer,
    numbered_batches.ClaimBatch,
    numbered_batches.ReadBatch,
    numbered_batches.AckBatch,
    numbered_batches.ReleaseBatch,
    numbered_batches.ReadConsumers,
    numbered_batches.RemoveConsumer,
    numbered_batches.Publish,
)
"""What a client may ask of a broker. The other operations are a broker's own."""

ADDED = ("release_many", "parts")
"""What the first brokers did not know, by its name on the wire: operations, and that a large
message may come in parts."""


class FlushArchive(Struct, frozen=True, tag="flush_archive"):
    """Archive everything that is finished now. Answers how many jobs have left.

    A broker does that around ``apply``, so it is no operation of the model.
    """


class Hello(Struct, frozen=True, kw_only=True):
    """The beginning of a connection: which queue, and whom the client expects to find."""

    queue: str = ""
    """The name under which the broker serves the queue; empty where ``incarnation`` tells."""
    incarnation: str = ""
    """The queue itself, for whoever has read its object; empty: whatever bears the name."""
    broker: str = ""
    """The id of the broker that the object names; empty: any."""
    client: str = ""
    """Who is there, for logs."""
    token_id: str = ""
    """Which token will be shown once the broker has proved itself; empty: none."""
    nonce: bytes = b""
    """Drawn for this connection, for that proof."""
    token: str = ""
    """The token itself, in a unary call, which has no second message."""

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"Hello(queue={self.queue!r}, client={self.client!r}, token_id={self.token_id!r})"


class Welcome(Struct, frozen=True, kw_only=True):
    """A broker that leads this queue says who it is."""

    incarnation: str
    broker: str
    epoch: int
    version: int
    """The version of the object that it has last seen or written."""
    proof: bytes = b""
    """That it knows the token that was named; empty where none was."""
    operations: tuple[str, ...] = ADDED
    """Which of ``ADDED`` it knows."""


class Call(Struct, frozen=True, gc=False):
    """One request, on its way to a broker."""

    tag: int
    """The client's own number for it, which comes back with the answer."""
    request: Request | FlushArchive
    ttl_s: float
    """For how long anybody waits for the answer; later it is dropped before it is applied."""


class Refusal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, as data. ``errors.py`` beside this module turns one into the other."""

    kind: str
    """The name of the class in ``bucketq.errors``."""
    message: str
    retry_after_s: float | None = None
    """With ``OverloadedError``: when it makes sense to try again."""
    leader: str | None = None
    """With ``SupersededError``: the address of the broker that leads now, where it is known."""
    is_repeatable: bool = False
    """With ``UnavailableError``: whether the same request, sent again, will have an answer."""


class Answer(Struct, frozen=True, gc=False):
    """What became of one call."""

    tag: int
    value: Any = None
    refusal: Refusal | None = None


class Answers(Struct, frozen=True):
    """Answers that go out together, and the version at which the queue is now."""

    answers: list[Answer]
    version: int = 0


class Ping(Struct, frozen=True, kw_only=True):
    """Are you there, for this queue?"""

    queue: str = ""
    incarnation: str = ""


class Pong(Struct, frozen=True, kw_only=True):
    """Somebody is there who knows this queue, and what it is to it."""

    incarnation: str
    broker: str
    """The id of whoever answers."""
    role: Role
    epoch: int
    """The newest that it knows, its own where it leads."""
    version: int = 0
    commit_age_s: float = 0.0
    """For how long its write in flight has been without an answer: slow storage shows here."""
    leader: str = ""
    """The address of the broker that leads, where it knows that."""
