"""Finds the broker of a queue among some addresses, for clients that cannot read the object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from bucketq.broker.takeover import PING_S, Sign, ask_on
from bucketq.client.client_connection import ClientConnection
from bucketq.client.discovery import FOLLOW_S, OPEN_S, NotYetError, unless_replaced
from bucketq.commit.base import Committer
from bucketq.errors import AccessDeniedError, QueueNotFoundError, SupersededError
from bucketq.model.partitions import OtherPartitionsError
from bucketq.rpc.address import SECURE, secured
from bucketq.rpc.messages import Hello, Ping, Pong
from bucketq.rpc.transport import (
    CannotDialError,
    ConnectionLostError,
    NoBrokerThereError,
    Transport,
    UntrustedError,
    WrongProtocolError,
)


class AddressFinder:
    """Finds the broker of a queue among some addresses, without access to its object."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        queue: str,
        transport: Transport,
        client: str,
        partitions: int = 0,
    ) -> None:
        """Find the broker of a queue, or of a partition; ``partitions`` is how many it has."""
        self._addresses = addresses
        self._is_secure = any(address.startswith(SECURE) for address in addresses)
        self._queue = queue
        self._where = f"bucketq://{','.join(addresses)}/{queue}"
        self._transport = transport
        self._client = client
        self._partitions = partitions
        self._incarnation = ""

    async def find(self) -> Committer:
        """Ping all addresses at once, and then the leaders that brokers there name."""
        found: dict[str, Pong | ConnectionLostError] = {}
        async with aclosing(self._ask_all()) as answers:
            async for address, answer in answers:
                if isinstance(answer, Pong):
                    self._check_partitions(address, answer)
                if isinstance(answer, Pong) and answer.role == "leading":
                    self._check_incarnation(address, answer)
                    return await self._converse(address, answer)
                found[address] = answer
        errors = [answer for answer in found.values() if isinstance(answer, ConnectionLostError)]
        none = NotYetError(f"no broker leads at {', '.join(self._addresses)}")
        trouble: Exception = errors[-1] if errors else none
        misfits = sum(isinstance(error, UntrustedError | WrongProtocolError) for error in errors)
        strangers = sum(isinstance(error, NoBrokerThereError) for error in errors)
        if misfits and misfits + strangers == len(found):
            raise AccessDeniedError(str(trouble)) from trouble
        if strangers == len(found) and not self._incarnation:
            await self._refuse_unknown()
        raise NotYetError(str(trouble)) from trouble

    find_broker = find

    async def _ask_all(self) -> AsyncGenerator[tuple[str, Pong | ConnectionLostError]]:
        """Ping each address, and the leaders that brokers there name, as answers come.

        While one is silent, those that answered are pinged again: one of them may replace it.
        """
        loop = asyncio.get_running_loop()
        asking = {address: loop.create_task(self._ask(address)) for address in self._addresses}
        known, silent = dict.fromkeys(asking), dict.fromkeys(asking)
        try:
            while silent:
                await asyncio.wait(asking.values(), return_when=asyncio.FIRST_COMPLETED)
                for address in [each for each, task in asking.items() if task.done()]:
                    answer = asking.pop(address).result()
                    silent.pop(address, None)
                    yield address, answer
                    if not isinstance(answer, Pong):
                        continue
                    asking[address] = loop.create_task(self._ask(address, FOLLOW_S))
                    leader = secured(answer.leader, tls=self._is_secure)
                    if answer.leader and address in self._addresses and leader not in known:
                        asking[leader] = loop.create_task(self._ask(leader))
                        known[leader] = silent[leader] = None
        finally:
            for task in asking.values():
                task.cancel()
            await asyncio.gather(*asking.values(), return_exceptions=True)

    async def _ask(self, address: str, after_s: float = 0.0) -> Pong | ConnectionLostError:
        await asyncio.sleep(after_s)
        try:
            return await self._transport.ping(address, self._ping(), PING_S)
        except ConnectionLostError as error:
            return error

    async def sign_of(self, connection: ClientConnection) -> Sign:
        """Ping the leader, unless it is replaced before it answers."""
        asking = ask_on(lambda: self._sign_of(connection))
        return await unless_replaced(asking, self._until_replaced(connection)) or Sign.GONE

    async def _until_replaced(self, connection: ClientConnection) -> None:
        """Wait until another broker answers that it leads in a later epoch."""
        while True:
            await asyncio.sleep(FOLLOW_S)
            async with aclosing(self._ask_all()) as answers:
                async for _, answer in answers:
                    if not isinstance(answer, Pong) or answer.role != "leading":
                        continue
                    if answer.epoch > connection.epoch:
                        return

    async def _sign_of(self, connection: ClientConnection) -> Sign:
        try:
            pong = await self._transport.ping(connection.address, self._ping(), PING_S)
        except NoBrokerThereError:
            return Sign.GONE
        except UntrustedError as error:
            raise CannotDialError(str(error)) from error
        except CannotDialError:
            raise
        except ConnectionLostError:
            return Sign.SILENT
        is_it = pong.broker == connection.broker and pong.role == "leading"
        return Sign.ALIVE if is_it else Sign.GONE

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.close()

    def _ping(self) -> Ping:
        """Name the queue if it has a name: the answer shows if another queue has replaced it."""
        return Ping(queue=self._queue, incarnation="" if self._queue else self._incarnation)

    def _check_partitions(self, address: str, pong: Pong) -> None:
        if pong.partitions != self._partitions:
            message = (
                f"the queue at {address} has {pong.partitions or 'no'} partitions, and "
                f"{self._partitions or 'none'} are asked for"
            )
            raise OtherPartitionsError(message, pong.partitions)

    def _check_incarnation(self, address: str, pong: Pong) -> None:
        if self._incarnation and pong.incarnation != self._incarnation:
            message = (
                f"{address} now serves another queue under this name (incarnation "
                f"{pong.incarnation}, it was {self._incarnation}): connect again"
            )
            raise SupersededError(message)

    async def _refuse_unknown(self) -> None:
        """Raise ``QueueNotFoundError`` if brokers answer and none of them knows the queue."""
        hello = Hello(queue=self._queue, client=self._client, partitions=self._partitions)
        unknown: QueueNotFoundError | None = None
        for address in self._addresses:
            try:
                wire = await self._transport.open(address, hello, OPEN_S)
            except QueueNotFoundError as error:
                unknown = error
            except (ConnectionLostError, SupersededError):
                return
            else:
                await wire.close()
                return
        if unknown is not None:
            raise unknown

    async def _converse(self, address: str, pong: Pong) -> Committer:
        hello = Hello(
            queue=self._queue,
            incarnation=self._incarnation,
            broker=pong.broker,
            client=self._client,
            partitions=self._partitions,
        )
        try:
            wire = await self._transport.open(address, hello, OPEN_S)
        except UntrustedError as error:
            raise AccessDeniedError(str(error)) from error
        except (ConnectionLostError, SupersededError, QueueNotFoundError) as error:
            raise NotYetError(str(error)) from error
        self._incarnation = wire.welcome.incarnation
        return ClientConnection(wire, address, self._where)
