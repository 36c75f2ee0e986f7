"""``HttpEndpoint``: ``/metrics``, ``/healthz`` and ``/readyz`` over HTTP.

It answers one GET on each connection and needs no web framework. What a client may send is bounded
in size and time. ``/healthz`` and ``/readyz`` say one word and need no token, because the probes
of an orchestrator have none.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from bucketq.errors import UnavailableError
from bucketq.rpc.address import is_loopback, split_address

_REQUEST_S = 5.0
"""How long a client may take to send its request, and to take the answer."""
_HEAD_BYTES = 8192
"""The longest request: browsers send less than 2 KiB."""
_MOST_CONNECTIONS = 64
"""Far more than Prometheus and some probes need."""
_PLAIN = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class HttpReply(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes
    content_type: str = _PLAIN


class HttpEndpoint:
    """Serves the metrics of a registry, and whether the process is alive and ready."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        is_ready: Callable[[], bool],
        prepare: Callable[[], Awaitable[None]] | None = None,
        token: str = "",
    ) -> None:
        """Make an endpoint; ``start`` starts it.

        Args:
            registry: What ``/metrics`` shows.
            is_ready: The answer of ``/readyz``.
            prepare: Awaited before the metrics are collected.
            token: What clients of ``/metrics`` must show as a bearer token; empty: nothing.
        """
        self._registry = registry
        self._is_ready = is_ready
        self._prepare = prepare
        self._token = token.encode()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._is_local = False
        self.address = ""
        """Where it listens, once it has started."""

    async def start(self, listen: str, tls: ssl.SSLContext | None = None) -> None:
        """Listen at ``HOST:PORT``. Raises ``UnavailableError`` if that is not possible."""
        host, port = split_address(listen)
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=_HEAD_BYTES, ssl=tls
            )
        except OSError as error:
            raise UnavailableError(f"cannot listen at {listen} for metrics: {error}") from error
        self._is_local = is_loopback(listen)
        bound = self._server.sockets[0].getsockname()[1]
        self.address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= _MOST_CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await self._exchange(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, and answer it."""
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            reply, is_head = HttpReply(400, b"the request is too long\n"), False
        else:
            method, path, headers = _parse(head)
            reply, is_head = await self._reply(method, path, headers), method == "HEAD"
        writer.write(_head_of(reply) + (b"" if is_head else reply.body))
        async with asyncio.timeout(_REQUEST_S):
            await writer.drain()

    async def _reply(self, method: str, path: str, headers: dict[str, str]) -> HttpReply:
        if method not in {"GET", "HEAD"}:
            return (
                HttpReply(405, b"only GET is supported\n")
                if method
                else HttpReply(400, b"not HTTP\n")
            )
        if self._is_local and not _is_local_name(headers.get("host", "")):
            # A web page whose host name was made to point here must not read anything.
            return HttpReply(421, b"this is not the host that you asked for\n")
        match path.partition("?")[0]:
            case "/healthz":
                return HttpReply(200, b"ok\n")
            case "/readyz":
                return (
                    HttpReply(200, b"ready\n")
                    if self._is_ready()
                    else HttpReply(503, b"not ready\n")
                )
            case "/metrics":
                return await self._metrics(headers.get("authorization", ""))
            case _:
                return HttpReply(404, b"see /metrics, /healthz and /readyz\n")

    async def _metrics(self, authorization: str) -> HttpReply:
        scheme, _, shown = authorization.partition(" ")
        is_known = hmac.compare_digest(shown.strip().encode(), self._token)
        if self._token and not (scheme.lower() == "bearer" and is_known):
            return HttpReply(401, b"a bearer token is required\n")
        if self._prepare is not None:
            await self._prepare()
        return HttpReply(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)


def _parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return method, path and headers; an empty method: it is not HTTP."""
    line, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = line.partition(" ")
    path, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        return "", "", {}
    pairs = (each.partition(":") for each in lines if each)
    return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _is_local_name(host: str) -> bool:
    """Whether the Host of a request names the loopback; one without it comes from no browser."""
    has_port = host.rpartition(":")[2].isdigit() and not host.endswith("]")
    return not host or is_loopback(host if has_port else f"{host}:0")


def _head_of(reply: HttpReply) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(reply.body)}",
        "Connection: close",
        "X-Content-Type-Options: nosniff",
    ]
    if reply.status == 401:  # noqa: PLR2004 - as in HTTP
        lines.append('WWW-Authenticate: Bearer realm="bucketq"')
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
