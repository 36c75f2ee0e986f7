"""Brokers in a process of their own, for the queues of the contract tests.

One process serves all queues of a test run, each behind an address of its own: a process for each
test would take longer than the tests. It reads commands, one a line, and ends with its input.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from msgspec.structs import replace

from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.broker.broker import Broker
from bucketq.broker.server import Server
from bucketq.clock import SystemClock
from bucketq.commit.objects.register import Register
from bucketq.model import settings
from bucketq.rpc.address import this_host
from bucketq.rpc.grpc.grpc_client import GrpcTransport
from bucketq.store.base import ObjectStore
from bucketq.store.url import Location, open_store
from tests.environ import ROOT, child_path

NAME = "queue"
"""What a queue is called by its broker, unless a test has another name for it."""


class Brokers:
    """The process, seen from the tests. It is started when the first queue is served."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._addresses: dict[str, str] = {}

    def is_serving(self, url: str) -> bool:
        return url in self._addresses

    def serve(self, url: str, name: str = NAME) -> str:
        """See that a broker leads a queue; returns its address."""
        if url not in self._addresses:
            spill_bytes = settings.DEEP.spill_bytes  # A test that is marked shallow sets it back.
            self._addresses[url] = self._send(f"serve {url} {name} {spill_bytes}")
        return self._addresses[url]

    def stop(self, url: str) -> None:
        if self._addresses.pop(url, None) is not None:
            self._send(f"stop {url}")

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=30)

    def _send(self, line: str) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.contract.brokers"],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": child_path(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{line}\n")
        stdin.flush()
        answer = stdout.readline().strip()
        assert answer, "the process with the brokers has ended"
        return answer


async def _serve(url: str, name: str, spill_bytes: str) -> Server:
    settings.DEEP = replace(settings.DEEP, spill_bytes=int(spill_bytes))
    transport, clock, location = GrpcTransport(), SystemClock(), open_store(url)
    server = Server(transport, clock, this_host())
    places = [location]
    if location.partition is not None:
        first = Register(*_place(location), clock, location.partition)
        queue = (await first.open(create=True)).state.incarnation
        count = location.partition.count
        places += [location.at_partition(n, count, queue) for n in range(1, count)]
    for index, place in enumerate(places):
        register = Register(*_place(place), clock, place.partition)
        archive = ArchiveWriter(place.store, Layout.of(place.store.url, place.key))
        broker = Broker(register, clock, transport, archive=archive)
        server.add(f"{name}/{index}" if index else name, broker)
    await server.start("127.0.0.1:0")
    for broker in server.brokers.values():
        await broker.leading.wait()
    return server


def _place(location: Location) -> tuple[ObjectStore, str, str]:
    return location.store, location.key, location.url


async def _main() -> None:
    servers: dict[str, Server] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        verb, url, *options = line.split()
        if verb == "serve":
            servers[url] = await _serve(url, *options)
            answer = servers[url].address
        else:
            await servers.pop(url).stop()
            answer = "stopped"
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    for server in servers.values():
        await server.stop()


if __name__ == "__main__":
    asyncio.run(_main())
