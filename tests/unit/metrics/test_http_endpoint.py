"""The endpoint for Prometheus and probes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from bucketq.errors import UnavailableError
from bucketq.metrics import http_endpoint
from bucketq.metrics.http_endpoint import HttpEndpoint

TOKEN = "0123456789abcdef"


@asynccontextmanager
async def endpoint(**options: Any) -> AsyncIterator[HttpEndpoint]:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(3)
    served = HttpEndpoint(registry, **{"is_ready": lambda: True, **options})
    await served.start("127.0.0.1:0")
    try:
        yield served
    finally:
        await served.close()


async def send(served: HttpEndpoint, text: str) -> tuple[int, str]:
    """Send a request, and return the status and the body of the answer; 0: it was cut off."""
    host, port = served.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text.encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


async def get(served: HttpEndpoint, path: str, *headers: str, method: str = "GET") -> Any:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost:1", *headers, "", ""]
    return await send(served, "\r\n".join(lines))


async def test_metrics_health_and_readiness_are_served() -> None:
    ready = False
    async with endpoint(is_ready=lambda: ready) as served:
        assert await get(served, "/healthz") == (200, "ok\n")
        assert await get(served, "/readyz") == (503, "not ready\n")
        ready = True
        assert await get(served, "/readyz?verbose") == (200, "ready\n")
        status, body = await get(served, "/metrics")
        assert (status, "things_total 3.0" in body) == (200, True)
        assert await get(served, "/metrics", method="HEAD") == (200, "")
        assert (await get(served, "/"))[0] == 404
        assert (await get(served, "/metrics", method="POST"))[0] == 405


async def test_what_is_shown_is_prepared_first() -> None:
    registry = CollectorRegistry()
    things = Counter("fresh", "Things.", registry=registry)

    async def prepare() -> None:
        things.inc()

    served = HttpEndpoint(registry, is_ready=lambda: True, prepare=prepare)
    await served.start("127.0.0.1:0")
    assert "fresh_total 1.0" in (await get(served, "/metrics"))[1]
    await served.close()


async def test_metrics_need_the_token_and_probes_do_not() -> None:
    async with endpoint(token=TOKEN) as served:
        for wrong in ([], ["Authorization: Bearer no"], [f"Authorization: Basic {TOKEN}"]):
            assert await get(served, "/metrics", *wrong) == (401, "a bearer token is required\n")
        assert (await get(served, "/metrics", f"Authorization: Bearer {TOKEN}"))[0] == 200
        assert (await get(served, "/readyz"))[0] == 200


async def test_a_web_page_of_another_name_cannot_read_the_loopback() -> None:
    async with endpoint() as served:
        for host, status in (
            ("evil.example", 421),
            ("evil.example:80", 421),
            ("[::1]:1", 200),
            ("[::1]", 200),
            ("127.0.0.1", 200),
            ("localhost", 200),
        ):
            asked = f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"
            assert (await send(served, asked))[0] == status, host


async def test_what_is_not_http_or_too_long_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "_REQUEST_S", 0.2)
    async with endpoint() as served:
        assert (await send(served, "hello\r\n\r\n"))[0] == 400
        assert (await send(served, "GET /metrics HTTP/1.1\r\nA: " + "a" * 20_000))[0] == 400
        assert (await send(served, "GET /met"))[0] == 0, "one that sends no more is cut off"


async def test_an_address_in_use_is_an_error() -> None:
    async with endpoint() as served:
        other = HttpEndpoint(CollectorRegistry(), is_ready=lambda: True)
        with pytest.raises(UnavailableError, match="cannot listen"):
            await other.start(served.address)
