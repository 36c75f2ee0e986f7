"""What a relay between a client and its broker can read, and what keeps it from that.

The proof of a broker says that it knows the token, not over which connection it was asked. A relay
that passes it on is shown the token, unless TLS hides what it passes.
``docs/guides/security.md`` says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import bucketq
from tests.chaos.fleet import BrokerProcess, Fleet
from tests.security.certificates import Authority

PAYLOAD = "a payload that only its readers should know"


class Relay:
    """Passes bytes on in both directions, and keeps a copy."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.seen = bytearray()

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                self.seen += data
                sink.write(data)
                await sink.drain()
        sink.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        try:
            with suppress(asyncio.CancelledError):  # At the end of the test.
                await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))
        finally:
            back.close()
            writer.close()


@asynccontextmanager
async def relay_to(broker: BrokerProcess) -> AsyncIterator[tuple[Relay, str]]:
    relay = Relay(broker.address)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    try:
        yield relay, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_over_tls_a_relay_reads_neither_token_nor_payload(
    processes: Fleet, url: str, admin: str, authority: Authority
) -> None:
    broker = processes.serve(f"jobs={url}", *authority.broker.options)
    broker.wait_until_leading()
    broker.wait_until_serving()
    async with relay_to(broker) as (relay, address):
        place = f"bucketqs://{address}/jobs"
        async with bucketq.connect(place, token=admin, tls=authority.trust, timeout_s=30) as queue:
            await queue.push("mail", PAYLOAD)
        assert relay.seen
        assert admin.encode() not in relay.seen
        assert PAYLOAD.encode() not in relay.seen


async def test_in_plaintext_a_relay_on_the_own_host_reads_both_as_is_documented(
    admin: str, broker: BrokerProcess
) -> None:
    """If this fails, the proof binds the connection by now: say so in the documents."""
    async with relay_to(broker) as (relay, address):
        place = f"bucketq://{address}/jobs"
        async with bucketq.connect(place, token=admin, timeout_s=30) as queue:
            await queue.push("mail", PAYLOAD)
        assert admin.encode() in relay.seen
        assert PAYLOAD.encode() in relay.seen
