"""Beyond the loopback users of the web page log in with tokens, and brokers check their rights."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import bucketq
from bucketq.dashboard.login_sessions import IDLE, LONGEST, LoginSession
from bucketq.model.tokens import parse_token
from tests.dashboard.page_server import Got, Page, served_page
from tests.security.conftest import Served, granted

AT = "/api/q/jobs"


def log_in(page: Page, token: str, **headers: str) -> Got:
    return page.post("/api/login", {"queue": "jobs", "token": token}, **headers)


@pytest.mark.parametrize("way", ["storage", "broker"])
def test_what_a_user_may_do_is_what_the_token_allows(
    url: str, admin: str, served: Served, way: str
) -> None:
    viewer, pusher = granted(url, "read"), granted(url, "read", "push")
    with bucketq.connect_sync(url, token=admin, mode="remote") as queue:
        queue.push("k", 1, id="one")
    address = url if way == "storage" else f"bucketq://{served.address}/jobs"
    with served_page({"jobs": address}, login=True) as page:
        assert page.get(f"{AT}/stats").status == 401
        assert page.get("/api/session").json["queues"] == [{"name": "jobs", "open": False}]
        reader = log_in(page, viewer).cookie
        assert page.get(f"{AT}/jobs/one", cookie=reader).status == 200
        assert page.get(f"{AT}/audit", cookie=reader).status == 403
        assert page.get("/api/session", cookie=reader).json["queues"][0]["rights"] == ["read"]
        cancel = {"action": "cancel", "job": "one"}
        assert page.post(f"{AT}/actions", cancel, cookie=reader).status == 403
        assert page.post(f"{AT}/actions", cancel).status == 401
        writer = log_in(page, pusher).cookie
        again = {"action": "push", "job": "one"}
        assert page.post(f"{AT}/actions", again, cookie=writer).status == 200
        assert page.post(f"{AT}/actions", cancel, cookie=writer).status == 403
        operator = log_in(page, admin).cookie
        assert page.post(f"{AT}/actions", cancel, cookie=operator).status == 200
        last = page.get(f"{AT}/audit", cookie=operator).json["rows"][0]
        assert (last["action"], last["by"]) == ("cancel", f"token {parse_token(admin)}")
        revoke = {"action": "revoke-token", "name": parse_token(viewer)}
        assert page.post(f"{AT}/actions", revoke, cookie=operator).status == 200
        assert page.get(f"{AT}/jobs/one", cookie=reader).status == 403
        assert page.post("/api/logout", {}, cookie=operator).status == 200
        assert page.get(f"{AT}/stats", cookie=operator).status == 401


def test_wrong_tokens_and_queues_without_tokens_open_nothing(
    url: str, admin: str, served: Served
) -> None:
    del served
    with bucketq.connect_sync(url, token=admin, mode="remote") as queue:
        token, worker = queue.create_token("a", "read"), queue.create_token("b", "claim")
    wrong = "bq_00000000_" + "0" * 64
    with served_page({"jobs": url}, login=True) as page:
        assert log_in(page, wrong).status == 403
        for bad in (wrong, "", "x", token[:-1] + ("1" if token[-1] == "0" else "0"), worker):
            refused = log_in(page, bad)
            assert refused.status in {400, 403}, bad
            assert "set-cookie" not in refused.headers
            assert bad not in refused.json["error"] or not bad[1:]
        made_up = "bucketq_session=" + "0" * 64
        assert page.get(f"{AT}/stats", cookie=made_up).status == 401
        answer = log_in(page, token)
        flags = answer.headers["set-cookie"].lower()
        assert "httponly" in flags
        assert "samesite=strict" in flags
        assert "max-age=28800" in flags
        # Each login makes a new cookie, so one that was known before is worth nothing.
        second = log_in(page, token, cookie=answer.cookie)
        assert second.cookie != answer.cookie
        assert page.get(f"{AT}/stats", cookie=answer.cookie).status == 401
        assert page.get(f"{AT}/stats", cookie=second.cookie).status == 200
        with bucketq.connect_sync(url, token=admin, mode="remote") as queue:
            queue.configure(require_token=False)
        # Brokers do not check secrets now, so a login would prove nothing.
        refused = log_in(page, token)
        assert (refused.status, "set-cookie" in refused.headers) == (409, False)


def test_a_session_ends_after_a_day_of_work_or_an_idle_hour() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    second = timedelta(seconds=1)
    session = LoginSession(now, now)
    assert not session.is_over(now + IDLE)
    assert session.is_over(now + IDLE + second)
    session.seen = now + LONGEST
    assert not session.is_over(now + LONGEST)
    assert session.is_over(now + LONGEST + second)
