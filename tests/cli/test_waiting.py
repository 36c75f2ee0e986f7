"""What waits: a claim for a queue, finished jobs for the archive."""

from __future__ import annotations

import json

from tests.cli.console import Console, finish


def test_a_claim_that_waits_also_waits_for_the_queue(console: Console) -> None:
    process = console.start("claim", "URL", "--wait", "40s", "--json")
    assert process.stderr is not None
    assert b"waiting for it" in process.stderr.readline()
    assert not console.path.exists()
    console.ok("push", "URL", "k", "1", "--id", "job")
    ran = finish(process)
    assert ran.code == 0
    assert ran.json["id"] == "job"


def test_a_claim_gives_up_if_the_queue_is_not_created_in_time(console: Console) -> None:
    ran = console.run("claim", "URL", "--wait", "0.2s")
    assert ran.code == 3
    assert "no queue at" in ran.err
    assert not console.path.exists()
    assert console.run("claim", "URL", "--wait", "2h").code == 2


def test_stats_show_how_many_finished_jobs_wait_for_the_archive(console: Console) -> None:
    for count in (1, 2):
        console.ok("push", "URL", "k", str(count))
        job = console.ok("claim", "URL", "--json").json
        console.ok("complete", "URL", job["id"], job["lease"])
        expected = "1 finished job waits" if count == 1 else "2 finished jobs wait"
        assert f"{expected} for the archive" in console.ok("stats", "URL").out
    console.ok("archive", "flush", "URL")
    assert "for the archive" not in console.ok("stats", "URL").out


def test_a_kind_that_no_worker_has_a_handler_for_is_pointed_out(console: Console) -> None:
    (console.folder / "tasks.py").write_text(
        "import bucketq\n"
        'worker = bucketq.Worker(mode="direct")\n'
        '@worker.handler("mail")\n'
        "def mail(payload: object) -> None: ...\n"
        '@worker.handler("report")\n'
        "def report(payload: object) -> None: ...\n"
    )
    for kind in ("mial", "report", "mail"):
        console.ok("push", "URL", kind, "1")
    words = ("work", "tasks", "--url", "URL", "--burst", "--kinds", "mail", "--log-format", "json")
    ran = console.spawn(*words)
    warned = [line for line in map(json.loads, ran.err.splitlines()) if line["level"] == "warning"]
    assert [line["event"].rpartition(": ")[2] for line in warned] == ["mial (1)"]
    shown = console.ok("stats", "URL").out
    assert "none of their kind running: mial (1), report (1);" in shown
    assert console.ok("stats", "URL", "--json").json["unclaimed"] == {"mial": 1, "report": 1}
    console.ok("claim", "URL", "--kind", "mial")
    console.ok("pause", "URL", "report")
    assert "none of their kind" not in console.ok("stats", "URL").out
