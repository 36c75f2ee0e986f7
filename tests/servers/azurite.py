"""Azurite: Microsoft's emulator of Azure Blob Storage, from npm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
from email.utils import formatdate
from pathlib import Path

from tests.servers.process import HOST, Child, NotInstalledError, free_ports, http
from tests.servers.server import AZURE_ACCOUNT, AZURE_KEY, BUCKET, Server

_ROOT = Path(__file__).resolve().parents[2]
_MAIN = _ROOT / "build/servers/node_modules/azurite/dist/src/blob/main.js"


def start(folder: Path) -> Server:
    """Start it with everything in memory."""
    node = shutil.which("node")
    if node is None or not _MAIN.exists():
        raise NotInstalledError("Azurite is not installed: make servers (needs Node.js and npm)")
    (port,) = free_ports(1)
    command = [
        node,
        str(_MAIN),
        f"--blobHost={HOST}",
        f"--blobPort={port}",
        "--inMemoryPersistence",
        "--skipApiVersionCheck",
        "--disableTelemetry",
        "--silent",
    ]
    child = Child(command, folder / "log.txt")
    endpoint = f"http://{HOST}:{port}/{AZURE_ACCOUNT}"
    child.wait_until(lambda: _create_container(endpoint) == 201)
    return Server("az", endpoint, {}, child)


def _create_container(endpoint: str) -> int:
    """Create the container of the tests, by a request signed with the account's key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    lines = ["PUT", *[""] * 11]
    lines += [f"{name}:{value}" for name, value in headers.items()]
    lines += [f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}", "restype:container"]
    mac = hmac.digest(base64.b64decode(AZURE_KEY), "\n".join(lines).encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(mac).decode()}"
    return http("PUT", f"{endpoint}/{BUCKET}?restype=container", None, headers)[0]
