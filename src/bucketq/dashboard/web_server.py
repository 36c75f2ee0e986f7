"""Runs the page: listens on an address until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import uvicorn

from bucketq.clock import Clock
from bucketq.dashboard.login_sessions import LoginSessions
from bucketq.dashboard.web_app import WebApp
from bucketq.errors import InvalidRequestError
from bucketq.rpc.address import split_address
from bucketq.rpc.credentials import ServerTls

_GRACE_S = 3
"""How long requests that are under way may take once the page is stopped."""


class WebServer(uvicorn.Server):
    """The page of some queues at one address."""

    def __init__(
        self,
        queues: dict[str, str],
        clock: Clock,
        *,
        login: bool = False,
        read_only: bool = False,
        hosts: Collection[str] = (),
        tls: ServerTls | None = None,
    ) -> None:
        """Show queues, by name.

        Args:
            queues: The address of each queue, by name.
            clock: Time and entropy.
            login: Whether users must show a token of a queue to see it.
            read_only: Whether the page can change nothing, whatever a token allows.
            hosts: Names of this host that browsers use, beside ``localhost``.
            tls: The certificate; None: plain HTTP.
        """
        self._page_sessions = LoginSessions(queues, clock, login=login)
        app = WebApp(self._page_sessions, clock, read_only=read_only, tls=tls is not None)
        config = uvicorn.Config(
            app.build(hosts),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            ws="none",
            timeout_graceful_shutdown=_GRACE_S,
        )
        if tls is not None:
            config.ssl_certfile, config.ssl_keyfile = str(tls.cert), str(tls.key)
            if tls.client_ca is not None:
                config.ssl_ca_certs, config.ssl_cert_reqs = str(tls.client_ca), 2
        super().__init__(config)

    async def run_at(self, address: str, on_ready: Callable[[str], None]) -> None:
        """Serve at ``host:port`` until ``should_exit`` is set; port 0 picks a free one.

        ``on_ready`` is called with the address of the page.
        """
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family)
        except OSError as error:
            message = f"cannot listen on {address}: {error.strerror or error}; choose another port"
            raise InvalidRequestError(message) from error
        with listener:
            shown = f"[{host}]" if ":" in host else host
            scheme = "https" if self.config.ssl_certfile else "http"
            serving = asyncio.create_task(self.serve(sockets=[listener]))
            while not self.started and not serving.done():  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
            if self.started:
                on_ready(f"{scheme}://{shown}:{listener.getsockname()[1]}/")
            await serving

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; the streams of events are ended first, or it would wait for them."""
        await self._page_sessions.close()
        transports = [each.transport for each in self.server_state.connections]
        await super().shutdown(sockets)
        for transport in transports:
            # Over TLS, closing waits for a goodbye that an idle browser does not send.
            transport.abort()
        await asyncio.sleep(0)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command, which ends all of its parts."""
        yield
