"""``bucketq serve``, and the other commands through the broker that it starts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bucketq.cli.commands.brokers import serve
from tests.cli.console import TIMEOUT_S, Console, Ran, finish
from tests.environ import child_environ


@contextmanager
def serving(console: Console, *words: str) -> Iterator[str]:
    """A broker in a process of its own; yields its address, and ends it with SIGTERM."""
    process = console.start("serve", "URL", "--json", *words)
    assert process.stdout is not None
    try:
        yield str(json.loads(process.stdout.readline() or finish(process).err)["address"])
    finally:
        process.send_signal(signal.SIGTERM)
        ended = finish(process)
        assert (ended.code, "Traceback" in ended.err) == (0, False), ended


def test_the_help_of_serve_says_how_to_stop_it(console: Console) -> None:
    shown = console.ok("serve", "--help").out
    for word in ("--listen", "--advertise", "--takeover", "--idle-exit", "--insecure", "SIGTERM"):
        assert word in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "nowhere"], "HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "HOST:PORT"),
        (["--listen", "http://127.0.0.1:1"], "HOST:PORT"),
        (["--listen", "10.0.0.7:7700"], "--insecure"),
        (["--listen", "0.0.0.0:7700"], "--insecure"),
        (["--listen", "192.0.2.1:0"], "--insecure"),
        (["--listen", "0.0.0.0:7700", "--insecure"], "add --advertise HOST:PORT"),
        (["--listen", "[::]:0", "--insecure"], "add --advertise HOST:PORT"),
        (
            ["--listen", "0.0.0.0:0", "--advertise", "host:0", "--insecure"],
            "add --advertise HOST:PORT",
        ),
        (["--advertise", "there"], "HOST:PORT"),
        (["--advertise", "there:0"], "--advertise HOST:PORT"),
        (["--idle-exit", "soon"], "--idle-exit"),
        (["--idle-exit", "-5"], "--idle-exit"),
        (["--log-format", "xml"], "--log-format"),
        (["--timeout", "0"], "--timeout"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_options_are_rejected_before_anything_is_served(
    console: Console, words: list[str], said: str
) -> None:
    ran = console.run("serve", "URL", *words)
    assert ran.code == 2, ran
    assert said in ran.err
    assert not console.path.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "192.0.2.1:7700", "--insecure"], "cannot listen at 192.0.2.1:7700"),
        (["URL"], "name them apart"),
        (["ftp://host/queue.json"], "scheme"),
        (["Bad Name=memory://x"], "scheme"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_rejected_after_the_process_was_set_up_creates_no_queue(
    console: Console, words: list[str], said: str
) -> None:
    """By then a broker has changed the limits and the log of its process: it needs its own."""
    ran = console.spawn("serve", "URL", *words)
    assert ran.code == 2, ran
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert not console.path.exists()


def test_an_address_in_use_is_rejected(console: Console) -> None:
    with serving(console) as address:
        ran = console.spawn("serve", "memory://other", "--listen", address)
        assert ran.code == 2
        assert f"cannot listen at {address}" in ran.err


def test_an_object_that_is_not_a_queue_stops_the_broker_with_the_reason(console: Console) -> None:
    console.path.write_text("somebody's notes\n" * 10)
    ran = console.spawn("serve", "URL")
    assert ran.code not in {0, 2}
    assert "queue.json" in ran.err
    assert "Traceback" not in ran.err


def test_commands_use_the_broker_if_one_answers(console: Console) -> None:
    with serving(console) as address:
        pushed = console.ok("push", "URL", "mail", '{"to": "ada"}').out.strip()
        job = console.ok("claim", "URL", "--json").json
        assert job["id"] == pushed
        console.ok("heartbeat", "URL", job["id"], job["lease"])
        console.ok("complete", "URL", job["id"], job["lease"], "--result", '"sent"')
        stats = console.ok("stats", "URL", "--json").json
        assert stats["totals"]["done"] == 1
        assert stats["broker"]["address"] == address
        assert console.ok("show", "URL", pushed, "--json").json["result"] == "sent"
    stats = console.ok("stats", "URL", "--json").json
    assert not (stats["broker"] or {}).get("address"), "it has cleared its address"


def test_commands_reach_a_broker_by_its_address_alone(console: Console) -> None:
    with serving(console) as address:
        unknown = console.spawn("stats", f"bucketq://{address}/no-such-queue")
        assert unknown.code != 0
        served = re.search(r"'no-such-queue' is not served at .*; it serves (\S+)", unknown.err)
        assert served is not None, unknown
        url = f"bucketq://{address}/{served[1]}"
        pushed = console.ok("push", url, "mail", "1").out.strip()
        assert console.ok("claim", url, "--json").json["id"] == pushed
        assert console.ok("stats", "URL", "--json").json["totals"]["running"] == 1


def test_a_claim_that_waits_at_a_broker_is_woken_by_a_push(console: Console) -> None:
    with serving(console):
        waiting = console.start("claim", "URL", "--wait", "20", "--json")
        console.ok("push", "URL", "mail", "1")
        assert finish(waiting).json["kind"] == "mail"


def test_after_a_kill_commands_write_directly(console: Console) -> None:
    process = console.start("serve", "URL", "--json")
    assert process.stdout is not None
    process.stdout.readline()
    console.ok("push", "URL", "mail", "1")
    process.kill()
    finish(process)
    console.ok("push", "URL", "mail", "2")
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 2


def test_a_second_broker_is_a_standby_and_takes_over_on_request(console: Console) -> None:
    with serving(console) as first:
        with serving(console) as second:
            assert _leader(console) == first != second
        with serving(console, "--takeover") as third:
            for _ in range(100):
                if _leader(console) == third:
                    break
            assert _leader(console) == third
            console.ok("push", "URL", "mail", "1")


def _leader(console: Console) -> str:
    return str(console.ok("stats", "URL", "--json").json["broker"]["address"])


def test_an_idle_broker_exits(console: Console) -> None:
    ran = console.spawn("serve", "URL", "--idle-exit", "1s")
    assert ran.code == 0, ran
    assert "serving" in ran.out
    assert "stopping" in ran.err


def test_each_line_of_the_log_has_its_time_in_utc_and_its_level(console: Console) -> None:
    ran = console.spawn("serve", "URL", "--idle-exit", "1s")
    lines = ran.err.splitlines()
    assert len(lines) >= 2, ran
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info \S", line), line


@pytest.mark.parametrize("words", [("--log-format", "json"), ("--json",)], ids=" ".join)
def test_the_log_is_json_on_demand(console: Console, words: tuple[str, ...]) -> None:
    ran = console.spawn("serve", "URL", "--idle-exit", "1s", *words)
    assert ("address" in ran.json) if "--json" in words else ran.out.startswith("serving ")
    logged = [json.loads(line) for line in ran.err.splitlines()]
    assert {line["level"] for line in logged} == {"info"}
    assert all(line["time"].endswith("Z") for line in logged)
    assert any("leading in epoch 1" in line["event"] for line in logged)
    assert "stopping" in logged[-1]["event"]


def test_the_error_that_ends_a_broker_is_json_as_well(console: Console) -> None:
    console.path.write_text("somebody's notes\n" * 10)
    ran = console.spawn("serve", "URL", "--log-format", "json")
    *_, last = [json.loads(line) for line in ran.err.splitlines()]
    assert last["exit_code"] == ran.code
    assert "queue.json" in last["error"]


def test_quiet_leaves_warnings_with_their_time(console: Console) -> None:
    program = (
        "import logging, sys\n"
        "from bucketq.broker.server import Server\n"
        "begin = Server.start\n"
        "async def start(self, *words, **options):\n"
        "    logging.getLogger('bucketq.broker').warning('the host is slow')\n"
        "    await begin(self, *words, **options)\n"
        "Server.start = start\n"
        "from bucketq.cli import main\n"
        "main()\n"
    )
    words = ("serve", console.url, "--idle-exit", "1s", "--quiet")
    ran = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert re.fullmatch(r"\S+Z warning the host is slow\n", ran.stderr), ran.stderr
    # Scripts wait for the address, which is a result and not a log line.
    assert re.fullmatch(r"serving \S+ at 127\.0\.0\.1:\d+\n", ran.stdout), ran.stdout


def without_grpc(*words: str, folder: Path) -> Ran:
    """Run a command without the packages of the broker extra."""
    program = (
        "import sys\n"
        "for name in ('grpc', 'google.protobuf', 'grpc_health', 'grpc_reflection'):\n"
        "    sys.modules[name] = None\n"
        "from bucketq.cli import main\n"
        "sys.argv = ['bucketq', *sys.argv[1:]]\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_without_grpc_serving_says_what_to_install(console: Console) -> None:
    ran = without_grpc("serve", console.url, folder=console.folder)
    assert ran.code == 2, ran
    assert 'pip install "bucketq[broker]"' in ran.err
    assert "Traceback" not in ran.err


def test_without_grpc_an_address_of_a_broker_says_what_to_install(console: Console) -> None:
    ran = without_grpc("stats", "bucketq://127.0.0.1:7700/jobs", folder=console.folder)
    assert ran.code == 2, ran
    assert 'pip install "bucketq[broker]"' in ran.err


def test_without_grpc_commands_write_directly(console: Console) -> None:
    pushed = without_grpc("push", console.url, "mail", "1", folder=console.folder)
    assert (pushed.code, pushed.err) == (0, ""), pushed
    stats = without_grpc("stats", console.url, "--json", folder=console.folder)
    assert stats.json["totals"]["queued"] == 1


async def test_a_sigterm_right_after_another_does_not_kill_a_broker_during_its_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``timeout`` of GNU sends it to a process, and to the group that it is in."""
    monkeypatch.setattr(serve, "_ECHO_S", 0.2)
    loop = asyncio.get_running_loop()
    stopped = serve._signals()
    os.kill(os.getpid(), signal.SIGTERM)
    await stopped.wait()
    # Without a handler it would end the process, and this one with it.
    assert loop.remove_signal_handler(signal.SIGTERM)
    loop.add_signal_handler(signal.SIGTERM, stopped.clear)
    async with asyncio.timeout(10):
        while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
    assert not loop.remove_signal_handler(signal.SIGINT)


def test_serve_warns_if_segments_are_refused(console: Console) -> None:
    (console.folder / "queue").mkdir()
    (console.folder / "queue" / "segments").write_text("not a folder")
    process = console.start("serve", "URL", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["address"]
    lines = iter(process.stderr.readline, b"")
    assert any(b"segments of" in line and b"cannot be written" in line for line in lines)
    assert console.ok("push", "URL", "k", "1").out
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 0


def test_jobs_in_segments_are_listed_shown_and_changed_through_a_broker(console: Console) -> None:
    console.deepen()
    with serving(console):
        while (stats := console.ok("stats", "URL", "--json").json)["broker"] is None:
            pass  # It has begun to listen, and will lead in a moment.
        assert stats["segments"] > 0
        first = console.ok("ls", "URL", "--limit", "10", "--json")
        assert [job["id"] for job in first.lines] == [f"job-{number}" for number in range(10)]
        rest = console.ok("ls", "URL", "--all", "--after", "10", "--json").lines
        assert [job["id"] for job in rest] == [*(f"job-{n}" for n in range(10, 100)), "last"]
        assert console.ok("show", "URL", "job-3", "--json").json["payload"] == 3
        assert console.ok("cancel", "URL", "job-3").out == "job-3 is cancelled\n"
        for number in (0, 1):
            job = console.ok("claim", "URL", "--json").json
            assert job["id"] == f"job-{number}"
            console.ok("fail", "URL", job["id"], job["lease"], "--no-retry")
        assert console.ok("redrive", "URL", "job-0").out == "1 job redriven\n"
        assert console.ok("purge", "URL", "--yes").out == "1 job purged\n"
        totals = console.ok("stats", "URL", "--json").json["totals"]
        assert (totals["queued"], totals["dead"]) == (99, 0)
