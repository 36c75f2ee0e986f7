"""A way to a broker is cut, stopped up or swallows, one way or both ways, until it is healed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.chaos.ways import BrokerWay, Direction, Fault
from tests.servers.process import HOST


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while portion := await reader.read(100):
            writer.write(portion.upper())
    writer.close()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, word: bytes) -> bytes:
    """Send a word; returns the answer, nothing where the connection ended."""
    writer.write(word)
    try:
        return await asyncio.wait_for(reader.read(100), 0.5)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("direction", ["to the broker", "from the broker", "both ways"])
@pytest.mark.parametrize(
    ("fault", "later"), [("cut", b""), ("hold", b"TWO"), ("swallow", None)], ids=str
)
async def test_a_way_does_what_is_wanted_until_it_is_healed(
    fault: Fault, later: bytes | None, direction: Direction
) -> None:
    with BrokerWay("seed") as way:
        server = await asyncio.start_server(echo, HOST, way.target_port)
        async with server:
            host, port = way.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            assert await ask(reader, writer, b"one") == b"ONE"
            way.strike(fault, direction, 1.0)
            if fault == "cut":
                assert await ask(reader, writer, b"two") == b""
            else:
                with pytest.raises(TimeoutError):
                    await ask(reader, writer, b"two")
            way.heal()
            if later is None:
                with pytest.raises(TimeoutError):
                    await ask(reader, writer, b"three")
            elif later:
                assert await asyncio.wait_for(reader.read(100), 5.0) == later
            writer.close()
            anew, again = await asyncio.open_connection(host, int(port))
            assert await ask(anew, again, b"four") == b"FOUR"
            again.close()
            for one in (writer, again):
                with suppress(ConnectionError):
                    await one.wait_closed()
