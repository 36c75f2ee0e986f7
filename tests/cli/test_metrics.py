"""``--metrics`` of ``serve`` and ``work``: a broker and a worker that Prometheus can scrape."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.console import TIMEOUT_S, Console, finish
from tests.cli.terminal import write_module
from tests.security.certificates import Authority

TASKS = """
import bucketq

worker = bucketq.Worker()


@worker.handler("mail", max_attempts=1)
def mail(payload: int) -> None:
    if payload == 0:
        raise ValueError(payload)
"""
TOKEN = "0123456789abcdef"


def address_of(process: subprocess.Popen[bytes]) -> str:
    """Read the log of a process until it says where its metrics are."""
    assert process.stderr is not None
    while line := process.stderr.readline():
        event = str(json.loads(line)["event"])
        if event.startswith("metrics at "):
            return event.removeprefix("metrics at ")
    raise AssertionError(finish(process))


def get(url: str, path: str = "/metrics", ca: Path | None = None, token: str = "") -> str:
    """Read a page that must be there."""
    place = urlsplit(url)
    assert place.hostname is not None
    connection = (
        HTTPConnection(place.hostname, place.port, timeout=TIMEOUT_S)
        if ca is None
        else HTTPSConnection(
            place.hostname,
            place.port,
            timeout=TIMEOUT_S,
            context=ssl.create_default_context(cafile=ca),
        )
    )
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return body if answer.status == 200 else f"{answer.status}: {body}"


def check_with_promtool(text: str) -> None:
    """Let the linter of Prometheus, Debian's package ``prometheus``, read the metrics."""
    promtool = shutil.which("promtool")
    if promtool is not None:
        checked = subprocess.run(
            [promtool, "check", "metrics"],
            input=text.encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert checked.returncode == 0, checked


def test_a_broker_and_a_worker_show_what_they_do(console: Console) -> None:
    write_module(console.folder, TASKS)
    broker = console.start("serve", "jobs=" + console.url, "--metrics", ":0", "--json")
    at_broker = address_of(broker)
    assert broker.stdout is not None
    assert json.loads(broker.stdout.readline())["address"]
    assert get(at_broker, "/readyz") == "ready\n"
    for payload in ("1", "2", "0"):
        console.ok("push", "URL", "mail", payload)
    console.ok("push", "URL", "unknown", "1")
    worker = console.start(
        "work", "tasks:worker", "--url", "URL", "--metrics", ":0", "--log-format", "json"
    )
    at_worker = address_of(worker)
    assert worker.stderr is not None
    ended = 0
    while ended < 3:  # A line of the log for each job.
        ended += json.loads(worker.stderr.readline())["event"] in {"done", "dead"}
    assert get(at_worker, "/readyz") == "ready\n"
    shown, worked = get(at_broker), get(at_worker)
    for line in (
        'bucketq_jobs{kind="unknown",queue="jobs",status="queued"} 1.0',
        'bucketq_jobs{kind="mail",queue="jobs",status="dead"} 1.0',
        'bucketq_pushed_jobs_total{queue="jobs"} 4.0',
        'bucketq_claimed_jobs_total{queue="jobs"} 3.0',
        'bucketq_completed_jobs_total{queue="jobs"} 2.0',
        'bucketq_failed_attempts_total{queue="jobs",status="dead"} 1.0',
        'bucketq_takeovers_total{queue="jobs"} 1.0',
        'bucketq_operations_total{operation="push",result="ok"} 4.0',
        'bucketq_broker_leading{queue="jobs"} 1.0',
    ):
        assert line in shown.splitlines()
    assert 'bucketq_storage_requests_total{request="replace",result="ok"}' in shown
    for line in (
        'bucketq_worker_attempts_total{kind="mail",outcome="done"} 2.0',
        'bucketq_worker_attempts_total{kind="mail",outcome="dead"} 1.0',
        'bucketq_handler_seconds_count{kind="mail"} 3.0',
        "bucketq_worker_ready 1.0",
    ):
        assert line in worked.splitlines()
    check_with_promtool(shown)
    check_with_promtool(worked)
    for process in (worker, broker):
        process.send_signal(signal.SIGTERM)
        assert finish(process).code == 0


def test_beyond_loopback_metrics_need_tls_and_a_token(console: Console, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    words = ("serve", "URL", "--metrics", "0.0.0.0:0", "--log-format", "json")
    broker = console.start(*words, *authority.broker.options, env={"BUCKETQ_METRICS_TOKEN": TOKEN})
    url = address_of(broker).replace("0.0.0.0", "localhost")
    assert url.startswith("https://")
    assert get(url, ca=authority.ca).startswith("401")
    assert get(url, "/healthz", ca=authority.ca) == "ok\n"
    assert "bucketq_info" in get(url, ca=authority.ca, token=TOKEN)
    broker.send_signal(signal.SIGTERM)
    assert finish(broker).code == 0


@pytest.mark.parametrize(
    ("words", "token", "said"),
    [
        (["--metrics", "9464"], "", "HOST:PORT"),
        (["--metrics", "0.0.0.0:9464"], "", "BUCKETQ_METRICS_TOKEN"),
        (["--metrics", "0.0.0.0:9464"], TOKEN, "--tls-cert"),
        (["--metrics", ":0"], "short", "at least 16"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
@pytest.mark.parametrize("command", [("serve", "URL"), ("work", "tasks", "--url", "URL")])
def test_metrics_without_protection_are_rejected(
    console: Console, command: tuple[str, ...], words: list[str], token: str, said: str
) -> None:
    ran = console.run(*command, *words, env={"BUCKETQ_METRICS_TOKEN": token})
    assert (ran.code, said in ran.err) == (2, True), ran


def test_metrics_without_their_extra_say_what_to_install(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketq.cli.metrics_options.find_spec", lambda _: None)
    ran = console.run("serve", "URL", "--metrics", ":0")
    assert (ran.code, "bucketq[metrics]" in ran.err) == (2, True), ran
