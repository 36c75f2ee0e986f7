"""Who listens at an address? Asked when gRPC could not get through.

gRPC says *unavailable* for a refused connection, for a peer that speaks something else, and for a
network that swallows everything. The first two are evidence that there is no broker; the third is
none. So the question is put once more, by hand: connect, say the first words of HTTP/2, and look
at the first words of the answer. The same for TLS, of which gRPC says even less: which side does
not trust the other, and why.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterable

from bucketq.rpc.address import split_address
from bucketq.rpc.transport import CannotDialError, WrongProtocolError

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
"""What an HTTP/2 client says first: a fixed line, and settings that change nothing."""
_FRAME_HEADER_BYTES = 9
_SETTINGS = 4
_TLS_ALERT = b"\x15\x03"
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""What Python's TLS calls an answer that is none."""


_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Why this side cannot connect to anything."""


async def is_deserted(address: str, timeout_s: float, ips: Iterable[object] = ()) -> bool:
    """Whether it is certain that no broker listens at an address, which leads to ``ips``.

    False means that nobody knows: there may be one, and the way to it be cut. Raises
    ``CannotDialError`` if this side cannot connect to anything.
    """
    try:
        async with asyncio.timeout(timeout_s):
            host, port = split_address(address)
            return await _all_desert([str(ip) for ip in ips] or await _resolve(host, port), port)
    except (TimeoutError, OSError, UnicodeError):
        return False


async def tls_trouble(ip: str, port: int, context: ssl.SSLContext, name: str) -> str:
    """Why no connection over TLS can begin at an address; empty: there is no reason now.

    Raises ``WrongProtocolError`` where TLS is not spoken there, ``OSError`` where nobody answers.
    """
    try:
        heard = await _first_words(ip, port, context, name)
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message.rstrip(".")
        return f"its certificate cannot be trusted: {why}"
    except ssl.SSLError as error:
        if error.reason in _NO_TLS:
            message = f"whatever listens at {ip}:{port} does not speak TLS"
            raise WrongProtocolError(message) from error
        return f"it refuses TLS with us: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if heard:
        return ""
    return "it ends the connection after the handshake, as if it wanted another client certificate"


async def speaks_tls(ip: str, port: int) -> bool:
    """Whether whoever listens at an address answers the beginning of TLS. Raises ``OSError``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is said to it: whether it speaks TLS at all is the whole question.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        await _first_words(ip, port, context, "")
    except ssl.SSLError as error:
        return error.reason not in _NO_TLS
    return True


async def _resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(where[0]) for *_, where in found]


async def _first_words(ip: str, port: int, context: ssl.SSLContext, name: str) -> bytes:
    """Say the beginning of HTTP/2 inside TLS, and return the beginning of the answer."""
    reader, writer = await asyncio.open_connection(ip, port, ssl=context, server_hostname=name)
    try:
        writer.write(_PREFACE)
        return await reader.read(_FRAME_HEADER_BYTES)
    finally:
        writer.transport.abort()


async def _all_desert(ips: Iterable[str], port: int) -> bool:
    """Whether every address of a host refuses, or is a stranger's."""
    refused = 0
    for ip in ips:
        try:
            if not await _is_stranger(ip, port):
                return False
        except ConnectionRefusedError:
            pass
        except OSError as error:
            if error.errno in _OURS:
                message = f"cannot connect to {ip}:{port}: {error.strerror}"
                raise CannotDialError(message) from error
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
