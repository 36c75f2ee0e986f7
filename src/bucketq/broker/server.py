"""``Server``: the brokers of one process behind one address.

It serves any number of queues, each under a name and with a broker of its own. A client names the
queue, or the incarnation that it has read in the object, or both; where they do not fit, it is
told that nobody knows this queue, and nothing is written anywhere.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from bucketq.broker.broker import Broker
from bucketq.broker.election import Identity
from bucketq.clock import Clock, new_id
from bucketq.errors import InvalidRequestError, QueueNotFoundError
from bucketq.rpc.messages import Answers, Hello, Ping, Pong
from bucketq.rpc.transport import Conversation, Listener, Transport

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Server:
    """Serves queues at an address."""

    def __init__(self, transport: Transport, clock: Clock, host: str) -> None:
        """Make a server without queues; ``host`` names the machine it runs on."""
        self._transport = transport
        self._clock = clock
        self._host = host
        self._brokers: dict[str, Broker] = {}
        self._lives: list[asyncio.Task[None]] = []
        self._listener: Listener | None = None
        self.address = ""
        """Where clients find it, once it has started."""

    @property
    def brokers(self) -> dict[str, Broker]:
        """The brokers, by the names of their queues."""
        return self._brokers

    def add(self, name: str, broker: Broker) -> None:
        """Serve one more queue."""
        if not _NAME.fullmatch(name):
            message = (
                f"bad name of a queue {name!r}: use 1 to 64 small letters, digits and . _ -, "
                "beginning with a letter or digit"
            )
            raise InvalidRequestError(message)
        if name in self._brokers:
            message = f"two queues are called {name!r}: name them apart, as in NAME=URL"
            raise InvalidRequestError(message)
        self._brokers[name] = broker

    async def start(self, listen: str, advertise: str = "") -> None:
        """Listen, and let the brokers live; ``advertise`` is what goes into the object."""
        self._listener = await self._transport.listen(listen, self)
        self.address = advertise or self._listener.address
        loop = asyncio.get_running_loop()
        for broker in self._brokers.values():
            identity = Identity(new_id(self._clock), self.address, self._host)
            self._lives.append(loop.create_task(broker.run(identity)))

    async def until_over(self) -> None:
        """Wait until a broker cannot go on; raises why."""
        if self._lives:
            await asyncio.wait(self._lives, return_when=asyncio.FIRST_COMPLETED)
        self.raise_if_over()

    def raise_if_over(self) -> None:
        """Raise what has kept a broker from going on, if anything has."""
        for life in self._lives:
            if life.done() and not life.cancelled():
                life.result()

    def idle_s(self, now_s: float) -> float:
        """For how long no queue has had a client."""
        since = [broker.idle_since for broker in self._brokers.values()]
        return min((0.0 if at is None else now_s - at for at in since), default=0.0)

    async def stop(self) -> None:
        """Settle what has come, clear the addresses, and listen no more."""
        retirements = (broker.retire() for broker in self._brokers.values())
        await asyncio.gather(*retirements)
        lives, self._lives = self._lives, []
        for life in lives:
            life.cancel()
        if lives:
            await asyncio.gather(*lives, return_exceptions=True)
        if self._listener is not None:
            await self._listener.close(1.0)

    def ping(self, ping: Ping) -> Pong:
        """Answer from memory."""
        return self._find(ping.queue, ping.incarnation).pong()

    def open(self, hello: Hello, send: Callable[[Answers], None]) -> Conversation:
        """Begin a conversation about one of the queues."""
        return self._find(hello.queue, hello.incarnation).converse(hello, send)

    def _find(self, name: str, incarnation: str) -> Broker:
        candidates = list(self._brokers.values())
        if name:
            candidates = [broker for known, broker in self._brokers.items() if known == name]
        if incarnation:
            candidates = [broker for broker in candidates if broker.incarnation == incarnation]
        if len(candidates) == 1:
            return candidates[0]
        which = f"a queue called {name!r}" if name else "this queue"
        known = ", ".join(sorted(self._brokers))
        message = f"{which} is not served at {self.address}; it serves {known}"
        raise QueueNotFoundError(message)
