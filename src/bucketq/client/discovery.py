"""Finds the broker of a queue through its object, and decides what to do if there is none.

A finder looks once. It returns a committer, or raises ``NotYetError``, and its client calls it
again. Evidence against a broker that does not answer is kept between calls, and dropped at the
first sign of life or when the object names another epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from bucketq.broker.takeover import ENOUGH, PING_S, WEIGHT, Sign, is_out_of_reach, probe
from bucketq.client.client_connection import ClientConnection
from bucketq.client.launcher import Launcher
from bucketq.codec.heading import Heading
from bucketq.commit.base import Committer
from bucketq.commit.objects.heading_reader import HeadingReader
from bucketq.errors import (
    AccessDeniedError,
    BucketQError,
    QueueNotFoundError,
    StoreRefusedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.operations import Request, Retire
from bucketq.model.records import BrokerRecord
from bucketq.rpc.address import is_loopback, secured
from bucketq.rpc.messages import Hello
from bucketq.rpc.transport import CannotDialError, ConnectionLostError, Transport, UntrustedError
from bucketq.store.base import ObjectMissingError

if TYPE_CHECKING:  # Most clients of a broker never write directly.
    from bucketq.commit.direct_committer import DirectCommitter

_log = logging.getLogger("bucketq.client")

OPEN_S = 5.0
"""How long a broker may take to welcome a client: a few round trips, even if it is busy."""
FOLLOW_S = 0.2
"""How often to look whether another broker has replaced one that does not answer: little beside the
seconds that a failover takes."""
_LONGEST_START_S = 2.5
"""How long to wait for a broker that another process starts. One that starts normally leads after
a second; after this time the client writes directly."""


class NotYetError(Exception):
    """No committer was found; look again soon."""


class UnreadableError(NotYetError):
    """The object cannot be read now, so it is unknown whether there is a broker."""


class NotForUsError(NotYetError):
    """There may be a broker, but this client must not use it, or is rejected by it."""


class Finder(Protocol):
    """Finds a committer for the requests of one client."""

    async def find(self) -> Committer:
        """Look once. Raises ``NotYetError``, or an error that another look will not fix."""
        ...

    async def find_broker(self) -> Committer:
        """Look once, for a broker only. Raises ``NotYetError``."""
        ...

    async def sign_of(self, connection: ClientConnection) -> Sign:
        """Ping the broker of a connection.

        Raises ``CannotDialError`` if this side cannot ping now, or may not trust the answer.
        """
        ...

    async def close(self) -> None:
        """Close everything that was opened for the search."""
        ...


class ObjectFinder:
    """Finds the broker that a queue's object names; without one, starts one or writes directly."""

    def __init__(
        self,
        reader: HeadingReader,
        transport: Transport,
        host: str,
        *,
        create: Callable[[], Awaitable[object]] | None,
        client: str,
        is_shared: bool = True,
        launcher: Launcher | None = None,
        write_directly: Callable[[], Awaitable[DirectCommitter]] | None = None,
        wants_tls: bool = False,
    ) -> None:
        """Make a finder that has not looked yet.

        Args:
            reader: Reads which broker the queue's object names.
            transport: How brokers are dialled.
            host: Where this process runs (``this_host``).
            create: Creates the queue if it does not exist; None: that is an error.
            client: A name for this client, for the broker's log.
            is_shared: Whether other hosts may see the object. If not, a loopback address in it is
                one of this host, whichever process recorded it.
            launcher: Starts a broker; None: it must not start one.
            write_directly: Makes a committer without a broker; None: it needs a broker.
            wants_tls: Whether brokers on other hosts are used over TLS only.
        """
        self._reader = reader
        self._transport = transport
        self._host = host
        self._create = create
        self._client = client
        self._is_shared = is_shared
        self._launcher = launcher
        self._write_directly = write_directly
        self._wants_tls = wants_tls
        self._has_warned = False
        self._incarnation = ""
        self._record: BrokerRecord | None = None
        self._evidence = 0
        self._had_broker = False
        self._in_vain_since: float | None = None

    async def find(self) -> Committer:
        """Look for a broker; if it is certain that there is none, do without."""
        try:
            return await self.find_broker()
        except UnreadableError:
            raise
        except NotForUsError as error:
            # A broker that serves others is not replaced because this client cannot use it.
            return await self._do_alone(error)
        except NotYetError:
            record = self._record
            if record is None or not record.address:
                return await self._do_without(record)
            if self._is_out_of_reach(record):
                return await self._direct()
            if self._evidence < ENOUGH:
                raise
            # If this look finds no committer either, the next one pings the broker again.
            self._evidence = ENOUGH - 1
            return await self._do_without(record)

    async def find_broker(self) -> Committer:
        """Read the object, and ping the broker that it names."""
        broker = self._launcher.broker if self._launcher else None
        if broker is not None and broker.leader is not None:
            return broker.leader
        heading = await self._read()
        before, record = self._record, heading.broker
        if before is None or record is None or record.epoch != before.epoch:
            self._evidence = 0
        self._record = record
        if record is None or not record.address:
            message = f"no broker serves {self._reader.where}"
            raise NotYetError(message)
        if self._is_out_of_reach(record):
            # A loopback address of another host: this client cannot reach it, nor replace it.
            message = f"the broker at {record.address} is on another host"
            raise NotYetError(message)
        if self._wants_tls and not record.tls and not is_loopback(record.address):
            message = (
                f"the broker at {record.address} does not speak TLS, which this client requires: "
                "start it with --tls-cert and --tls-key"
            )
            raise NotForUsError(message)
        if self._evidence < ENOUGH:
            try:
                sign = await self._probe(record)
            except CannotDialError as error:
                raise NotYetError(str(error)) from error
            if sign is Sign.ALIVE:
                self._in_vain_since = None
                self._had_broker = True
                return await self._converse(record, heading.incarnation)
        message = f"the broker at {record.address} does not answer"
        raise NotYetError(message)

    async def sign_of(self, connection: ClientConnection) -> Sign:
        """Ping the broker that the object named when the connection was made."""
        record = self._record
        if record is None or record.address != connection.address:
            return Sign.GONE
        try:
            return await self._probe(record)
        except NotForUsError as error:
            raise CannotDialError(str(error)) from error

    async def _until_replaced(self, record: BrokerRecord) -> None:
        """Wait until the object names another broker, or none."""
        while True:
            await asyncio.sleep(FOLLOW_S)
            try:
                found = (await self._reader.read()).broker
            except BucketQError:
                continue  # The next look reads the object, too, and raises the error.
            if found is None or found.epoch != record.epoch or not found.address:
                return

    def _is_out_of_reach(self, record: BrokerRecord) -> bool:
        return self._is_shared and is_out_of_reach(record, self._host)

    async def _probe(self, record: BrokerRecord) -> Sign:
        """Ping a broker, and keep the evidence. One that is replaced before it answers is gone."""
        asking = probe(self._transport, record, self._incarnation)
        try:
            sign = await unless_replaced(asking, self._until_replaced(record))
        except UntrustedError as error:
            raise NotForUsError(str(error)) from error
        if sign is None:
            return Sign.GONE
        self._evidence = 0 if sign is Sign.ALIVE else self._evidence + WEIGHT[sign]
        return sign

    async def close(self) -> None:
        """Close the launcher and the transport."""
        if self._launcher is not None:
            await self._launcher.close()
        await self._transport.close()

    async def _read(self) -> Heading:
        try:
            heading = await self._reader.read()
        except ObjectMissingError as error:
            if self._create is None:
                message = f"no queue at {self._reader.where}; push to it, or run `bucketq create`"
                raise QueueNotFoundError(message) from error
            await self._create()
            return await self._read()
        except UnavailableError as error:
            raise UnreadableError(str(error)) from error
        if self._incarnation and heading.incarnation != self._incarnation:
            message = (
                f"{self._reader.where} now holds another queue (incarnation "
                f"{heading.incarnation}, it was {self._incarnation}): connect again"
            )
            raise SupersededError(message)
        self._incarnation = heading.incarnation
        return heading

    async def _converse(self, record: BrokerRecord, incarnation: str) -> Committer:
        partition = self._reader.partition
        hello = Hello(
            incarnation=incarnation,
            broker=record.id,
            client=self._client,
            partitions=0 if partition is None else partition.count,
        )
        try:
            address = secured(record.address, tls=record.tls)
            wire = await self._transport.open(address, hello, OPEN_S)
        except (UntrustedError, AccessDeniedError) as error:
            raise NotForUsError(str(error)) from error
        except (ConnectionLostError, SupersededError, QueueNotFoundError) as error:
            raise NotYetError(str(error)) from error
        return ClientConnection(wire, record.address, self._reader.where)

    async def _do_alone(self, error: NotForUsError) -> Committer:
        """Write directly beside a broker that this client cannot use, or raise why it cannot."""
        if self._write_directly is None:
            raise AccessDeniedError(str(error)) from error
        self._warn("writing directly, which is slow beside a broker: %s", error)
        return await self._write_directly()

    def _warn(self, what: str, error: Exception) -> None:
        """Log why there is no broker for this client, once."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s: " + what, self._reader.where, error)

    async def _do_without(self, record: BrokerRecord | None) -> Committer:
        """Start a broker, write directly, or wait for one, because none leads."""
        if self._launcher is not None:
            started = await self._start(self._launcher, record)
            if started is not None:
                return started
        if self._write_directly is None:
            message = f"no broker serves {self._reader.where}"
            raise NotYetError(message)
        is_orphaned = self._had_broker or (record is not None and record.address != "")
        if is_orphaned and self._in_vain_s() <= _LONGEST_START_S:
            # A standby would have to compete with every client that does not wait for it.
            message = "no broker answers, and none has taken over yet"
            raise NotYetError(message)
        self._had_broker = False
        self._in_vain_since = None
        direct = await self._direct()
        if record is not None and record.address:
            # While a broker is recorded, no other process ends the leases of silent workers.
            with suppress(BucketQError):
                await direct.submit(Request(Retire(id=record.id, epoch=record.epoch)), PING_S)
        return direct

    async def _start(self, launcher: Launcher, record: BrokerRecord | None) -> Committer | None:
        """Start a broker; None: that is not possible."""
        try:
            await launcher.launch(record.epoch if record else 0)
        except StoreRefusedError as error:
            # The object may be read-only here, or the lock of this host cannot be used.
            self._warn("writing directly, because no broker can be started here: %s", error)
            return None
        broker = launcher.broker
        if broker is not None and broker.leader is not None:
            return broker.leader
        if self._in_vain_s() > _LONGEST_START_S:
            # The process that may start one on this host is stopped, or makes no progress.
            return None
        message = "a broker is being started"
        raise NotYetError(message)

    def _in_vain_s(self) -> float:
        """How long no broker has been found."""
        now_s = asyncio.get_running_loop().time()
        if self._in_vain_since is None:
            self._in_vain_since = now_s
        return now_s - self._in_vain_since

    async def _direct(self) -> Committer:
        if self._write_directly is None:
            message = f"no broker of {self._reader.where} can be reached from this host"
            raise NotYetError(message)
        return await self._write_directly()


async def unless_replaced(
    asking: Coroutine[Any, Any, Sign], replaced: Coroutine[Any, Any, None]
) -> Sign | None:
    """Return the sign of a broker; None if it is replaced before it answers."""
    loop = asyncio.get_running_loop()
    sign, following = loop.create_task(asking), loop.create_task(replaced)
    try:
        await asyncio.wait([sign, following], return_when=asyncio.FIRST_COMPLETED)
        return sign.result() if sign.done() else None
    finally:
        sign.cancel()
        following.cancel()
        await asyncio.gather(sign, following, return_exceptions=True)
