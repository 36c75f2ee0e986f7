"""Checks each request before it reaches the page, and adds the headers that protect its answers.

A web site that a user visits can make the browser send requests to this host. So a request must
name this host in ``Host`` (another name may have been made to resolve to it), and one that changes
something must come from the page itself (``Origin``). Nothing changes on GET.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 2 * 1024 * 1024
"""The largest request: an edited payload of 1 MiB, with the escapes of JSON."""

HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'; img-src 'self' data:"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Scripts and styles come from this host and never from a document, and no site may frame it."""
_STRICT_TRANSPORT = "max-age=31536000"
_SAFE = frozenset({"GET", "HEAD"})


class RequestChecks:
    """Wraps the application; a request that fails a check does not reach it."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], tls: bool) -> None:
        """Accept requests for ``localhost``, for IP addresses and for these host names."""
        self._app = app
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._tls = tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
                if self._tls:
                    headers["strict-transport-security"] = _STRICT_TRANSPORT
            await send(message)

        problem = self.problem_of(scope["method"], scope["path"], Headers(scope=scope))
        if problem:
            refused = PlainTextResponse(problem + "\n", status_code=403)
            await refused(scope, receive, send_protected)
        else:
            await self._app(scope, receive, send_protected)

    def problem_of(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        """Return why a request is refused; empty: it is not."""
        host = headers.get("host", "")
        if not self._is_known(host):
            return f"unknown host {host!r}: start the dashboard with --allow-host to use this name"
        site = headers.get("sec-fetch-site", "")
        if method in _SAFE:
            is_foreign = path.startswith("/api/") and site not in {"", "same-origin", "none"}
            return "this address is for the page itself" if is_foreign else ""
        return _problem_of_change(host, site, headers)

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._hosts:
            return True
        try:
            # No name server can make a browser send another page's requests under an IP address.
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _problem_of_change(host: str, site: str, headers: Mapping[str, str]) -> str:
    """Return why a request to change something is refused; empty: it is not."""
    origin = headers.get("origin", "")
    is_own = bool(origin) and urlsplit(origin).netloc.lower() == host.lower()
    if not is_own or site not in {"", "same-origin"}:
        return f"a request to change something must come from the page, not from {origin!r}"
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return "a request to change something must be JSON"
    length = headers.get("content-length", "")
    if not length.isdigit() or int(length) > MAX_BODY_BYTES:
        return f"a request must say its length, which is at most {MAX_BODY_BYTES:,} bytes"
    return ""
