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


def test_an_import_from_another_queue_copies_large_payloads(console: Console) -> None:
    old, film = Console(console.folder / "old"), console.folder / "film.mov"
    film.write_bytes(FILM)
    words = ("push", "URL", "encode", "--file", str(film))
    old.ok(*words, "--as", "bytes", "--id", "film")
    film.write_text('["' + "x" * 100_000 + '"]')
    old.ok(*words, "--id", "text")
    old.ok("push", "URL", "encode", "5", "--id", "small")
    assert console.ok("import", "URL", old.url, "--json").json["pushed"] == 3
    old.ok("delete", "URL", "--yes")
    written = console.folder / "written"
    for name, content in (("film", FILM), ("text", film.read_bytes()), ("small", b"5")):
        console.ok("show", "URL", name, "--payload", "-o", str(written), "--force")
        assert written.read_bytes() == content
    assert "2 large payloads" in console.ok("doctor", "URL", "--deep").out


def test_a_line_with_a_reference_is_not_imported_as_if_it_were_the_payload(
    console: Console,
) -> None:
    film, lines = console.folder / "film.mov", console.folder / "lines.jsonl"
    film.write_bytes(FILM)
    console.ok("push", "URL", "encode", "--file", str(film), "--as", "bytes", "--id", "film")
    lines.write_text(console.ok("ls", "URL", "--all", "--json").out)
    other = Console(console.folder / "other")
    ran = other.run("import", "URL", str(lines))
    assert (ran.code, "import from the address of the queue" in ran.err) == (2, True)
    assert other.ok("import", "URL", str(lines), "--status", "dead", "--json").json["pushed"] == 0


def test_lines_of_a_bulk_push_may_be_large(console: Console) -> None:
    lines = console.folder / "lines.jsonl"
    small = '{"kind": "a", "payload": 1}\n'
    lines.write_text(small + '{"kind": "a", "payload": "' + "x" * 2_000_000 + '"}\n')
    words = ("push", "URL", "--bulk", "--file", str(lines))
    assert console.ok(*words, "--json").json["pushed"] == 2
    assert "2,000,002 bytes in the side object" in console.ok("ls", "URL").out
    # So many lines are added in one commit, unless one of them is large.
    lines.write_text(small * 10_001 + lines.read_text())
    ran = console.ok(*words, "--progress", str(console.folder / "other"))
    assert "in batches, and not in one commit: the payload of line 10003 is large" in ran.err
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 10_005


def test_a_follow_up_may_be_large(console: Console) -> None:
    console.ok("push", "URL", "first", "1", "--id", "first")
    job = console.ok("claim", "URL", "--json").json
    follow_up = '{"kind": "next", "id": "next", "payload": "' + "x" * 100_000 + '"}'
    console.ok("complete", "URL", "first", job["lease"], "--push", follow_up)
    shown = console.ok("show", "URL", "next", "--payload")
    assert shown.out.strip() == '"' + "x" * 100_000 + '"'


def test_what_cannot_be_large_says_so(console: Console) -> None:
    large = '"' + "x" * 100_000 + '"'
    console.ok("create", "URL")
    ran = console.run("schedule", "add", "URL", "nightly", "report", large, "--every", "5m")
    assert ran.code == 2
    assert "at most 16,384 are allowed; put the data in an object of its own" in ran.err
