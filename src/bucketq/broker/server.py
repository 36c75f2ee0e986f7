"""``Server``: the brokers of one process behind one address.

It serves any number of queues, each under a name and with a broker of its own. A client names the
queue, or the incarnation that it has read in the object, or both. If they do not match, the queue
is reported as unknown, and nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

from bucketq.broker.broker import Broker
from bucketq.broker.broker_observer import BrokerObserver
from bucketq.broker.takeover import Identity
from bucketq.clock import Clock, new_id
from bucketq.errors import InvalidRequestError, QueueNotFoundError
from bucketq.rpc.messages import Answers, Hello, Ping, Pong
from bucketq.rpc.transport import Listener, ServedConnection, Transport

_log = logging.getLogger("bucketq.broker")

HAND_OVER_S = 2.0
"""How often a server hands a queue over: its clients wait about a second for the next broker."""
_UNEVEN = 2
"""A hand-over then leaves the other server with no more queues than this one."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}(?:/[0-9]{1,3})?")
"""The name of a queue; of a partition after the first, with a slash and its number."""


class Server:
    """Serves queues at an address."""

    def __init__(self, transport: Transport, clock: Clock, host: str) -> None:
        """Make a server without queues; ``host`` names the machine it runs on."""
        self._transport = transport
        self._clock = clock
        self._host = host
        self.brokers: dict[str, Broker] = {}
        """The brokers, by the names of their queues."""
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._is_sharing = False
        self._stays = False
        self._next_hand_over_s = 0.0
        self._handing_over: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._is_tls = False
        self.observe: Callable[[str], BrokerObserver] | None = None
        """Makes the observer of a queue by its name, if its work is measured."""
        self.address = ""
        """The address for clients, once it has started."""

    def add(self, name: str, broker: Broker) -> None:
        """Serve one more queue."""
        if not _NAME.fullmatch(name):
            message = (
                f"bad name of a queue {name!r}: use 1 to 64 lowercase letters, digits and . _ -, "
                "beginning with a letter or digit"
            )
            raise InvalidRequestError(message)
        if name in self.brokers:
            message = f"two queues are called {name!r}: name them apart, as in NAME=URL"
            raise InvalidRequestError(message)
        self.brokers[name] = broker
        if self.observe is not None:
            broker.observer = self.observe(name)
        if self._listener is not None:
            self._let_live(name, broker)

    async def remove(self, name: str) -> None:
        """Serve a queue no longer."""
        broker = self.brokers.pop(name)
        await broker.retire()
        await _end([self._lives.pop(name)])

    def share(self, *, stays: bool = True) -> None:
        """Share queues evenly with other servers.

        If it ``stays``, it goes on without any, for others may be added.
        """
        self._is_sharing = True
        self._stays = self._stays or stays

    @property
    def queues(self) -> list[str]:
        """The names of the queues, without those of further partitions."""
        return [name for name in self.brokers if "/" not in name]

    def count_led(self) -> int:
        """Return how many queues it leads."""
        return sum(broker.leader is not None for broker in self.brokers.values())

    def is_ready(self) -> bool:
        """Whether it serves: it leads or stands by for one of its queues, and its storage answers.

        A server of a folder without queues is ready, too.
        """
        if self._listener is None:
            return False
        brokers = self.brokers.values()
        return not brokers or any(
            broker.opened.is_set()
            and broker.failure is None
            and broker.role in {"leading", "standing by"}
            for broker in brokers
        )

    async def start(self, listen: str, advertise: str = "", *, tls: bool = False) -> None:
        """Listen, and start the brokers; ``advertise`` is recorded in the object."""
        self._listener = await self._transport.listen(listen, self)
        self.address = advertise or self._listener.address
        self._is_tls = tls
        for name, broker in self.brokers.items():
            self._let_live(name, broker)

    def revive(self) -> None:
        """Restart brokers that have failed; the reason may have passed."""
        for name, broker in self.brokers.items():
            if broker.failure is not None:
                self._let_live(name, broker)

    def _let_live(self, name: str, broker: Broker) -> None:
        identity = Identity(new_id(self._clock), self.address, self._host, self._is_tls)
        life = asyncio.get_running_loop().create_task(broker.run(identity))
        life.add_done_callback(self._note_end)
        self._lives[name] = life

    def _note_end(self, life: asyncio.Task[None]) -> None:
        """Log that a queue is no longer served while others are; ``until_over`` raises the last."""
        error = None if life.cancelled() else life.exception()
        if error is not None and not self._is_over():
            _log.error("%s; the other queues are still served", error)

    async def until_open(self, timeout_s: float) -> None:
        """Wait until each broker leads or stands by, or for a while; raises if all have failed."""
        loop = asyncio.get_running_loop()
        opening = [
            loop.create_task(_until_open(broker, self._lives[name]))
            for name, broker in self.brokers.items()
        ]
        if opening:
            await asyncio.wait(opening, timeout=timeout_s)
        await _end(opening)
        self.raise_if_over()

    async def until_over(self) -> None:
        """Wait until all brokers have failed, and raise why."""
        if self._stays:
            await asyncio.Event().wait()
        elif self._lives:
            await asyncio.wait(self._lives.values())
        self.raise_if_over()

    def raise_if_over(self) -> None:
        """Raise why the brokers have failed, if all have."""
        if self._is_over():
            for life in self._lives.values():
                if not life.cancelled():
                    life.result()

    def _is_over(self) -> bool:
        return not self._stays and all(life.done() for life in self._lives.values())

    def idle_s(self, now_s: float) -> float:
        """Return for how long no queue has had a client."""
        since = [broker.idle_since for broker in self.brokers.values()]
        return min((0.0 if at is None else now_s - at for at in since), default=0.0)

    async def stop(self) -> None:
        """Commit pending requests, clear the addresses, and stop listening."""
        if self._handing_over is not None:
            await asyncio.wait([self._handing_over])
        await asyncio.gather(*(broker.retire() for broker in self.brokers.values()))
        lives, self._lives = self._lives, {}
        await _end(lives.values())
        if self._listener is not None:
            await self._listener.close(1.0)

    def ping(self, ping: Ping) -> Pong:
        """Answer from memory."""
        broker = self._find(ping.queue, ping.incarnation)
        if self._is_sharing and ping.leads is not None:
            self._consider(broker, ping.leads)
        return broker.pong()

    def _consider(self, broker: Broker, others: int) -> None:
        """Hand a queue over to a server that stands by for it, if that leads fewer by far.

        One queue after the other, so that the next ping says what has become of the last one.
        """
        now_s = asyncio.get_running_loop().time()
        is_uneven = self.count_led() - others >= _UNEVEN
        if broker.leader is not None and is_uneven and now_s >= self._next_hand_over_s:
            self._next_hand_over_s = now_s + HAND_OVER_S
            self._handing_over = asyncio.get_running_loop().create_task(broker.hand_over())

    def trusts(self, token: str) -> bool:
        """Whether one of the queues accepts a client with this token."""
        return any(broker.trusts(token) for broker in self.brokers.values())

    def open(self, hello: Hello, send: Callable[[Answers], None]) -> ServedConnection:
        """Accept a connection for one of the queues."""
        return self._find(hello.queue, hello.incarnation).accept_connection(hello, send)

    def _find(self, name: str, incarnation: str) -> Broker:
        queues = self.queues
        candidates = [self.brokers[known] for known in queues]
        if incarnation:
            candidates = list(self.brokers.values())
        if name.startswith("/") and len(queues) == 1:
            name = queues[0] + name  # A partition of the only queue.
        if name:
            candidates = [broker for known, broker in self.brokers.items() if known == name]
        if incarnation:
            candidates = [broker for broker in candidates if broker.incarnation == incarnation]
        if len(candidates) == 1:
            if candidates[0].failure is not None:
                message = f"the queue is not served any more: {candidates[0].failure}"
                raise QueueNotFoundError(message)
            return candidates[0]
        known = ", ".join(sorted(queues))
        if candidates:
            message = f"several queues are served at {self.address}: name one of {known}"
        else:
            which = f"a queue called {name!r}" if name else "this queue"
            message = f"{which} is not served at {self.address}; it serves {known}"
        raise QueueNotFoundError(message)


async def _until_open(broker: Broker, life: asyncio.Task[None]) -> None:
    """Wait until a broker leads or stands by, or has failed."""
    opening = asyncio.get_running_loop().create_task(broker.opened.wait())
    try:
        await asyncio.wait([opening, life], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end([opening])


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
