"""The example that draws: real pictures, the same from threads and from processes."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

from tests.examples.program import EXAMPLES, Program

SIZE = 24


def test_threads_and_processes_draw_the_same_pictures_and_are_compared(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    command = [str(EXAMPLES / "images.py"), str(folder), "--tiles", "4", "--size", str(SIZE)]
    with Program(command, tmp_path / "output.txt") as program:
        assert program.wait() == 0, program.output()
    for place in ("thread", "process"):
        assert f"tile-in-{place}: 4 tiles in" in program.output()
    assert re.search(r"processes are \d+\.\d times as fast as threads", program.output())
    drawn = {path.name: path.read_bytes() for path in (folder / "process").iterdir()}
    assert drawn == {path.name: path.read_bytes() for path in (folder / "thread").iterdir()}
    assert sorted(drawn) == ["0.png", "1.png", "2.png", "3.png"]
    assert len({pixels(body) for body in drawn.values()}) == 4


def pixels(body: bytes) -> bytes:
    """Read a picture back, with every checksum looked at."""
    assert body[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(body):
        [length] = struct.unpack_from(">I", body, at)
        name, data = body[at + 4 : at + 8], body[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", body, at + 8 + length)[0] == zlib.crc32(name + data)
        chunks[name] = data
        at += 12 + length
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (SIZE, SIZE, 8, 0, 0, 0, 0)
    rows = zlib.decompress(chunks[b"IDAT"])
    assert len(rows) == SIZE * (SIZE + 1)
    return rows
