"""The other processes of ``broker.py``: a broker whose store is slow, an echo, and a profile.

Run as a program it is one of them::

    broker_processes.py serve URL              `bucketq serve`, to be profiled
    broker_processes.py slow URL               a broker on a file, each request 50 ms late
    broker_processes.py echo PATH              a bare gRPC stream; its address goes into PATH

With ``--profile PATH`` it takes samples from SIGUSR1 to SIGUSR2, and writes them to PATH.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import grpc.aio
import msgspec
from grpc.aio import EOF  # type: ignore[attr-defined]  # not in the stubs
from msgspec import Struct

from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.broker.broker import Broker
from bucketq.broker.server import Server
from bucketq.clock import SystemClock
from bucketq.commit.objects.register import Register
from bucketq.rpc.address import this_host
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.store.base import ObjectInfo, ObjectStore, StoredObject
from bucketq.store.url import open_store

A = TypeVar("A")

DELAY_S = 0.05
ECHO = "/echo/Stream"
_LENGTH_BYTES = 4
_SAMPLE_S = 0.001


class DelayedStore:
    """A store that delays every request."""

    def __init__(self, inner: ObjectStore, delay_s: float = DELAY_S) -> None:
        """Delay the requests to ``inner``."""
        self._inner = inner
        self._delay_s = delay_s

    @property
    def url(self) -> str:
        """Where the store is."""
        return self._inner.url

    @property
    def write_interval_s(self) -> float:
        """The pause between two writes; none."""
        return 0.0

    async def _late(self, answer: Awaitable[A]) -> A:
        await asyncio.sleep(self._delay_s)
        return await answer

    async def get(self, key: str) -> StoredObject:
        """Read an object."""
        return await self._late(self._inner.get(key))

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read an object that has changed."""
        return await self._late(self._inner.get_if_changed(key, etag))

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read a range of an object."""
        return await self._late(self._inner.get_range(key, offset, length))

    async def create(self, key: str, body: bytes) -> str:
        """Write a new object."""
        return await self._late(self._inner.create(key, body))

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object."""
        return await self._late(self._inner.replace(key, body, etag))

    async def put(self, key: str, body: bytes) -> str:
        """Write an object unconditionally."""
        return await self._late(self._inner.put(key, body))

    async def delete(self, key: str) -> None:
        """Remove an object."""
        await self._late(self._inner.delete(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List objects."""
        await asyncio.sleep(self._delay_s)
        async for info in self._inner.list(prefix):
            yield info

    async def close(self) -> None:
        """Close the store."""
        await self._inner.close()


class Samples(Struct):
    """Where the time went: counts of samples."""

    count: int = 0
    own: dict[str, dict[int, int]] = {}
    """By function and line, without what was called there."""
    total: dict[str, int] = {}
    """By function, with what it called."""

    def add(self, other: Samples) -> None:
        """Add the samples of another run."""
        self.count += other.count
        for where, count in other.total.items():
            self.total[where] = self.total.get(where, 0) + count
        for where, lines in other.own.items():
            mine = self.own.setdefault(where, {})
            for line, count in lines.items():
                mine[line] = mine.get(line, 0) + count


class Sampler:
    """Samples the main thread a thousand times in a second of CPU time.

    A sample is taken when the interpreter can handle a signal, so time in C counts for the line of
    Python that called it. Time of other threads counts for whatever the main thread does then,
    which is often nothing: ``select``.
    """

    def __init__(self) -> None:
        """Begin without samples."""
        self._samples = Samples()

    def start(self) -> None:
        """Take samples from now on."""
        signal.signal(signal.SIGPROF, self._take)
        signal.setitimer(signal.ITIMER_PROF, _SAMPLE_S, _SAMPLE_S)

    def stop(self) -> Samples:
        """Stop sampling; return the samples."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        return self._samples

    def _take(self, _number: int, frame: FrameType | None) -> None:
        found = Samples(1)
        if frame is not None:
            found.own[_name(frame)] = {frame.f_lineno or 0: 1}
        while frame is not None:
            found.total[_name(frame)] = 1
            frame = frame.f_back
        self._samples.add(found)


def _name(frame: FrameType) -> str:
    code = frame.f_code
    _, _, place = code.co_filename.rpartition("/src/")
    place = place or "/".join(Path(code.co_filename).parts[-2:])
    return f"{place} {code.co_qualname}"


def _sample_between_signals(path: Path) -> None:
    sampler = Sampler()

    def stop(*_: object) -> None:
        _write(path, msgspec.json.encode(sampler.stop()))

    signal.signal(signal.SIGUSR1, lambda *_: sampler.start())
    signal.signal(signal.SIGUSR2, stop)


def _write(path: Path, body: bytes) -> None:
    """Write a file atomically."""
    written = path.with_suffix(".new")
    written.write_bytes(body)
    written.rename(path)


async def _until_told() -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    await told.wait()


async def _serve_slowly(url: str) -> None:
    """Do what ``bucketq serve`` does, on a store that has no address."""
    location, clock, transport = open_store(url), SystemClock(), GrpcTransport()
    store = DelayedStore(location.store)
    register = Register(store, location.key, location.url, clock)
    archive = ArchiveWriter(store, Layout.of(store.url, location.key))
    server = Server(transport, clock, this_host())
    server.add("queue", Broker(register, clock, transport, archive=archive))
    await server.start("127.0.0.1:0")
    await _until_told()
    await server.stop()
    await transport.close()
    await store.close()


def echo_message(size_bytes: int, answer_bytes: int) -> bytes:
    """A message of some size that asks for an answer of some size."""
    return answer_bytes.to_bytes(_LENGTH_BYTES) + bytes(max(0, size_bytes - _LENGTH_BYTES))


async def _echo(path: Path) -> None:
    async def stream(_requests: object, context: Any) -> None:
        while (body := await context.read()) is not EOF:
            await context.write(bytes(int.from_bytes(body[:_LENGTH_BYTES])))

    _, service, method = ECHO.split("/")
    handler = grpc.stream_stream_rpc_method_handler(stream)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _write(path, f"127.0.0.1:{port}".encode())
    await _until_told()
    await server.stop(0)


def main(arguments: Iterable[str]) -> None:
    """Run one of the processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profile", type=Path)
    parser.add_argument("what", choices=["serve", "slow", "echo"])
    parser.add_argument("where")
    options = parser.parse_args(list(arguments))
    if options.profile:
        _sample_between_signals(options.profile)
    if options.what == "echo":
        asyncio.run(_echo(Path(options.where)))
    elif options.what == "slow":
        asyncio.run(_serve_slowly(options.where))
    else:
        from bucketq.cli import main as command  # noqa: PLC0415 - the others need no extra

        sys.argv[1:] = ["serve", "--quiet", options.where]
        command()


if __name__ == "__main__":
    main(sys.argv[1:])
