"""Finds out what listens at an address, if gRPC could not connect.

gRPC reports *unavailable* for a refused connection, for a peer that speaks another protocol, and
for a network that drops all packets. The first two prove that no broker listens there; the third
does not. So this module connects by itself, sends the beginning of HTTP/2, and looks at the
beginning of the answer. It does the same over TLS, to find out which side does not trust the other.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Iterable

from bucketq.rpc.address import ResolvedAddress
from bucketq.rpc.transport import CannotDialError, WrongProtocolError

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
"""What an HTTP/2 client sends first: a fixed line, and an empty SETTINGS frame."""
_FRAME_HEADER_BYTES = 9
_SETTINGS = 4
_TLS_ALERT = b"\x15\x03"
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""What OpenSSL reports if the answer is not TLS."""
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors that prevent this host from connecting to anything."""


async def is_deserted(place: ResolvedAddress, timeout_s: float) -> bool:
    """Whether it is certain that no broker listens at an address.

    False means unknown: there may be one behind a network that fails. Raises ``CannotDialError`` if
    this side cannot connect to anything.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _are_all_deserted([str(ip) for ip in place.ips], place.port)
    except (TimeoutError, OSError):
        return False


async def tls_trouble(ip: str, port: int, context: ssl.SSLContext, name: str) -> str:
    """Why a TLS handshake fails at an address; empty: it succeeds.

    Raises ``WrongProtocolError`` if the peer does not speak TLS, ``OSError`` if it does not answer.
    """
    try:
        heard = await _first_answer(ip, port, context, name)
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message.rstrip(".")
        return f"its certificate cannot be trusted: {why}"
    except ssl.SSLError as error:
        if error.reason in _NO_TLS:
            message = f"what listens at {ip}:{port} does not speak TLS"
            raise WrongProtocolError(message) from error
        why = (error.reason or str(error)).lower().replace("_", " ")
        return f"it rejects the TLS handshake: {why}"
    if heard:
        return ""
    return "it closes the connection after the handshake, as for a wrong client certificate"


async def speaks_tls(ip: str, port: int) -> bool:
    """Whether what listens at an address answers a TLS handshake. Raises ``OSError``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent to it: the only question is whether it speaks TLS at all.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        await _first_answer(ip, port, context, "")
    except ssl.SSLError as error:
        return error.reason not in _NO_TLS
    return True


async def _first_answer(ip: str, port: int, context: ssl.SSLContext, name: str) -> bytes:
    """Send the beginning of HTTP/2 over TLS, and return the beginning of the answer."""
    reader, writer = await asyncio.open_connection(ip, port, ssl=context, server_hostname=name)
    try:
        writer.write(_PREFACE)
        return await reader.read(_FRAME_HEADER_BYTES)
    finally:
        writer.transport.abort()


async def _are_all_deserted(ips: Iterable[str], port: int) -> bool:
    """Whether every address of a host refuses, or something else listens there."""
    refused = 0
    for ip in ips:
        try:
            if not await _is_another_service(ip, port):
                return False
        except ConnectionRefusedError:
            pass
        except OSError as error:
            if error.errno in _OURS:
                message = f"cannot connect to {ip}:{port}: {error.strerror}"
                raise CannotDialError(message) from error
            if error.errno != errno.EADDRNOTAVAIL:  # An address family that this host lacks.
                return False
            continue
        refused += 1
    return refused > 0


async def _is_another_service(ip: str, port: int) -> bool:
    """Whether a peer answers the beginning of HTTP/2 with something else.

    Silence proves nothing, nor does a closed connection: an overloaded broker may do either. A peer
    that requires TLS may be a broker that this client is not configured for.
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
