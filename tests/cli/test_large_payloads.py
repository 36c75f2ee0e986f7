"""Large payloads from the command line."""

from __future__ import annotations

from pathlib import Path

from tests.cli.console import Console

FILM = bytes(range(256)) * 80_000
"""More than a claim fetches."""


def parts_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/payloads/*/*.0*"))


def test_a_file_is_pushed_shown_and_written_again(console: Console) -> None:
    film, written = console.folder / "film.mov", console.folder / "written.mov"
    film.write_bytes(FILM)
    push = ("push", "URL", "encode", "--file", str(film), "--as", "bytes", "--id", "my-job")
    assert console.ok(*push).out.strip() == "my-job"
    assert "20,480,000 bytes in the side object" in console.ok("ls", "URL").out
    assert "20,480,000 bytes in the side object" in console.ok("show", "URL", "my-job").out
    console.ok("show", "URL", "my-job", "--payload", "-o", str(written))
    assert written.read_bytes() == FILM
    ran = console.run("show", "URL", "my-job", "--payload", "-o", str(written))
    assert (ran.code, "already exists" in ran.err) == (4, True)
    console.ok("show", "URL", "my-job", "--payload", "-o", str(written), "--force")
    assert "20,480,000 bytes" in console.ok("claim", "URL").out
    ran = console.run("show", "URL", "my-job", "-o", str(written))
    assert (ran.code, "-o needs" in ran.err) == (2, True)


def test_a_copy_has_large_payloads_beside_it(console: Console) -> None:
    film, written = console.folder / "film.mov", console.folder / "written.mov"
    film.write_bytes(FILM)
    console.ok("push", "URL", "encode", "--file", str(film), "--as", "bytes", "--id", "my-job")
    copy = str(console.folder / "monday.json")
    console.ok("backup", "URL", copy)
    assert len(parts_in(console.folder / "monday")) == 20
    console.ok("delete", "URL", "--yes")
    assert len(parts_in(console.folder)) == 20
    console.ok("restore", "URL", copy)
    console.ok("show", "URL", "my-job", "--payload", "-o", str(written))
    assert written.read_bytes() == FILM
    assert "1 large payload" in console.ok("doctor", "URL", "--deep").out
    for part in parts_in(console.folder):
        if part.name.endswith("00003"):
            part.unlink()
    ran = console.run("doctor", "URL", "--deep")
    assert (ran.code, "19 of 20 parts" in ran.out.replace("\n", " ")) == (1, True)
    restored = console.ok("restore", "URL", copy, "--replace")
    assert "found neither beside the copy" in restored.err
