"""How handlers on executors report how far they have come, while their task runs.

Spark has no way from a running task to the driver that Python reaches, so reports are sent as
datagrams to the address by which executors know the driver. Each carries a digest under a key that
travels with the task. A report that is lost costs nothing: the newest one is sent again. Where
datagrams do not get through, progress is not seen, and all else works.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b

import msgspec
from msgspec import Struct

from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError
from bucketq.model.records import Progress
from bucketq.worker.context import Context

_log = logging.getLogger(__name__)

_ROUND_S = 1.0
"""How often a task sends the newest reports of its handlers: heartbeats are rarer."""
_DIGEST_BYTES = 16
"""As long as other digests against forgery."""
_KEY_BYTES = 32


class ReportAddress(Struct, frozen=True):
    """Where executors send reports."""

    host: str
    port: int
    family: int
    key: bytes


class HandlerReport(Struct, frozen=True, array_like=True):
    """What is in a datagram, after its digest."""

    job: str
    attempt: int
    progress: Progress


_decode = msgspec.json.Decoder(HandlerReport).decode


def _digest(key: bytes, body: bytes) -> bytes:
    return blake2b(body, key=key, digest_size=_DIGEST_BYTES).digest()


class ReportSender:
    """On an executor: sends the newest reports of the handlers that run in one process."""

    def __init__(self, address: ReportAddress) -> None:
        self._address = address
        self._newest: dict[str, HandlerReport] = {}
        self._lock = threading.Lock()
        self._is_running = False
        self._is_over = threading.Event()

    def report(self, context: Context, progress: Progress) -> None:
        """Send this from now on, until ``end``."""
        job = context.job
        with self._lock:
            if context.cancelled or self._is_over.is_set():
                return
            self._newest[job.id] = HandlerReport(job.id, job.attempt, progress)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, daemon=True).start()

    def end(self, context: Context) -> None:
        """Forget a handler that is over."""
        context.on_report = None
        with self._lock:
            self._newest.pop(context.job.id, None)

    def close(self) -> None:
        """Send nothing any more."""
        self._is_over.set()

    def _run(self) -> None:
        to = self._address
        with suppress(OSError), socket.socket(to.family, socket.SOCK_DGRAM) as sender:
            found = socket.getaddrinfo(to.host, to.port, to.family, socket.SOCK_DGRAM)
            while True:
                with self._lock:
                    reports = tuple(self._newest.values())
                for report in reports:
                    body = msgspec.json.encode(report)
                    with suppress(OSError):  # The driver does not listen there at the moment.
                        sender.sendto(_digest(to.key, body) + body, found[0][4])
                if self._is_over.wait(_ROUND_S):
                    return


class ReportReceiver(asyncio.DatagramProtocol):
    """In the driver: passes reports on to the contexts of the jobs that it holds."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.context_of: Callable[[str], Context | None] = lambda _: None
        """Finds the attempt that is held, if any, by the id of its job."""
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to close it."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take a report, if it is of a task of this driver and of an attempt that is held."""
        del addr
        digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if not hmac.compare_digest(digest, _digest(self._key, body)):
            return
        with suppress(msgspec.MsgspecError, InvalidRequestError):
            report = _decode(body)
            context = self.context_of(report.job)
            if context is not None and context.attempt == report.attempt:
                context.note(report.progress)

    def close(self) -> None:
        """Stop listening."""
        if self._transport is not None:
            self._transport.close()


async def open_receiver(bind: str, host: str) -> tuple[ReportReceiver, ReportAddress] | None:
    """Listen at ``bind`` for what executors send to ``host``; None if that is not possible."""
    key = SystemClock().entropy(_KEY_BYTES)
    receiver, loop = ReportReceiver(key), asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_datagram_endpoint(lambda: receiver, local_addr=(bind, 0))
    except OSError as error:
        _log.warning("progress of handlers on executors is not seen: %s: %s", bind, error)
        return None
    own: socket.socket = transport.get_extra_info("socket")
    return receiver, ReportAddress(host, own.getsockname()[1], int(own.family), key)
