"""Starts ``bucketq dashboard`` beside a broker, in a process of its own that ends with it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bucketq.errors import InvalidRequestError
from bucketq.rpc.credentials import ServerTls

_log = logging.getLogger("bucketq.serve")
_START_S = 60.0
"""How long it may take until it listens; a second or two on a machine that is not busy."""
_END_S = 5.0
"""How long it may take to end, before it is killed."""


@asynccontextmanager
async def dashboard_process(
    urls: list[str], listen: str, tls: ServerTls | None, *, insecure: bool
) -> AsyncIterator[str]:
    """Run the page of some queues, and yield the line that it prints.

    It ends when its stdin is closed, so it also ends if this
    process is killed. Raises ``InvalidRequestError`` if it cannot start; it has printed why.
    """
    words = [*urls, "--listen", listen, "--with-stdin", "--quiet"]
    if tls is not None:
        words += ["--tls-cert", str(tls.cert), "--tls-key", str(tls.key)]
        words += [] if tls.client_ca is None else ["--tls-client-ca", str(tls.client_ca)]
    words += ["--insecure"] if insecure else []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bucketq.cli", "dashboard", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield await _first_line(process)
    finally:
        await _end(process)


async def _first_line(process: asyncio.subprocess.Process) -> str:
    if process.stdout is None:
        raise AssertionError("stdout is a pipe")
    line = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_S):
            line = await process.stdout.readline()
    if not line:
        raise InvalidRequestError("the dashboard did not start, for the reason above")
    return line.decode().strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_END_S):
            code = await process.wait()
    except TimeoutError:
        process.kill()
        code = await process.wait()
    if code:
        _log.warning("the dashboard ended with exit code %d", code)
