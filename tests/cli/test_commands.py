"""Every command on a small queue: its output and its exit code."""

from __future__ import annotations

import json

import pytest

from bucketq import Settings
from tests.cli.console import Console


def claim(console: Console, *options: str) -> tuple[str, str]:
    job = console.ok("claim", "URL", "--json", *options).json
    return job["id"], job["lease"]


def kill(console: Console, count: int = 1) -> list[str]:
    """Make some dead jobs."""
    dead = []
    for number in range(count):
        console.ok("push", "URL", "mail", str(number))
        job, lease = claim(console)
        console.ok("fail", "URL", job, lease, "--error", f"no. {number}\x1b[31m", "--no-retry")
        dead.append(job)
    return dead


def test_a_job_goes_from_push_to_done(console: Console) -> None:
    pushed = console.ok("push", "URL", "mail", '{"to": "ada"}', "--priority", "3", "--tag", "a=b")
    job_id = pushed.out.strip()
    claimed = console.ok("claim", "URL", "--kind", "mail", "--worker", "me", "--json").json
    assert claimed["id"] == job_id
    assert claimed["payload"] == {"to": "ada"}
    assert (claimed["priority"], claimed["tags"], claimed["worker"]) == (3, {"a": "b"}, "me")
    pulse = console.ok("heartbeat", "URL", job_id, claimed["lease"], "--json").json
    assert pulse == {"job": job_id, "held": True, "cancel_requested": False}
    done = console.ok("complete", "URL", job_id, claimed["lease"], "--result", '{"sent": 1}')
    assert done.out == f"{job_id} is done\n"
    shown = console.ok("show", "URL", job_id, "--json").json
    assert (shown["outcome"], shown["result"]) == ("completed", {"sent": 1})
    again = console.ok("complete", "URL", job_id, claimed["lease"], "--json").json
    assert again == {"id": job_id, "status": "done"}


def test_claimed_jobs_are_printed_as_text(console: Console) -> None:
    job_id = console.ok("push", "URL", "mail", "[1]").out.strip()
    ran = console.ok("claim", "URL")
    assert ran.out.startswith(f"{job_id} ")
    assert ran.out.endswith(" mail attempt 1: [1]\n")


def test_the_payload_comes_from_argument_file_or_stdin(console: Console) -> None:
    (console.folder / "p.json").write_text('{\n  "n": 2\n}\n')
    (console.folder / "p.bin").write_bytes(b"\xff\x00")
    ids = [
        console.ok("push", "URL", "k", "1").out,
        console.ok("push", "URL", "k", "--file", "p.json").out,
        console.ok("push", "URL", "k", stdin=b' {"n": 3} ').out,
        console.ok("push", "URL", "k", "--file", "-", "--as", "text", stdin=b"four").out,
        console.ok("push", "URL", "k", "--file", "p.bin", "--as", "bytes").out,
    ]
    jobs = [console.ok("show", "URL", job_id.strip(), "--json").json for job_id in ids]
    assert [job["payload"] for job in jobs] == [1, {"n": 2}, {"n": 3}, "four", "/wA="]
    assert jobs[4]["payload_encoding"] == "base64"


def test_push_accepts_ids_keys_delays_and_attempts(console: Console) -> None:
    first = console.ok("push", "URL", "k", "1", "--key", "once", "--max-attempts", "2").out
    assert console.ok("push", "URL", "k", "1", "--key", "once", "--max-attempts", "2").out == first
    ran = console.run("push", "URL", "k", "2", "--key", "once")
    assert (ran.code, ran.out) == (4, "")
    assert "once" in ran.err
    assert console.ok("push", "URL", "k", "1", "--id", "mine", "--json").json == {
        "id": "mine",
        "duplicate": False,
    }
    console.ok("push", "URL", "k", "1", "--id", "later", "--run-at", "2099-01-01T00:00:00Z")
    assert console.ok("show", "URL", "later", "--json").json["run_at"] == "2099-01-01T00:00:00Z"
    console.ok("push", "URL", "k", "1", "--id", "soon", "--delay", "15m")
    assert "run_at" in console.ok("show", "URL", "soon", "--json").json


def test_nothing_to_claim_and_a_lost_lease_have_their_own_exit_codes(console: Console) -> None:
    console.ok("create", "URL")
    assert console.run("claim", "URL", "--wait", "0.1s") == (3, "", "nothing to claim\n")
    assert console.run("claim", "URL", "--quiet") == (3, "", "")
    console.ok("push", "URL", "k", "1")
    job, lease = claim(console)
    assert console.ok("release", "URL", job, lease, "--json").json["status"] == "queued"
    assert console.run("heartbeat", "URL", job, lease).code == 4
    ran = console.run("complete", "URL", job, lease)
    assert ran.code == 4
    assert "lease lost" in ran.err


def test_fail_prints_the_new_status_of_the_job(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    job, lease = claim(console)
    assert console.ok("fail", "URL", job, lease, "--error", "no").out == f"{job} is queued\n"
    assert console.ok("show", "URL", job, "--json").json["errors"][0]["error"] == "no"


def test_stats_are_printed_as_text_and_as_json(console: Console) -> None:
    kill(console)
    console.ok("push", "URL", "k", "1")
    console.ok("pause", "URL", "k")
    stats = console.ok("stats", "URL", "--json").json
    assert stats["totals"] == {"queued": 1, "running": 0, "done": 0, "dead": 1}
    assert stats["counts"]["k"] == {"queued": 1}
    assert stats["paused_kinds"] == ["k"]
    text = console.ok("stats", "URL").out
    assert "k  (paused)" in text
    assert "oldest queued job" in text
    console.ok("pause", "URL", "later")
    assert "later  (paused)" in console.ok("stats", "URL").out, "it has no jobs yet"
    console.ok("pause", "URL")
    assert "paused: no jobs" in console.ok("stats", "URL").out


def test_ls_filters_and_pages(console: Console) -> None:
    for number in range(5):
        console.ok("push", "URL", "ab"[number % 2], str(number), "--tag", f"n={number}")
    assert [job["payload"] for job in console.ok("ls", "URL", "--json").lines] == [0, 1, 2, 3, 4]
    page = console.ok("ls", "URL", "--json", "--limit", "2")
    assert len(page.lines) == 2
    after = page.err.split()[-1]
    rest = console.ok("ls", "URL", "--json", "--after", after, "--all")
    assert [job["payload"] for job in rest.lines] == [2, 3, 4]
    assert len(console.ok("ls", "URL", "--json", "-k", "b").lines) == 2
    assert len(console.ok("ls", "URL", "--json", "--tag", "n=3").lines) == 1
    assert console.ok("ls", "URL", "--json", "--status", "dead").out == ""
    text = console.ok("ls", "URL", "--status", "queued").out
    ids = [job["id"] for job in rest.lines]
    assert all(job_id in text for job_id in ids)


def test_a_payload_cannot_send_escape_sequences_to_the_terminal(console: Console) -> None:
    [job] = kill(console)
    shown = console.ok("show", "URL", job).out
    assert "\x1b" not in shown
    assert "\\x1b[31m" in shown
    dead = console.ok("dead", "URL").out
    assert job in dead
    assert "\x1b" not in dead


def test_ls_shows_the_last_error_of_a_dead_job_truncated(console: Console) -> None:
    for error in ("no such address\nTraceback: ...", "very " * 40):
        console.ok("push", "URL", "email", '{"to": "ada"}')
        [claimed] = console.ok("claim", "URL", "--json").lines
        words = ("fail", "URL", claimed["id"], claimed["lease"], "--no-retry", "--error", error)
        console.ok(*words)
    first, second = console.ok("ls", "URL").out.splitlines()[1:]
    assert "no such address  " in first
    assert "Traceback" not in first
    assert f"{('very ' * 40)[:59]}…" in second
    assert '{"to":"ada"}' in second


def test_dead_jobs_are_listed_redriven_and_purged(console: Console) -> None:
    jobs = kill(console, 4)
    listed = console.ok("dead", "URL", "--json", "--kind", "mail").lines
    assert [job["id"] for job in listed] == jobs
    assert console.ok("redrive", "URL", jobs[0], "--json").json == {"redriven": 1}
    assert console.ok("redrive", "URL", "--limit", "1").out == "1 job redriven\n"
    assert console.ok("purge", "URL", jobs[2], "--json").json == {"purged": 1}
    ran = console.run("purge", "URL")
    assert (ran.code, "--yes" in ran.err) == (2, True)
    assert console.ok("purge", "URL", "--older-than", "1h", "--yes").out == "0 jobs purged\n"
    assert console.ok("purge", "URL", "--yes").out == "1 job purged\n"


def test_cancel_prints_whether_the_job_was_cancelled(console: Console) -> None:
    console.ok("push", "URL", "k", "1", "--id", "a")
    console.ok("push", "URL", "k", "1", "--id", "b")
    claim(console)
    assert console.ok("cancel", "URL", "a", "--json").json == {"id": "a", "answer": "requested"}
    assert console.ok("cancel", "URL", "b").out == "b is cancelled\n"
    assert console.run("cancel", "URL", "c").code == 3


def test_priority_lets_a_job_that_waits_go_first(console: Console) -> None:
    for name in ("a", "b"):
        console.ok("push", "URL", "k", "1", "--id", name)
    assert console.ok("priority", "URL", "b", "-5").out == "b has priority -5\n"
    assert claim(console)[0] == "b"
    refused = console.run("priority", "URL", "b", "1")
    assert (refused.code, "job b is running" in refused.err) == (2, True)
    shown = {"id": "a", "priority": 2}
    assert console.ok("priority", "URL", "a", "2", "--json").json == shown
    assert "priority  " in console.ok("audit", "URL").out


def test_pause_and_resume(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    assert console.ok("pause", "URL", "--json").json == {"paused": True}
    assert console.run("claim", "URL").code == 3
    assert console.ok("resume", "URL", "k").out == "k is no longer paused\n"
    console.ok("resume", "URL")
    assert console.run("claim", "URL").code == 0


def test_config_shows_and_changes_settings(console: Console) -> None:
    console.ok("create", "URL", "lease_s=90")
    shown = console.ok("config", "URL", "--json").json
    assert shown["lease_s"] == 90
    assert set(shown) == set(Settings.__struct_fields__)
    text = console.ok("config", "URL", "heartbeat_s=9", 'backoff={"base_s": 4}').out
    assert [line.split()[0] for line in text.splitlines()] == ["SETTING", "heartbeat_s", "backoff"]
    assert console.ok("config", "URL", "--json").json["backoff"]["base_s"] == 4
    rows = [line.split() for line in console.ok("config", "URL").out.splitlines()]
    changed = [row[0] for row in rows if len(row) == 3 and row[0] != "SETTING"]
    assert changed == ["lease_s", "heartbeat_s", "backoff"], "compared with a new queue"
    assert ["dead_retention_s", "1209600"] in rows
    for bad in ("nonsense", "lease_s=", "lease_s=0", "leese_s=1", "lease_s=many"):
        assert console.run("config", "URL", bad).code == 2, bad


def test_the_archive_is_flushed_read_pruned_and_collected(console: Console) -> None:
    for number in range(3):
        console.ok("push", "URL", "ab"[number % 2], str(number))
        job, lease = claim(console)
        console.ok("complete", "URL", job, lease, "--result", str(10 * number))
    assert console.ok("archive", "flush", "URL", "--json").json == {"archived": 3}
    assert console.run("show", "URL", job).code == 3
    lines = console.ok("archive", "cat", "URL", "--since", "2h").lines
    assert [line["result"] for line in lines] == [0, 10, 20]
    assert len(console.ok("archive", "ls", "URL", "--kind", "a", "--json").lines) == 2
    assert job in console.ok("archive", "ls", "URL", "--id", job).out
    assert "narrow" in console.ok("archive", "ls", "URL", "--limit", "1").err
    assert console.ok("archive", "ls", "URL", "--since", "3d", "--until", "2d", "--json").out == ""
    assert console.ok("archive", "collect", "URL").out == "0 archive files deleted\n"
    assert console.run("archive", "prune", "URL", "--older-than", "0s").code == 2
    assert console.ok("archive", "prune", "URL", "--older-than", "1d", "--yes").code == 0
    assert len(console.ok("archive", "cat", "URL").lines) == 3


@pytest.mark.parametrize(
    "since", ["yesterday", "2h30", "2026-02-15T10:00:00", "-1h", "2026-13-01", "1h until now"]
)
def test_an_invalid_time_is_rejected_with_an_example(console: Console, since: str) -> None:
    ran = console.run("archive", "ls", "URL", "--since", since)
    assert ran.code == 2
    assert len(ran.err.splitlines()) <= 4


def test_the_address_may_come_from_the_environment(console: Console) -> None:
    env = {"BUCKETQ_URL": console.url}
    assert console.run("push", "mail", "1", "--id", "a", env=env).out == "a\n"
    assert console.run("push", "--priority", "3", "mail", "2", "--id", "b", env=env).code == 0
    assert console.run("show", "b", "--json", env=env).json["priority"] == 3
    assert console.run("ls", "--limit", "1", "--json", env=env).json["id"] == "a"
    other = Console(console.folder / "other")
    assert console.run("push", other.url, "mail", "1", env=env).code == 0
    assert other.ok("stats", "URL", "--json").json["totals"]["queued"] == 1
    assert console.run("stats", "--json", env=env).json["totals"]["queued"] == 2


def test_with_json_errors_are_objects_on_stderr(console: Console) -> None:
    ran = console.run("stats", "URL", "--json")
    assert (ran.code, ran.out) == (3, "")
    error = json.loads(ran.err)
    assert (error["kind"], error["exit_code"]) == ("QueueNotFoundError", 3)


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail", "release"])
def test_a_job_that_is_gone_is_a_lost_lease_for_its_worker(console: Console, verb: str) -> None:
    """Whether another worker's completion is archived yet must not change the exit code."""
    console.ok("push", "URL", "k", "1")
    job = console.ok("claim", "URL", "--json").json
    console.ok("complete", "URL", job["id"], job["lease"])
    before = console.run(verb, "URL", job["id"], "another-lease")
    console.ok("archive", "flush", "URL")
    after = console.run(verb, "URL", job["id"], "another-lease")
    assert (before.code, after.code) == (4, 4)
    assert "stop working on it" in after.err + after.out
    assert console.run("show", "URL", job["id"]).code == 3


def test_the_result_of_a_job_is_waited_for_and_printed(console: Console) -> None:
    job_id = console.ok("push", "URL", "add", "[1, 2]").out.strip()
    (job,) = console.ok("claim", "URL", "--json").lines
    ran = console.run("wait", "URL", job_id, "--timeout", "0.2s")
    assert (ran.code, ran.out) == (3, "")
    assert "not over" in ran.err
    console.ok("complete", "URL", job_id, job["lease"], "--result", '{"sum": 3}')
    assert console.ok("wait", "URL", job_id).out == '{"sum":3}\n'
    assert console.ok("wait", "URL", job_id, "--json").json == {"id": job_id, "result": {"sum": 3}}
    console.ok("archive", "flush", "URL")
    assert console.ok("wait", "URL", job_id).out == '{"sum":3}\n'
    assert console.run("wait", "URL", "nobody").code == 3


def test_a_job_that_failed_or_was_cancelled_ends_a_wait_with_an_error(console: Console) -> None:
    dead = console.ok("push", "URL", "add", "1").out.strip()
    (job,) = console.ok("claim", "URL", "--json").lines
    console.ok("fail", "URL", dead, job["lease"], "-e", "the disk is full", "--no-retry")
    ran = console.run("wait", "URL", dead)
    assert (ran.code, "the disk is full" in ran.err) == (4, True)
    cancelled = console.ok("push", "URL", "add", "2").out.strip()
    console.ok("cancel", "URL", cancelled)
    assert console.run("wait", "URL", cancelled).code == 4


def test_a_push_that_waits_prints_the_result_instead_of_the_id(console: Console) -> None:
    ran = console.run("push", "URL", "add", "1", "--id", "mine", "--wait", "0.1s")
    assert (ran.code, ran.out) == (3, "")
    assert "pushed mine" in ran.err
    (job,) = console.ok("claim", "URL", "--json").lines
    console.ok("complete", "URL", "mine", job["lease"], "--result", "5")
    assert console.ok("push", "URL", "add", "1", "--id", "mine", "--wait", "5s").out == "5\n"
