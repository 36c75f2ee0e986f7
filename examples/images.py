"""Draw pictures, which needs a processor, and compare threads with processes.

    python examples/images.py FOLDER --tiles 8 --size 200

Pushes jobs that draw pieces of the Mandelbrot set, once for handlers in threads and once for
handlers in processes, runs them with as many slots as there are cores, and compares. Threads
of Python share one core for work like this; processes do not. A real application would call its
image library here; this one writes PNG by hand, so that it needs no other package.
"""

from __future__ import annotations

import argparse
import os
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import bucketq

CORES = os.cpu_count() or 1
DEPTH = 120


@dataclass(frozen=True)
class Tile:
    """What to draw, and where to put it."""

    path: str
    left: float
    top: float
    width: float
    size: int


worker = bucketq.Worker(concurrency=CORES)


def draw(tile: Tile) -> int:
    """Draw a tile, and return how large its file is."""
    step = tile.width / tile.size
    rows = bytearray()
    for y in range(tile.size):
        rows.append(0)  # No filter: the bytes of the line are the pixels.
        for x in range(tile.size):
            rows.append(255 - 2 * escape(complex(tile.left + x * step, tile.top + y * step)))
    return save(Path(tile.path), png(tile.size, tile.size, bytes(rows)))


# The same function twice, to compare. Usually: @worker.handler("tile", run_in="process").
worker.handler("tile-in-process", run_in="process")(draw)
worker.handler("tile-in-thread", run_in="thread")(draw)


def escape(c: complex) -> int:
    """Return after how many steps a point escapes, up to DEPTH."""
    z = 0j
    for count in range(DEPTH):
        z = z * z + c
        if abs(z) > 2:
            return count
    return DEPTH


def png(width: int, height: int, rows: bytes) -> bytes:
    """Return a grey picture of 8 bits a pixel."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def save(path: Path, body: bytes) -> int:
    """Put a file in place by a rename: a job may run twice, and readers see a whole picture."""
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(body)
    unfinished.replace(path)
    return len(body)


def work_off(url: str, kind: str, tiles: list[Tile]) -> float:
    """Push and draw tiles; return how long the drawing took."""
    with bucketq.connect_sync(url) as queue:
        queue.push_many(bucketq.JobSpec(kind=kind, payload=tile) for tile in tiles)
    worker.configure(url)
    began = time.perf_counter()
    worker.run_sync(burst=True, kinds=[kind])
    took_s = time.perf_counter() - began
    print(f"{kind}: {worker.counters.count('done')} tiles in {took_s:.2f} s", flush=True)
    return took_s


def main() -> None:
    """Draw everything twice."""
    parser = argparse.ArgumentParser(description="Draw pictures in threads and in processes.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiles", type=int, default=8)
    parser.add_argument("--size", type=int, default=200)
    given = parser.parse_args()
    folder = given.folder.resolve()
    took_s = {}
    for place in ("thread", "process"):
        (folder / place).mkdir(parents=True, exist_ok=True)
        tiles = [
            Tile(str(folder / place / f"{n}.png"), -0.75 + n / 1000, 0.05, 0.1, given.size)
            for n in range(given.tiles)
        ]
        took_s[place] = work_off((folder / "queue.json").as_uri(), f"tile-in-{place}", tiles)
    ratio = took_s["thread"] / took_s["process"]
    print(f"processes are {ratio:.1f} times as fast as threads on {CORES} cores")


if __name__ == "__main__":
    main()
