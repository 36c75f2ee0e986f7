"""Who listens at an address? Asked when gRPC could not get through.

gRPC says *unavailable* for a refused connection, for a peer that speaks something else, and for a
network that swallows everything. The first two are evidence that there is no broker; the third is
none. So the question is put once more, by hand: connect, say the first words of HTTP/2, and look
at the first words of the answer.
"""

from __future__ import annotations

import asyncio
import errno
import socket

from bucketq.rpc.address import split_address

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
"""What an HTTP/2 client says first: a fixed line, and settings that change nothing."""
_FRAME_HEADER_BYTES = 9
_SETTINGS = 4
_TLS_ALERT = b"\x15\x03"


async def is_deserted(address: str, timeout_s: float) -> bool:
    """Whether it is certain that no broker listens at an address.

    False means that nobody knows: there may be one, and the way to it be cut.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _all_desert(*split_address(address))
    except (TimeoutError, OSError, UnicodeError):
        return False


async def _all_desert(host: str, port: int) -> bool:
    """Whether every address of a host refuses, or is a stranger's."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    refused = 0
    for *_, (ip, *_rest) in found:
        try:
            if not await _is_stranger(str(ip), port):
                return False
        except ConnectionRefusedError:
            pass
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # A family that this host does not have.
                return False
            continue
        refused += 1
    return refused > 0


async def _is_stranger(ip: str, port: int) -> bool:
    """Whether a peer answers the beginning of HTTP/2 with something else.

    Silence proves nothing, and neither does a closed connection: both are what a broker under
    strain may do. A peer that wants TLS may be a broker that this client was not told enough of.
    """
    reader, writer = await asyncio.open_connection(ip, port)
    try:
        writer.write(_PREFACE)
        heard = b""
        while len(heard) < _FRAME_HEADER_BYTES:
            more = await reader.read(_FRAME_HEADER_BYTES - len(heard))
            if not more:
                break
            heard += more
    except OSError:
        return False
    finally:
        writer.transport.abort()
    if not heard or heard.startswith(_TLS_ALERT):
        return False
    return len(heard) < _FRAME_HEADER_BYTES or heard[3] != _SETTINGS
