"""Evidence against the recorded broker, and the takeover.

Nothing in here decides alone that a broker is dead. ``probe`` gathers evidence, and ``elect`` takes
over by a compare-and-set that names the epoch that it follows. The object decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bucketq.clock import Clock
from bucketq.errors import SupersededError
from bucketq.model.operations import Lead, Request
from bucketq.model.records import BrokerRecord
from bucketq.rpc.address import Whereabouts, is_loopback, secured
from bucketq.rpc.messages import Ping
from bucketq.rpc.transport import (
    CannotDialError,
    ConnectionLostError,
    NoBrokerThereError,
    Transport,
    UntrustedError,
)

if TYPE_CHECKING:  # Clients only ask who leads.
    from bucketq.codec.document import Document
    from bucketq.commit.objects.register import Register

PING_S = 1.5
"""How long a broker may take to answer a ping from memory."""
SILENCE_S = 2.2
"""For how long a broker must be silent to be treated as gone.

That is most of what a failover from a frozen leader takes, and a host that is busy may stand still
for as long without one."""
_AGAIN_S = 0.5
"""How soon a ping without an answer is followed by another: one that is lost proves nothing."""
_MOST_LOST = 50
"""How often a direct writer may be faster before a takeover is given up."""


class Identity(Struct, frozen=True):
    """A broker's random id, its address, and the host that it runs on."""

    id: str
    address: str
    host: str
    tls: bool = False


class DeposedError(SupersededError):
    """Another broker has taken over from this one, or was faster."""


class Sign(Enum):
    """The result of a probe of the recorded broker."""

    ALIVE = "alive"
    GONE = "gone"
    """Nothing listens there, or something else does, or it does not lead any more."""
    SILENT = "silent"
    """No answer to any ping for ``SILENCE_S``: it is dead, frozen or cut off."""


ENOUGH = 2
"""How much evidence a takeover needs, with no sign of life in between."""
WEIGHT = {Sign.ALIVE: 0, Sign.SILENT: ENOUGH, Sign.GONE: 1}


async def probe(
    transport: Transport, record: BrokerRecord, incarnation: str, leads: int | None = None
) -> Sign:
    """Ask the broker that is recorded whether it is there, until it has been silent for too long.

    ``leads`` is how many queues this server leads, if it shares queues with others.

    Raises ``UntrustedError`` if it must not be dialled, and ``CannotDialError`` if this side cannot
    dial now. Neither says anything about the broker.
    """
    ping = Ping(incarnation=incarnation, leads=leads)
    return await ask_on(lambda: _ping(transport, record, ping))


async def ask_on(ask: Callable[[], Coroutine[Any, Any, Sign]]) -> Sign:
    """Ask until there is a sign, every half second; none waits for those before it.

    A broker is silent if it gave no sign for ``SILENCE_S``. The time begins again if this process
    stood still meanwhile, because the answer may be waiting to be read.
    """
    loop = asyncio.get_running_loop()
    next_s = loop.time()
    until_s = next_s + SILENCE_S
    asked: list[asyncio.Task[Sign]] = []
    try:
        while loop.time() < until_s:
            if loop.time() >= next_s:
                asked.append(loop.create_task(ask()))
                next_s += _AGAIN_S
            wake_s = min(next_s, until_s)
            await _until_one_is_done(asked, wake_s - loop.time())
            for task in asked:
                if task.done() and (sign := task.result()) is not Sign.SILENT:
                    return sign
            if loop.time() > wake_s + _AGAIN_S:
                next_s = loop.time()
                until_s = next_s + SILENCE_S
        return Sign.SILENT
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _until_one_is_done(asked: Sequence[asyncio.Task[Sign]], timeout_s: float) -> None:
    pending = [task for task in asked if not task.done()]
    if pending:
        await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    else:
        await asyncio.sleep(timeout_s)


async def _ping(transport: Transport, record: BrokerRecord, ping: Ping) -> Sign:
    try:
        address = secured(record.address, tls=record.tls)
        pong = await transport.ping(address, ping, PING_S)
    except NoBrokerThereError:
        return Sign.GONE
    except (UntrustedError, CannotDialError):
        raise
    except ConnectionLostError:
        return Sign.SILENT
    is_it = pong.broker == record.id and pong.epoch == record.epoch
    # Its takeover may have landed before it knows; then it names itself as the coming leader.
    leads = pong.role == "leading" or (pong.role == "standing by" and pong.leader == record.address)
    return Sign.ALIVE if is_it and leads else Sign.GONE


async def elect(register: Register, clock: Clock, identity: Identity, after: int) -> Document:
    """Take over from epoch ``after``, and return the document to lead with.

    Raises:
        DeposedError: Another broker was faster, or too many writers were.
        UnavailableError: The storage did not answer a read.
    """
    from bucketq.model.transitions import apply  # noqa: PLC0415 - see above

    document = await register.load()
    lead = Request(
        Lead(
            id=identity.id,
            address=identity.address,
            host=identity.host,
            after=after,
            tls=identity.tls,
        )
    )
    for _ in range(_MOST_LOST):
        applied = apply(document.state, lead, clock.now())
        if applied.error is not None:
            raise DeposedError(str(applied.error), leader=leader_of(document))
        if not document.state.has_changes:
            return document
        settled = await register.commit(document, register.prepare(document))
        document = settled.document
    message = f"{register.where} changed {_MOST_LOST} times during the takeover"
    raise DeposedError(message)


def check_leads(document: Document, identity: Identity) -> None:
    """Raise ``DeposedError`` if a state names another broker, or none."""
    broker = document.state.broker
    if broker is None or broker.id != identity.id or not broker.address:
        message = f"this broker was deposed: the queue is in epoch {document.state.epoch}"
        raise DeposedError(message, leader=leader_of(document))


def leader_of(document: Document) -> str | None:
    """Return the address of the broker that a state names, if any."""
    state = document.state
    return state.broker.address if state.broker and state.is_served else None


def is_out_of_reach(record: BrokerRecord, host: str) -> bool:
    """Whether the recorded address is a loopback address of another host."""
    if not is_loopback(record.address):
        return False
    return Whereabouts.parse(host).cannot_reach(Whereabouts.parse(record.host))
