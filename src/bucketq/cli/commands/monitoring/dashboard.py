"""``bucketq dashboard``: serve a web page for one or more queues."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bucketq.cli.broker_security import check_listen, server_tls
from bucketq.cli.metrics_options import Metrics, MetricsListener, metrics_listener
from bucketq.cli.parameters import argument, option
from bucketq.cli.queue_names import find_queues
from bucketq.cli.terminal.log import LineHandler, form_of, level_of, log_to, to_stderr
from bucketq.cli.terminal.output import Output
from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError

if TYPE_CHECKING:
    from bucketq.dashboard.web_server import WebServer

_PACKAGES = {"starlette", "uvicorn"}

Urls = Annotated[
    list[str],
    argument(
        "URL...",
        "Addresses of queues, or NAME=URL: in a storage, or at a broker (bucketq://host:port/name)."
        " An address that ends in a slash means all queues that are under it now.",
    ),
]
Listen = Annotated[
    str,
    option("--listen HOST:PORT", "Where to listen; without a host, on the loopback interface."),
]
Login = Annotated[
    bool, option("--login", "Let users log in with a token of a queue, on this host too.")
]
ReadOnly = Annotated[bool, option("--read-only", "Change nothing, whatever a token allows.")]
AllowHost = Annotated[
    list[str] | None,
    option("--allow-host NAME", "A host name under which browsers reach it; may be repeated."),
]
TlsCert = Annotated[Path | None, option("--tls-cert FILE", "Use TLS with this certificate (PEM).")]
TlsKey = Annotated[Path | None, option("--tls-key FILE", "Private key of the certificate.")]
TlsClientCa = Annotated[
    Path | None,
    option("--tls-client-ca FILE", "Accept only browsers with a certificate signed by these."),
]
Insecure = Annotated[bool, option("--insecure", "Listen on other interfaces without TLS or login.")]
WithStdin = Annotated[
    bool, option("--with-stdin", "End when stdin is closed, as `serve` uses it.", hidden=True)
]


async def run(
    out: Output,
    *,
    url: Urls,
    listen: Listen = ":7701",
    login: Login = False,
    read_only: ReadOnly = False,
    allow_host: AllowHost = None,
    metrics: Metrics = "",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    insecure: Insecure = False,
    with_stdin: WithStdin = False,
) -> None:
    """Serve a web page that shows and operates queues.

    It is a client like any other: it uses the queue's broker, or the storage if there is none, with
    the credentials of this process (BUCKETQ_TOKEN). Every user of this host can open the page.

    For other hosts it needs a certificate, and users log in with a token of the queue, whose rights
    decide what they may do. Brokers check tokens, so the queue must be served by one.

    Examples:
        bucketq dashboard file:///srv/jobs/queue.json
        bucketq dashboard jobs=s3://bucket/jobs.json mail=s3://bucket/mail.json --read-only
        bucketq dashboard bucketqs://broker.example:7700/jobs --listen 0.0.0.0:7701
            --allow-host jobs.example.org --tls-cert c.pem --tls-key k.pem
    """
    from bucketq.rpc.address import is_loopback, split_address

    tls = server_tls(tls_cert, tls_key, tls_client_ca)
    address = f"127.0.0.1{listen}" if listen.startswith(":") else listen
    host, _ = split_address(address)
    check_listen(address, tls, insecure=insecure)
    measured_at = metrics_listener(metrics, tls, insecure=insecure)
    is_guarded = is_loopback(address) or tls_client_ca is not None or insecure
    log_to(LineHandler(form_of(out), to_stderr, tracebacks=True), level=level_of(out))
    queues = await find_queues(url)
    server = _server(
        queues,
        login=login or not is_guarded,
        read_only=read_only,
        hosts=[host, *(allow_host or ())],
        tls=tls,
    )
    _stop_on_signals(server)
    watching = asyncio.create_task(_stop_after_stdin(server)) if with_stdin else None
    async with _metrics(measured_at, server):
        # With --quiet too: scripts wait for this line, and read the port from it.
        await server.run_at(
            address,
            lambda where: out.result(
                f"dashboard of {', '.join(queues)} at {where}", {"url": where}
            ),
        )
    if watching is not None:
        watching.cancel()


def _server(queues: dict[str, str], **options: Any) -> WebServer:
    try:
        from bucketq.dashboard.web_server import WebServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        message = 'the packages for the page are not installed: pip install "bucketq[dashboard]"'
        raise InvalidRequestError(message) from error
    return WebServer(queues, SystemClock(), **options)


@asynccontextmanager
async def _metrics(listener: MetricsListener | None, server: WebServer) -> AsyncIterator[None]:
    """Serve the metrics of the process, if wanted; those of queues are served by brokers."""
    if listener is None:
        yield
        return
    from bucketq.metrics.http_endpoint import HttpEndpoint
    from bucketq.metrics.process_registry import new_registry

    endpoint = HttpEndpoint(new_registry(), is_ready=lambda: server.started, token=listener.token)
    await listener.start(endpoint)
    try:
        yield
    finally:
        await endpoint.close()


def _stop_on_signals(server: WebServer) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, setattr, server, "should_exit", True)  # noqa: FBT003


async def _stop_after_stdin(server: WebServer) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    with suppress(OSError, ValueError):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await reader.read()
    server.should_exit = True
