"""``--metrics`` of ``serve``, ``work`` and ``dashboard``: where to listen, and who may read."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, NamedTuple

from bucketq.cli.parameters import option
from bucketq.errors import InvalidRequestError

if TYPE_CHECKING:
    from bucketq.metrics.http_endpoint import HttpEndpoint
    from bucketq.rpc.credentials import ServerTls

_log = logging.getLogger("bucketq.metrics")

TOKEN_VARIABLE = "BUCKETQ_METRICS_TOKEN"  # noqa: S105 - the name of a variable
_SHORTEST_TOKEN = 16
"""Shorter ones can be guessed over the network."""

Metrics = Annotated[
    str,
    option(
        "--metrics [HOST]:PORT",
        "Serve /metrics for Prometheus, /healthz and /readyz over HTTP; :9464 means loopback only.",
    ),
]


class MetricsListener(NamedTuple):
    """Where metrics are served, once that was checked."""

    listen: str
    tls: ServerTls | None
    token: str

    async def start(self, endpoint: HttpEndpoint) -> None:
        """Let an endpoint listen on the running loop."""
        await endpoint.start(self.listen, None if self.tls is None else _context(self.tls))
        _log.info("metrics at %s://%s/metrics", "https" if self.tls else "http", endpoint.address)

    @contextmanager
    def in_thread(self, endpoint: HttpEndpoint) -> Iterator[None]:
        """Let an endpoint listen in a thread of its own, which handlers cannot block."""
        from bucketq.client.loop_thread import LoopThread

        thread = LoopThread()
        try:
            thread.call(self.start, endpoint)
            yield
            thread.call(endpoint.close)
        finally:
            thread.stop()


def metrics_listener(
    metrics: str, tls: ServerTls | None, *, insecure: bool
) -> MetricsListener | None:
    """Check ``--metrics``; None: it was not given.

    Beyond loopback it needs TLS, and either client certificates or a token.
    """
    from bucketq.rpc.address import is_loopback, split_address

    token = os.environ.get(TOKEN_VARIABLE, "")
    if not metrics:
        return None
    listen = f"127.0.0.1{metrics}" if metrics.startswith(":") else metrics
    split_address(listen)
    if token and len(token) < _SHORTEST_TOKEN:
        raise InvalidRequestError(
            f"{TOKEN_VARIABLE} has {len(token)} characters: use at least {_SHORTEST_TOKEN}, as in "
            "`openssl rand -hex 16`"
        )
    has_proof = tls is not None and (token or tls.client_ca is not None)
    if not (has_proof or insecure or is_loopback(listen)):
        raise InvalidRequestError(
            f"--metrics {metrics} accepts connections from other hosts, without protection: add "
            f"--tls-cert and --tls-key, and either --tls-client-ca or {TOKEN_VARIABLE}; or add "
            "--insecure if every host that can connect may read the names and counts of jobs"
        )
    if find_spec("prometheus_client") is None:
        message = 'metrics need one more package: pip install "bucketq[metrics]"'
        raise InvalidRequestError(message)
    return MetricsListener(listen, tls, token)


def _context(tls: ServerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.cert, tls.key)
    if tls.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(tls.client_ca)
    return context
