"""The way from clients to one broker, which can be cut, stopped up, or swallow what is sent on it.

A broker is told to advertise the address of such a way. It stays the same when the broker is
started again, and leads nowhere while there is none.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from tests.servers.process import HOST, free_ports
from tests.servers.proxy import ProxyThread

Fault = Literal["cut", "hold", "swallow"]
"""What befalls connections: they end, what is sent comes late, or it never comes."""
Direction = Literal["to the broker", "from the broker", "both ways"]

FAULTS: tuple[Fault, ...] = ("cut", "hold", "swallow")
DIRECTIONS: tuple[Direction, ...] = ("to the broker", "from the broker", "both ways")
_PORTION_BYTES = 1 << 16


@dataclass
class _Connection:
    """One connection; by its luck it is among those that a fault strikes, or not."""

    luck: float
    writers: list[asyncio.StreamWriter]
    holes: set[Direction] = field(default_factory=set)
    """Where something was swallowed: what comes later would make no sense without it."""


class BrokerWay(ProxyThread):
    """A proxy for whatever goes over TCP, with the port of a broker behind it."""

    def __init__(self, seed: str) -> None:
        super().__init__(free_ports(1)[0])
        self._chance = random.Random(seed)
        self._connections: dict[int, _Connection] = {}
        self._fault: Fault | None = None
        self._direction: Direction = "both ways"
        self._share = 1.0
        self._healed = asyncio.Event()

    @property
    def address(self) -> str:
        """Where clients find the broker."""
        return f"{HOST}:{self.port}"

    @property
    def listen(self) -> str:
        """Where the broker is to listen."""
        return f"{HOST}:{self.target_port}"

    @property
    def is_faulty(self) -> bool:
        return self._fault is not None

    def strike(self, fault: Fault, direction: Direction, share: float) -> None:
        """Do something to a share of the connections, those to come included."""
        self._loop.call_soon_threadsafe(self._strike, fault, direction, share)

    def heal(self) -> None:
        """Let everything through. What was swallowed stays so: its two ends have to notice."""
        self._loop.call_soon_threadsafe(self._heal)

    def _strike(self, fault: Fault, direction: Direction, share: float) -> None:
        self._fault, self._direction, self._share = fault, direction, share
        self._healed.clear()
        if fault == "cut":
            for connection in list(self._connections.values()):
                if connection.luck < share:
                    _reset(connection)

    def _heal(self) -> None:
        self._fault = None
        self._healed.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = _Connection(self._chance.random(), [writer])
        self._connections[id(connection)] = connection
        try:
            if self._fault == "cut" and connection.luck < self._share:
                return
            theirs, to_broker = await asyncio.open_connection(HOST, self.target_port)
            connection.writers.append(to_broker)
            pumps = [
                self._loop.create_task(self._pump(connection, reader, to_broker, "to the broker")),
                self._loop.create_task(self._pump(connection, theirs, writer, "from the broker")),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            del self._connections[id(connection)]
            _reset(connection)

    async def _pump(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: Direction,
    ) -> None:
        with suppress(OSError):
            while portion := await reader.read(_PORTION_BYTES):
                if self._is_struck(connection, direction):
                    if self._fault == "hold":
                        await self._healed.wait()
                    else:
                        connection.holes.add(direction)
                if direction not in connection.holes:
                    writer.write(portion)
                    await writer.drain()

    def _is_struck(self, connection: _Connection, direction: Direction) -> bool:
        if self._fault is None or connection.luck >= self._share:
            return False
        return self._direction in {direction, "both ways"}


def _reset(connection: _Connection) -> None:
    """End both halves at once."""
    for writer in connection.writers:
        one: socket.socket | None = writer.get_extra_info("socket")
        if one is not None and one.fileno() >= 0:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
