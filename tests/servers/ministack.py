"""MiniStack: an emulator of AWS whose S3 answers as S3 does, from PyPI."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from tests.servers.process import HOST, Child, NotInstalledError, free_ports, http
from tests.servers.server import BUCKET, Server


def start(folder: Path) -> Server:
    """Start it with everything in memory."""
    if importlib.util.find_spec("ministack") is None:
        raise NotInstalledError("MiniStack is not installed: pip install ministack")
    (port,) = free_ports(1)
    child = Child(
        [sys.executable, "-m", "ministack"],
        folder / "log.txt",
        {
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(port),
            "PERSIST_STATE": "0",
            "LOG_LEVEL": "WARNING",
        },
    )
    endpoint = f"http://{HOST}:{port}"
    child.wait_until(lambda: http("PUT", f"{endpoint}/{BUCKET}")[0] == 200)
    return Server("s3", endpoint, {"region": "us-east-1"}, child)
