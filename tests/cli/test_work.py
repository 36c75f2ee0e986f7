"""``bucketq work``: a worker of a user's module, in a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.console import TIMEOUT_S, Console, Ran, finish
from tests.cli.terminal import Terminal, write_module
from tests.environ import child_environ

TASKS = """
import asyncio, logging, pathlib, sys, time
import bucketq
from msgspec import Struct

worker = bucketq.Worker(concurrency=2, mode="direct")


class Mail(Struct):
    to: str


@worker.handler("mail")
async def mail(mail: Mail) -> str:
    return f"result for {mail.to}"


@worker.handler("thread")
def in_thread(payload: int) -> None: ...


@worker.handler("process", run_in="process")
def in_process(payload: int) -> int:
    return payload + 1


@worker.handler("broken", backoff=bucketq.Backoff(base_s=600))
async def broken(payload: str) -> None:
    raise ValueError(f"cannot read {payload}")


@worker.handler("patient")
async def patient() -> None:
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.02)


@worker.handler("blocking")
async def blocking() -> None:
    pathlib.Path("begun").touch()
    time.sleep(60)
"""


@pytest.fixture
def home(console: Console) -> Console:
    """A directory with a module and an empty queue."""
    write_module(console.folder, TASKS)
    console.ok("create", "URL", "lease_s=5", "heartbeat_s=1")
    return console


@contextmanager
def working(home: Console, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that runs meanwhile."""
    process = home.start("work", "tasks:worker", "--url", "URL", *words)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for(path: Path) -> None:
    """Wait until a handler has written its file."""
    until = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} did not come"
        time.sleep(0.02)


def read_until(process: subprocess.Popen[bytes], word: str) -> str:
    """Read what a process writes to stderr until a line has a word."""
    assert process.stderr is not None
    for line in process.stderr:
        if word in line.decode():
            return line.decode()
    raise AssertionError(word)


def test_a_burst_runs_available_jobs_and_reports_those_that_wait(home: Console) -> None:
    home.ok("push", "URL", "mail", '{"to": "ada@example.org"}')
    home.ok("push", "URL", "mail", '{"from": "ada@example.org"}')
    home.ok("push", "URL", "mail", '{"to": "later@example.org"}', "--delay", "1h")
    home.ok("push", "URL", "thread", "1")
    home.ok("push", "URL", "process", "41", "--id", "answer")
    home.ok("push", "URL", "broken", '"a secret"')
    ran = home.spawn("work", "tasks", "--burst", env={"BUCKETQ_URL": home.url})
    assert ran.code == 0, ran
    assert ran.out.startswith("5 attempts: ")
    for expected in ("3 done", "1 retried", "1 dead", "; 2 jobs wait for a later time"):
        assert expected in ran.out
    lines = ran.err.splitlines()
    done = re.compile(r"\S+Z info done job=answer kind=process attempt=1 took_s=[\d.]+")
    assert sum(done.fullmatch(line) is not None for line in lines) == 1, lines
    assert re.search(
        r"warning retried job=\S+ kind=broken .* error=ValueError$", ran.err, re.MULTILINE
    )
    assert re.search(
        r"warning dead job=\S+ kind=mail .* error=UnfitPayload$", ran.err, re.MULTILINE
    )
    assert not any(
        word in ran.err for word in ("example.org", "secret", "cannot read", "Traceback")
    )
    assert home.ok("show", "URL", "answer", "--json").json["result"] == 42


def test_options_override_the_worker_and_the_log_may_be_json(
    home: Console,
) -> None:
    source = TASKS.replace("Worker(", 'Worker("memory://elsewhere", ')
    write_module(home.folder, source)
    home.ok("push", "URL", "mail", '{"to": "ada@example.org"}', "--id", "job")
    home.ok("push", "URL", "thread", "1", "--id", "other")
    words = ("--burst", "--kinds", "mail", "--concurrency", "7", "--name", "mailer-1", "--json")
    ran = home.spawn("work", "tasks.py:worker", "--url", "URL", *words)
    assert ran.code == 0, ran
    assert ran.json == {"done": 1, "queued": 0}
    lines = [json.loads(line) for line in ran.err.splitlines()]
    done = next(line for line in lines if line["event"] == "done")
    fields = {"time", "level", "pid", "event", "job", "kind", "attempt", "took_s", "worker"}
    assert set(done) == fields
    assert (done["job"], done["kind"], done["worker"]) == ("job", "mail", "mailer-1")
    assert lines[-1]["event"] == "ended"
    assert home.ok("show", "URL", "other", "--json").json["status"] == "queued"


def test_the_address_of_the_worker_overrides_the_variable(home: Console) -> None:
    write_module(home.folder, TASKS.replace("Worker(", f'Worker("{home.url}", '))
    home.ok("push", "URL", "thread", "1")
    elsewhere = (home.folder / "elsewhere.json").as_uri()
    ran = home.spawn("work", "tasks", "--burst", "-q", env={"BUCKETQ_URL": elsewhere})
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert home.ok("stats", "URL", "--json").json["totals"]["done"] == 1
    assert not (home.folder / "elsewhere.json").exists()


def test_debug_shows_the_traceback_of_a_handler(home: Console) -> None:
    home.ok("push", "URL", "broken", '"a secret"')
    ran = home.spawn("work", "tasks", "--url", "URL", "--burst", "--debug")
    assert ran.code == 0
    assert "ValueError: cannot read a secret" in ran.err
    assert 'tasks.py", line' in ran.err


def test_the_first_signal_lets_handlers_finish(home: Console) -> None:
    home.ok("push", "URL", "patient", "null")
    with working(home) as process:
        wait_for(home.folder / "begun")
        process.send_signal(signal.SIGTERM)
        assert "SIGTERM: no more jobs are claimed" in read_until(process, "SIGTERM")
        (home.folder / "go").touch()
        ran = finish(process)
    assert (ran.code, ran.out) == (0, "1 attempt: 1 done\n"), ran


def test_the_second_signal_releases_jobs(home: Console) -> None:
    home.ok("push", "URL", "patient", "null")
    with working(home) as process:
        wait_for(home.folder / "begun")
        process.send_signal(signal.SIGINT)
        read_until(process, "SIGINT")
        process.send_signal(signal.SIGINT)
        ran = finish(process)
    assert (ran.code, ran.out) == (0, "1 attempt: 1 released\n"), ran
    assert home.ok("stats", "URL", "--json").json["totals"]["queued"] == 1


def test_two_sigterms_at_once_count_as_one(home: Console) -> None:
    """As ``timeout`` of GNU sends it: to the process, and to the group that it is in."""
    home.ok("push", "URL", "patient", "null")
    words = ("timeout", "--verbose", "60", sys.executable, "-m", "bucketq.cli", "work")
    process = home.launch(*words, "tasks:worker", "--url", home.url)
    wait_for(home.folder / "begun")
    process.send_signal(signal.SIGTERM)  # It does with this as with the end of its time.
    read_until(process, "SIGTERM: no more jobs are claimed")
    (home.folder / "go").touch()
    ran = finish(process)
    assert ran.out == "1 attempt: 1 done\n", ran
    assert "SIGTERM: handlers are stopped" not in ran.err


def test_the_third_signal_kills_the_worker_even_if_a_handler_blocks(home: Console) -> None:
    home.ok("push", "URL", "blocking", "null")
    with working(home) as process:
        wait_for(home.folder / "begun")
        process.send_signal(signal.SIGINT)
        read_until(process, "SIGINT: no more jobs are claimed")
        # Python may see a signal only after the sleep, if it arrives just before that resumes.
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert process.stderr is not None
        # Not by `finish`, which does not see what `read_until` has read ahead.
        assert "SIGINT: handlers are stopped" in process.stderr.read().decode()
        assert process.returncode == -signal.SIGINT


def test_a_drain_that_takes_too_long_releases_jobs(home: Console) -> None:
    home.ok("push", "URL", "patient", "null")
    with working(home, "--drain", "0.1s") as process:
        wait_for(home.folder / "begun")
        process.send_signal(signal.SIGTERM)
        ran = finish(process)
    assert (ran.code, ran.out) == (0, "1 attempt: 1 released\n"), ran


def test_a_queue_that_does_not_answer_is_logged_and_retried(home: Console) -> None:
    write_module(home.folder, TASKS.replace(', mode="direct"', ""))
    url = "bucketq://127.0.0.1:9/jobs"
    ran = home.spawn("work", "tasks", "--url", url, "--timeout", "4", "--log-format", "json")
    assert ran.code == 5, ran
    note, error = (json.loads(line) for line in ran.err.splitlines())
    assert note["event"] == f"{url} does not answer yet; retrying"
    assert "127.0.0.1:9" in error["error"]
    assert ran.out == ""


def test_a_deleted_queue_stops_the_worker_with_the_reason(home: Console) -> None:
    with working(home) as process:
        read_until(process, "working on")
        home.ok("delete", "URL", "--yes")
        home.ok("create", "URL")
        ran = finish(process)
    assert ran.code in {3, 5}, ran
    assert "queue.json" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("absent",), "no module 'absent'"),
        (("tasks:nobody",), "it has tasks:worker"),
        (("tasks", "--kinds", "nothing"), "'nothing'"),
        (("tasks", "--concurrency", "0"), "concurrency"),
        (("tasks", "--drain", "soon"), "--drain"),
        (("tasks", "--log-format", "xml"), "--log-format"),
        (("tasks", "--timeout", "0"), "--timeout"),
        (("tasks", "--url", "ftp://host/queue.json"), "scheme"),
        ((), "MODULE:WORKER"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_invalid_arguments_of_work_are_rejected(
    home: Console, words: tuple[str, ...], said: str
) -> None:
    # The address is not taken for the worker.
    ran = home.run("work", *words, env={"BUCKETQ_URL": home.url})
    assert ran.code == 2, ran
    assert said in ran.err


def test_without_an_address_the_error_lists_its_sources(home: Console) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bucketq.cli", "work", "tasks"],
        cwd=home.folder,
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    ran = Ran(done.returncode, done.stdout, done.stderr)
    assert ran.code == 2, ran
    assert "--url" in ran.err
    assert "BUCKETQ_URL" in ran.err


NOISY = """
import logging, sys, time
import bucketq

logging.basicConfig(level=logging.INFO, format="theirs %(message)s")
worker = bucketq.Worker(concurrency=2, mode="direct")


@worker.handler("noisy")
def noisy(number: int) -> None:
    print(f"printed {number}")
    logging.info("logged %s", number)
    time.sleep(0.1)
"""


def test_the_status_line_and_the_log_do_not_mix(home: Console) -> None:
    write_module(home.folder, NOISY)
    for number in range(12):
        home.ok("push", "URL", "noisy", str(number))
    with Terminal(home, "work", "tasks", "--url", "URL") as terminal:
        terminal.until(r"running 0/2, waiting 0 \| 12 done, 0 retried, 0 dead \| [\d.]+ jobs/s")
        terminal.until(r"\| 0 queued")
        terminal.type(b"\x03")
        assert terminal.finish() == 0
        lines = [line for line in terminal.screen() if line]
    shown = re.compile(
        r"printed \d+|theirs logged \d+|\S+Z info .*|12 attempts: 12 done|\^C", re.ASCII
    )
    assert [line for line in lines if not shown.fullmatch(line)] == []
    assert sum(line.startswith("printed") for line in lines) == 12
    assert sum(line.startswith("theirs") for line in lines) == 12
    assert sum(" info done job=" in line for line in lines) == 12
    assert lines[-1] == "12 attempts: 12 done"


@pytest.mark.parametrize("words", [("--quiet",), ("--log-format", "json")])
def test_a_dumb_terminal_gets_no_status_line(home: Console, words: tuple[str, ...]) -> None:
    home.ok("push", "URL", "thread", "1")
    with Terminal(home, "work", "tasks", "--url", "URL", "--burst", *words) as terminal:
        assert terminal.finish() == 0
        assert "\x1b" not in terminal.text
        assert "running" not in terminal.text


SIGNED = """
import bucketq

worker = bucketq.Worker(mode="direct")


@worker.handler("job")
async def handle() -> str:
    return "{}"
"""


def result_of(home: Console, job: str) -> str:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        record = home.ok("show", "URL", job, "--json").json
        if record["status"] == "done":
            return str(record["result"])
        time.sleep(0.1)
    raise AssertionError(record)


def test_a_change_of_the_source_restarts_the_worker(home: Console) -> None:
    write_module(home.folder, SIGNED.format("first"))
    with Terminal(home, "work", "tasks", "--url", "URL", "--reload") as terminal:
        at = terminal.until("working on")
        home.ok("push", "URL", "job", "null", "--id", "one")
        assert result_of(home, "one") == "first"
        write_module(home.folder, SIGNED.format("second"))
        at = terminal.until(r"tasks\.py changed: restarting", after=at)
        at = terminal.until("working on", after=at)
        home.ok("push", "URL", "job", "null", "--id", "two")
        assert result_of(home, "two") == "second"
        write_module(home.folder, "def broken(:\n")
        at = terminal.until("SyntaxError", after=at)
        at = terminal.until("waiting for a change", after=at)
        write_module(home.folder, SIGNED.format("third"))
        at = terminal.until("working on", after=at)
        home.ok("push", "URL", "job", "null", "--id", "three")
        assert result_of(home, "three") == "third"
        terminal.type(b"\x03")
        assert terminal.finish() == 0
        assert "Traceback (most" not in terminal.text
        assert "SIGTERM: no more jobs are claimed" in terminal.text[at:]


def test_a_worker_stops_if_its_reloader_is_killed(home: Console) -> None:
    write_module(home.folder, SIGNED.format("first"))
    home.ok("push", "URL", "job", "null", "--id", "one")
    process = home.start("work", "tasks", "--url", "URL", "--reload")
    try:
        assert result_of(home, "one") == "first"
        process.kill()
        ran = finish(process)  # Both write to this pipe, so its end is the end of both.
    finally:
        process.kill()
        process.wait()
    assert ran.code == -signal.SIGKILL
    assert "the process that watched the source is gone" in ran.err


def test_batch_jobs_needs_spark(home: Console) -> None:
    ran = home.run("work", "tasks:worker", "--url", "URL", "--batch-jobs", "5")
    assert ran.code == 2
    assert "--batch-jobs needs --spark" in ran.err


def test_without_java_the_error_says_what_to_do(home: Console) -> None:
    ran = home.spawn(
        "work", "tasks:worker", "--url", "URL", "--spark", "local[2]", env={"JAVA_HOME": "/no/java"}
    )
    assert ran.code == 2
    assert "Spark needs Java, and there is none at JAVA_HOME" in ran.err


def test_an_unknown_master_is_rejected_before_spark_starts(home: Console) -> None:
    ran = home.run("work", "tasks:worker", "--url", "URL", "--spark", "cluster-7")
    assert ran.code == 2
    assert "'cluster-7' is not a Spark master: write local[4]" in ran.err
