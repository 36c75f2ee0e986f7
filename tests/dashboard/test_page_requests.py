"""Requests that other web sites could make a browser send, and headers that protect the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import bucketq
from bucketq.dashboard.request_checks import RequestChecks
from tests.dashboard.page_server import Page, served_page

STATIC = Path(bucketq.__file__).parent / "dashboard" / "static"
FIRST_PAINT_BYTES = 50_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    address = (tmp_path_factory.mktemp("queue") / "queue.json").as_uri()
    with bucketq.connect_sync(address, mode="direct") as queue:
        queue.push("k", 1, id="one")
    return address


@pytest.fixture(scope="module")
def page(url: str) -> Iterator[Page]:
    with served_page({"jobs": url}, hosts=["jobs.example.org"]) as served:
        yield served


@pytest.mark.parametrize("path", ["/", "/q/jobs/jobs?kind=k", "/static/main.js", "/api/session"])
def test_every_answer_is_protected(page: Page, path: str) -> None:
    answer = page.get(path)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "server" not in answer.headers


def test_another_name_for_this_host_is_refused(page: Page) -> None:
    for host in ("localhost", "127.0.0.1:7701", "[::1]:80", "jobs.example.org:443"):
        assert page.get("/api/session", host=host).status == 200, host
    for host in ("evil.example", "localhost.evil.example", "jobs.example.org.evil", ""):
        assert page.get("/api/session", host=host).status == 403, host


def test_changes_come_from_the_page_itself(page: Page, url: str) -> None:
    action = {"action": "cancel", "job": "one"}
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": page.url + ".evil.example"},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ):
        assert page.post("/api/q/jobs/actions", action, **headers).status == 403, headers
    assert page.send("POST", "/api/q/jobs/actions", b"{}").status == 403
    with bucketq.connect_sync(url, mode="direct") as queue:
        assert queue.get("one").status == "queued"


def test_nothing_changes_on_get(page: Page) -> None:
    for path in ("/api/q/jobs/actions", "/api/login", "/api/logout"):
        assert page.get(path).status in {404, 405}
    assert page.send("DELETE", "/api/q/jobs/jobs/one", b"", {"origin": page.url}).status >= 403


def test_another_site_cannot_read_the_queue(page: Page) -> None:
    for site in ("cross-site", "same-site"):
        assert page.get("/api/q/jobs/jobs", sec_fetch_site=site).status == 403
        assert page.get("/q/jobs", sec_fetch_site=site).status == 200  # A link to the page.
    assert "access-control-allow-origin" not in page.get("/api/session").headers


def test_a_large_request_is_refused(page: Page) -> None:
    checks = RequestChecks(_unused, hosts=(), tls=False)
    own = {"host": "localhost", "origin": "http://localhost", "content-type": "application/json"}
    assert checks.problem_of("POST", "/api/login", own | {"content-length": "10"}) == ""
    for length in ("", "3000000", "-1"):
        assert checks.problem_of("POST", "/api/login", own | {"content-length": length})
    assert page.get("/healthz").body == b"ok\n"


def test_read_only_refuses_every_action(url: str) -> None:
    with served_page({"jobs": url}, read_only=True) as page:
        assert page.act("cancel", job="one").status == 403
        assert page.get("/api/q/jobs/jobs/one").json["status"] == "queued"
        assert page.get("/api/session").json["read_only"] is True


def test_the_page_is_small_and_loads_nothing_from_elsewhere(page: Page) -> None:
    files = {path.name: path.read_text() for path in STATIC.iterdir()}
    paths = ["/", *(f"/static/{name}" for name in files)]
    sent = [page.get(path, accept_encoding="gzip").body for path in paths]
    assert sum(map(len, sent)) < FIRST_PAINT_BYTES
    for name, text in files.items():
        known = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in known, name
        assert "https://" not in known, name
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert way not in text, f"{name} uses {way}: text from a queue could become HTML"


async def _unused(*_: object) -> None:
    raise AssertionError
