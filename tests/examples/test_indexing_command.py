"""The example that indexes, as a user runs it: write, index, search, stop, and begin again."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.environ import ROOT, child_path
from tests.examples.program import Program

PATHS = child_path(ROOT)
pytestmark = pytest.mark.timeout(120)


def indexing(tmp_path: Path, *words: str, **environ: str) -> Program:
    url = (tmp_path / "queue.json").as_uri()
    environ = {"PYTHONPATH": PATHS, "BUCKETQ_URL": url} | environ
    return Program(["-m", "examples.indexing", *words], tmp_path / "output.txt", **environ)


def ran(tmp_path: Path, *words: str, code: int = 0) -> str:
    """Run a command to its end, and return what it alone has printed."""
    (tmp_path / "output.txt").unlink(missing_ok=True)
    with indexing(tmp_path, *words) as program:
        assert program.wait() == code, program.output()
    return program.output()


def hits(output: str) -> list[str]:
    return re.findall(r"^  \d+\. .*$", output, re.MULTILINE)


def test_what_was_written_is_found_before_and_after_it_is_indexed(tmp_path: Path) -> None:
    told = ran(tmp_path, "write", "guides", "--limit", "120")
    assert told.startswith("120 documents written in 2 segments; 2 jobs to run")
    assert ran(tmp_path, "write", "guides", "--limit", "120").startswith("0 documents written")
    query = ("search", "guides", "what a failover looks like", "-n", "4")
    before = ran(tmp_path, *query)
    assert "0 were in the index" in before
    assert "120 in the tail of the log" in before
    told = ran(tmp_path, "index", "--spark", "none")
    assert told == "attempts: 2 done\nguides: 120 documents in 2 parts\n"
    after = ran(tmp_path, *query)
    assert "120 were in the index (" in after
    assert "0 in the tail of the log" in after
    assert hits(after) == hits(before)
    assert len(hits(after)) == 4
    assert any("What a failover looks like" in hit for hit in hits(after))


def test_what_is_wrong_is_told_in_a_line(tmp_path: Path) -> None:
    told = ran(tmp_path, "search", "guides", "queue", code=1)
    assert told == "error: namespace 'guides' has no documents: there are none yet\n"
    told = ran(tmp_path, "write", "nowhere", code=2)
    assert "there are no documents for 'nowhere': name some of guides, code, python" in told


def test_ctrl_c_loses_nothing_and_the_same_command_goes_on(tmp_path: Path) -> None:
    with indexing(tmp_path, "write") as program:
        log = tmp_path / "wal" / "python"
        program.until(lambda _: len(list(log.glob("*.jsonl"))) > 2)
        program.send(signal.SIGINT)
        assert program.wait() == 130, program.output()
    assert "stopped; nothing is lost" in program.output()
    with indexing(tmp_path, "index", "--spark", "none") as program:
        program.until(lambda _: (tmp_path / "index" / "code" / "manifest.json").exists())
        program.send(signal.SIGINT)
        assert program.wait() == 130, program.output()
    count = sum(1 for _ in (tmp_path / "wal").rglob("*.jsonl"))
    ran(tmp_path, "index", "--spark", "none")
    covered = 0
    for path in (tmp_path / "index").rglob("manifest.json"):
        parts = json.loads(path.read_bytes())["parts"]
        covered += sum(last - first + 1 for part in parts for first, last in part["segments"])
    assert covered == count > 20


def test_without_java_the_demo_indexes_in_a_worker_and_says_what_to_do(tmp_path: Path) -> None:
    words = ("demo", "--folder", str(tmp_path / "demo"), "--limit", "600")
    with indexing(tmp_path, *words, JAVA_HOME=str(tmp_path / "nowhere")) as program:
        assert program.wait() == 0, program.output()
    output = program.output()
    assert re.search(r"killed +the broker, with kill -9, when \d+ of \d+ segments", output)
    assert re.search(r"indexed +[\d,]+ documents in \d+ parts", output)
    assert re.search(r"left out +Spark, .*: Spark needs Java.* apt install openjdk-17", output)
    assert output.endswith("nothing was lost or duplicated\n")
