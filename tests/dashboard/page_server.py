"""The web page in a thread of the tests, requests to it as a browser makes them, and a broker."""

from __future__ import annotations

import asyncio
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bucketq.clock import SystemClock
from bucketq.dashboard.web_server import WebServer
from tests.environ import child_environ
from tests.servers.process import DIES_WITH_PARENT

_WAIT_S = 60


class Got(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def cookie(self) -> str:
        """What the browser sends back."""
        return self.headers["set-cookie"].partition(";")[0]


class Page:
    """A page that is served."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.host = urlsplit(url).netloc

    def get(self, path: str, **headers: str) -> Got:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, document: object, **headers: str) -> Got:
        own = {"origin": self.url, "content-type": "application/json"}
        return self.send("POST", path, json.dumps(document).encode(), own | headers)

    def act(self, action: str, **fields: object) -> Got:
        """Send an action for the queue of the tests."""
        return self.post("/api/q/jobs/actions", {"action": action, **fields})

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Got:
        connection = HTTPConnection(self.host, timeout=_WAIT_S)
        try:
            names = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
            connection.request(method, path, body, names)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Got(answer.status, found, answer.read())
        finally:
            connection.close()

    def events(self, path: str, count: int) -> list[tuple[str, Any]]:
        """Read some events of a stream."""
        connection = HTTPConnection(self.host, timeout=_WAIT_S)
        found = list[tuple[str, Any]]()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            name = ""
            while len(found) < count:
                read = answer.readline()
                assert read, f"the stream has ended after {found}"
                line = read.decode().strip()
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    found.append((name, json.loads(value)))
        finally:
            connection.close()
        return found


@contextmanager
def served_page(queues: dict[str, str], **options: Any) -> Iterator[Page]:
    """Serve the page of some queues on a free port, in a thread with a loop of its own."""
    ready: queue.Queue[str | BaseException] = queue.Queue()
    servers: list[WebServer] = []

    async def serve() -> None:
        server = WebServer(queues, SystemClock(), **options)
        servers.append(server)
        await server.run_at("127.0.0.1:0", ready.put)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - the test raises it
            ready.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        found = ready.get(timeout=_WAIT_S)
        if isinstance(found, BaseException):
            raise found
        yield Page(found)
    finally:
        for server in servers:
            server.should_exit = True
        thread.join(_WAIT_S)
        assert not thread.is_alive(), "the page does not end"


def serve(url: str, port: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start a broker, and wait until it serves."""
    words = ["serve", f"jobs={url}", "--listen", f"127.0.0.1:{port}"]
    with (folder / "serve.log").open("wb") as log:
        started = subprocess.Popen(
            [*DIES_WITH_PARENT, sys.executable, "-m", "bucketq.cli", *words],
            stdout=subprocess.PIPE,
            stderr=log,
            env=child_environ(),
        )
    assert started.stdout is not None
    assert started.stdout.readline().startswith(b"serving jobs")
    started.stdout.close()
    return started
