"""Commands that administer the object."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketq import SupersededError, connect_sync
from tests.cli.console import Console


def editor(console: Console, *changes: tuple[str, str], then: str = "") -> dict[str, str]:
    """An editor that replaces some words, as an environment."""
    script = console.folder / "editor.py"
    program = "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\ntext = path.read_text()\n"
    for old, new in changes:
        program += f"assert {old!r} in text\ntext = text.replace({old!r}, {new!r})\n"
    script.write_text(f"{program}path.write_text(text)\n{then}\n")
    return {"VISUAL": "", "EDITOR": f"{sys.executable} {script}"}


def kept_text(err: str) -> Path:
    """The file in which the text of an edit was kept."""
    return Path(re.findall(r"your text is kept in (\S+)", err)[0])


def test_create_is_rejected_if_there_is_a_queue(console: Console) -> None:
    created = console.ok("create", "URL", "max_jobs=7", "--json").json
    assert (created["version"], created["jobs"]) == (1, {})
    before = console.path.read_bytes()
    again = console.run("create", "URL")
    assert (again.code, console.path.read_bytes()) == (4, before)
    assert console.run("create", "URL", "max_jobs=-1").code == 2


def test_delete_asks_for_confirmation_and_needs_a_terminal(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    ran = console.run("delete", "URL")
    assert ran.code == 2
    assert "1 job (1 queued)" in ran.err
    assert console.path.exists()
    deleted = console.ok("delete", "URL", "--yes", "--json").json
    assert deleted == {"deleted": console.url, "segments": 0, "archive_files": 0, "payloads": 0}
    assert not console.path.exists()
    assert console.run("delete", "URL", "--yes").code == 3


def test_the_answer_on_the_terminal_decides(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    pty = pytest.importorskip("pty")
    for answer, code in ((b"n\n", 1), (b"y\n", 0)):
        leader, follower = pty.openpty()
        process = console.start("delete", "URL", stdin=follower)
        os.close(follower)
        os.write(leader, answer)
        _, err = process.communicate(timeout=50)
        os.close(leader)
        assert (process.returncode, b"delete file://" in err) == (code, True)
    assert not console.path.exists()


def test_delete_removes_the_archive_on_request(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    job = console.ok("claim", "URL", "--json").json
    console.ok("complete", "URL", job["id"], job["lease"])
    console.ok("archive", "flush", "URL")
    ran = console.ok("delete", "URL", "--archive", "--yes")
    assert ran.out.endswith(", and 1 archive file\n")
    assert console.run("stats", "URL").code == 3


def test_a_backup_over_another_file_keeps_its_mode(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    copy = console.folder / "copy.json"
    copy.write_bytes(b"")
    copy.chmod(0o640)
    console.ok("backup", "URL", "copy.json", "--force")
    assert copy.read_bytes() == console.path.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o640


def test_a_backup_can_be_restored(console: Console) -> None:
    for number in range(3):
        console.ok("push", "URL", "k", str(number))
    console.ok("claim", "URL")
    saved = console.ok("backup", "URL", "copy.json", "--json").json
    assert saved["jobs"] == {"queued": 2, "running": 1}
    copy = console.folder / "copy.json"
    assert copy.read_text() == console.ok("export", "URL").out
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert console.run("backup", "URL", "copy.json").code == 4
    console.ok("push", "URL", "k", "4")
    refused = console.run("restore", "URL", "copy.json")
    assert (refused.code, "--replace" in refused.err) == (4, True)
    with connect_sync(console.url, create=False) as queue:
        queue.stats()
        ran = console.ok("restore", "URL", "copy.json", "--replace")
        with pytest.raises(SupersededError):
            queue.push("k", 5)
    assert "1 of them were running" in ran.out
    kept = re.findall(r"kept as (\S+)", ran.err)[0]
    assert (console.folder / kept).exists()
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 3
    console.ok("delete", "URL", "--yes")
    console.ok("restore", "URL", "-", stdin=copy.read_bytes())
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 3


def test_a_backup_may_be_another_object(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    other = (console.folder / "copies" / "monday.json").as_uri()
    console.ok("backup", "URL", other)
    console.ok("push", "URL", "k", "2")
    assert console.run("backup", "URL", other).code == 4
    console.ok("backup", "URL", other, "--force")
    console.ok("delete", "URL", "--yes")
    assert "2 jobs" in console.ok("restore", "URL", other).out


def test_a_backup_that_cannot_be_written_is_reported(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    assert console.run("backup", "URL", "no/such/folder.json").code == 4
    assert console.run("backup", "URL", str(console.folder), "--force").code in {2, 4}
    assert console.run("restore", "URL", "nowhere.json").code == 2
    (console.folder / "not.json").write_text("<html>")
    ran = console.run("restore", "URL", "not.json", "--replace")
    assert (ran.code, "not valid JSON at line 1" in ran.err) == (6, True)


def cut_off(whole: bytes) -> bytes:
    return whole[:-40]


def cut_in_half(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def emptied(whole: bytes) -> bytes:
    return whole[:0]


def broken_json(whole: bytes) -> bytes:
    return whole.replace(b'"kind":"k"', b'"kind":k')


def another_file(whole: bytes) -> bytes:
    return b"notes\n" + whole


def edited(whole: bytes) -> bytes:
    return whole.replace(b'"kind":"k"', b'"kind":"q"')


def indented(whole: bytes) -> bytes:
    return json.dumps(json.loads(whole), indent=1).encode()


def senseless(whole: bytes) -> bytes:
    return whole.replace(b'"status":"queued"', b'"status":"happy"')


@pytest.mark.parametrize(
    "damage",
    [cut_off, cut_in_half, emptied, broken_json, another_file, edited, indented, senseless],
    ids=lambda damage: damage.__name__,
)
def test_what_the_error_recommends_for_a_damaged_object_works(
    console: Console, damage: Callable[[bytes], bytes]
) -> None:
    console.ok("push", "URL", "k", "1")
    console.ok("backup", "URL", "copy.json")
    body = damage(console.path.read_bytes())
    assert body != console.path.read_bytes()
    console.path.write_bytes(body)
    ran = console.run("stats", "URL")
    assert ran.code == 6
    advice = ran.err
    if "`bucketq repair`" in advice:
        looked = console.run("repair", "URL")
        assert looked.code == 6
        advice = looked.out
    if "bucketq repair --accept" in advice:
        console.ok("repair", "URL", "--accept")
    else:
        assert "bucketq restore --replace" in advice
        assert console.run("repair", "URL", "--accept").code == 6
        console.ok("restore", "URL", "copy.json", "--replace")
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 1


def test_repair_of_a_truncated_object_points_to_restore(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    assert "is intact" in console.ok("repair", "URL").out
    whole = console.path.read_bytes()
    console.path.write_bytes(whole[:-40])
    assert console.run("stats", "URL").code == 6
    ran = console.run("repair", "URL", "--accept")
    assert ran.code == 6
    assert "truncated at byte" in ran.out
    assert "bucketq restore" in ran.out
    assert console.path.read_bytes() == whole[:-40]
    assert console.run("repair", "URL", "--json").json["refusal"]


def test_repair_accepts_a_manual_edit_on_request(console: Console) -> None:
    console.ok("push", "URL", "k", '{"to": "ada"}')
    console.path.write_bytes(console.path.read_bytes().replace(b"ada", b"grace"))
    refused = console.run("stats", "URL")
    assert (refused.code, "bucketq repair --accept" in refused.err) == (6, True)
    ran = console.run("repair", "URL")
    assert (ran.code, "can be accepted" in ran.out) == (6, True)
    ran = console.ok("repair", "URL", "--accept")
    assert "accepted as version" in ran.out
    assert len(list(console.folder.glob("queue.json.broken-*"))) == 1
    assert console.ok("ls", "URL", "--json").json["payload"] == {"to": "grace"}


def test_edit_writes_the_edited_text(console: Console) -> None:
    console.ok("push", "URL", "k", '{"to": "ada"}', "--id", "a")
    ran = console.run("edit", "URL", env=editor(console, ('"ada"', '"grace"')))
    assert ran.code == 0, ran
    assert "1 job changed" in ran.out
    assert console.ok("show", "URL", "a", "--json").json["payload"] == {"to": "grace"}
    env = editor(console, ('"kind": "k"', '"kind": "m"'))
    edited = console.run("edit", "URL", "--pretty", "--json", env=env)
    assert (edited.code, edited.json["changed"]) == (0, 1)
    same = console.run("edit", "URL", env=editor(console))
    assert (same.code, same.out) == (0, "nothing was changed\n")
    unknown = console.run("edit", "URL", env=editor(console, ('"kind":"m"', '"kind":"m","pr":1')))
    assert "does not know this field: pr (jobs a)" in unknown.err


def test_a_text_that_cannot_be_used_is_kept(console: Console) -> None:
    console.ok("push", "URL", "k", '{"to": "ada"}')
    before = console.path.read_bytes()
    ran = console.run("edit", "URL", env=editor(console, ('"jobs":[', '"jobs":[[')))
    assert ran.code == 2
    assert "not valid JSON at line" in ran.err
    text = kept_text(ran.err)
    assert '"jobs":[[' in text.read_text()
    text.unlink()
    assert console.path.read_bytes() == before
    for command in ("false", "/no/such/editor", '"unbalanced'):
        failed = console.run("edit", "URL", env={"VISUAL": command})
        assert failed.code == 2
        kept_text(failed.err).unlink()


def test_an_edit_of_a_job_that_a_worker_has_changed_is_rejected_and_kept(console: Console) -> None:
    console.ok("push", "URL", "k", '{"to": "ada"}')
    script = Path(sys.executable).with_name("bucketq")
    meanwhile = f"import subprocess\nsubprocess.run([{str(script)!r}, 'claim', {console.url!r}])"
    ran = console.run("edit", "URL", env=editor(console, ('"ada"', '"grace"'), then=meanwhile))
    assert ran.code == 4
    assert "was changed by another process too" in ran.err
    text = kept_text(ran.err)
    assert "grace" in text.read_text()
    text.unlink()
    assert console.ok("ls", "URL", "--json").json["payload"] == {"to": "ada"}


def test_a_token_removed_by_an_edit_is_gone_although_others_push_meanwhile(
    console: Console,
) -> None:
    console.ok("create", "URL")
    for name in ("leaked", "kept"):
        console.ok("token", "create", "URL", "--name", name, "--rights", "push")
    lines = console.path.read_text().splitlines()
    row = next(line for line in lines if '"name":"leaked"' in line)
    script = Path(sys.executable).with_name("bucketq")
    push = [str(script), "push", console.url, "k", "1"]
    meanwhile = f"import subprocess\nsubprocess.run({push!r}, check=True)"
    ran = console.run("edit", "URL", env=editor(console, (f"{row}\n", ""), then=meanwhile))
    assert (ran.code, "1 token changed" in ran.out) == (0, True), ran
    left = console.ok("token", "list", "URL", "--json").json
    assert left["name"] == "kept"
    assert console.ok("ls", "URL", "--json").json["kind"] == "k"


def test_a_damaged_object_must_be_repaired_before_it_is_edited_or_saved(console: Console) -> None:
    console.path.write_text("{}")
    assert console.run("edit", "URL").code == 6
    assert console.run("backup", "URL", "copy.json").code == 6
    assert not (console.folder / "copy.json").exists()
    ran = console.run("delete", "URL")
    assert "not a readable queue" in ran.err
    console.ok("delete", "URL", "--yes")


def test_ctrl_c_in_an_editor_keeps_the_text(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    waiting = "import time\n(pathlib.Path(sys.argv[1]).parent / 'x').exists()\ntime.sleep(30)"
    env = editor(console, then=f"pathlib.Path('started').touch()\n{waiting}")
    process = console.start("edit", "URL", env=env)
    until = time.monotonic() + 30
    while not (console.folder / "started").exists() and time.monotonic() < until:
        time.sleep(0.05)
    subprocess.run(["kill", "-INT", "--", f"-{process.pid}"], check=True)
    _, err = process.communicate(timeout=50)
    assert process.returncode in {2, 130}
    kept = re.findall(rb"(\S*bucketq-edit-\S+\.json)", err)[0].decode()
    assert Path(kept).exists()
    Path(kept).unlink()


def deepen(console: Console, count: int = 60) -> None:
    """Make a queue most of whose jobs are in segments."""
    console.ok("create", "URL", "spill_bytes=2000", "-q")
    lines = b"".join(b'{"kind":"k","payload":%d}\n' % number for number in range(count))
    for start in range(2):  # A direct writer spills before its next commit.
        console.ok("push", "URL", "--bulk", stdin=lines if not start else lines[:25])
    assert b'"segments":[' in console.path.read_bytes()


def test_a_deep_queue_can_be_exported_saved_and_restored(console: Console) -> None:
    deepen(console)
    text = console.ok("export", "URL").out
    assert text.startswith('{"format":1,')
    assert text.count('"kind":"k"') == 61
    saved = console.folder / "copy.json"
    made = console.ok("export", "URL", str(saved), "--json").json
    assert (made["jobs"], made["size_bytes"]) == ({"queued": 61}, len(text))
    assert saved.read_text() == text
    assert console.run("export", "URL", str(saved)).code == 4
    console.ok("export", "URL", str(saved), "--force")
    console.ok("backup", "URL", str(saved), "--force")
    assert saved.read_text() == text
    other = (console.folder / "other.json").as_uri()
    restored = console.ok("restore", other, str(saved), "--json").json
    assert restored["summary"]["jobs"] == {"queued": 61}
    again = console.ok("restore", other, console.url, "--replace", "--json").json
    assert again["summary"]["jobs"] == {"queued": 61}
    assert again["segments"] > 0
    assert console.ok("export", other).out.count('"kind":"k"') == 61
    bare = console.run("restore", other, str(console.path), "--replace")
    assert (bare.code, "bucketq backup" in bare.err) == (2, True)
    deleted = console.ok("delete", "URL", "--yes")
    assert re.search(r"and \d+ segments?$", deleted.out.strip())
    assert not list(console.folder.glob("queue/segments/*/*.jsonl"))


def test_gc_deletes_segments_that_are_needed_no_more(console: Console) -> None:
    deepen(console)
    saved = console.folder / "copy.json"
    console.ok("backup", "URL", str(saved))
    before = {path.parent.name for path in console.folder.glob("queue/segments/*/*.jsonl")}
    console.ok("restore", "URL", str(saved), "--replace")
    incarnation = json.loads(console.path.read_bytes())["incarnation"]
    swept = console.ok("gc", "URL", "--json").json
    assert swept["former_segments"] > 0
    assert console.ok("gc", "URL", "--json").json["forgotten"] == [*before]
    assert b'"former"' not in console.path.read_bytes()
    [kept] = {path.parent.name for path in console.folder.glob("queue/segments/*/*.jsonl")}
    assert kept == incarnation
    refused = console.run("gc", "URL", "--incarnation", incarnation, "--yes")
    assert (refused.code, "present incarnation" in refused.err) == (2, True)
    never = console.folder / "queue" / "segments" / "01AAAAAAAAAAAAAAAAAAAAAAAA"
    never.mkdir()
    (never / f"{7:020d}-0123456789abcdef.jsonl").write_bytes(b"left over")
    asked = console.run("gc", "URL", "--incarnation", never.name)
    assert (asked.code, "delete 1 segment of incarnation" in asked.err) == (2, True)
    deleted = console.ok("gc", "URL", "--incarnation", never.name, "--yes", "--json").json
    assert deleted == {"segments": 1, "incarnation": never.name}
    assert not list(never.glob("*.jsonl"))
    assert console.ok("export", "URL").out.count('"kind":"k"') == 61


OLD = ("max_format=1", "max_jobs=1000000", "max_bytes=268435456", "max_keys=100000")
"""The settings of a queue that an older bucketq has created."""


def test_upgrade_raises_the_format_and_limits_that_nobody_chose(console: Console) -> None:
    console.ok("create", "URL", *OLD, "spill_bytes=2000")
    console.ok("config", "URL", "max_jobs=500")
    console.ok("push", "URL", "k", "1")
    upgraded = console.ok("upgrade", "URL", "--json")
    assert upgraded.json == {
        "changed": {"max_keys": 10_000_000, "max_bytes": 64 << 30, "max_format": 2}
    }
    assert "every process" in upgraded.err
    assert console.ok("config", "URL", "--json").json["max_jobs"] == 500
    again = console.ok("upgrade", "URL")
    assert ("up to date" in again.out, again.err) == (True, "")
    console.ok("config", "URL", "max_format=1")
    console.ok("push", "URL", "--bulk", stdin=b'{"kind":"k","payload":1}\n' * 60)
    console.ok("push", "URL", "k", "1")
    assert console.path.read_bytes().startswith(b'{"format":1,')
    assert "max_format 1 -> 2" in console.ok("upgrade", "URL").out
    console.ok("push", "URL", "k", "1")
    assert console.path.read_bytes().startswith(b'{"format":2,')
    refused = console.run("config", "URL", "max_format=1")
    assert (refused.code, "while the queue has segments" in refused.err) == (4, True)
    assert console.ok("export", "URL").out.count('"kind":"k"') == 63


def test_create_warns_if_segments_are_refused_and_the_queue_works_without(
    console: Console,
) -> None:
    (console.folder / "queue").mkdir()
    (console.folder / "queue" / "segments").write_text("not a folder")
    created = console.ok("create", "URL", "spill_bytes=2000", "--json")
    assert "warning: segments of " in created.err
    assert "cannot be written" in created.err
    console.ok("push", "URL", "--bulk", stdin=b'{"kind":"k","payload":1}\n' * 60)
    console.ok("push", "URL", "k", "1")
    claimed = console.ok("claim", "URL", "--limit", "100", "--json").lines
    assert len(claimed) == 61
    assert console.path.read_bytes().startswith(b'{"format":1,')
    quiet = console.ok("create", (console.folder / "other.json").as_uri(), "max_format=1")
    assert quiet.err == ""
    assert not (console.folder / "other").exists()
