"""``bucketq dashboard``, and ``serve --dashboard``, which starts it."""

from __future__ import annotations

import os
import re
import signal
import time

from tests.cli.console import TIMEOUT_S, Console
from tests.servers.process import http


def test_other_hosts_need_tls(console: Console) -> None:
    refused = console.run("dashboard", "URL", "--listen", "192.0.2.1:7701")
    assert refused.code == 2
    assert "--tls-cert" in refused.err
    let_through = console.run("dashboard", "URL", "--listen", "192.0.2.1:7701", "--insecure")
    assert "cannot listen on 192.0.2.1:7701" in let_through.err


def test_queues_have_different_names(console: Console) -> None:
    ran = console.run("dashboard", "a=memory://one", "a=memory://two")
    assert ran.code == 2
    assert "two queues are called a" in ran.err
    none = console.run("dashboard", f"{console.folder.as_uri()}/")
    assert "there are no queues under" in none.err


def test_the_page_shows_metrics_of_its_process(console: Console) -> None:
    page = console.start("dashboard", "URL", "--listen", ":0", "--metrics", ":0")
    assert page.stderr is not None
    shown = ""
    while "metrics at" not in shown:
        shown = page.stderr.readline().decode()
        assert shown
    found = re.search(r"http://127\.0\.0\.1:\d+/", shown)
    assert found, shown
    assert page.stdout is not None
    assert b"dashboard of" in page.stdout.readline()
    assert http("GET", f"{found[0]}readyz")[0] == 200
    status, body = http("GET", f"{found[0]}metrics")
    assert (status, b"bucketq_info{" in body, b"process_cpu_seconds" in body) == (200, True, True)
    page.send_signal(signal.SIGTERM)
    assert page.wait(TIMEOUT_S) == 0


def test_a_broker_starts_the_page_and_takes_it_along(console: Console) -> None:
    console.ok("push", "URL", "greet", "1")
    broker = console.start("serve", "URL", "--dashboard", ":0")
    assert broker.stderr is not None
    shown = ""
    while "dashboard of" not in shown:
        shown = broker.stderr.readline().decode()
        assert shown
    found = re.search(r"http://127\.0\.0\.1:\d+/", shown)
    assert found, shown
    name = console.folder.name
    status, body = http("GET", f"{found[0]}api/q/{name}/stats")
    assert (status, b'"greet":{"queued":1}' in body) == (200, True)
    os.kill(broker.pid, signal.SIGKILL)
    broker.wait(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while http("GET", f"{found[0]}healthz")[0]:
        assert time.monotonic() < deadline, "the page has outlived its broker"
        time.sleep(0.1)
