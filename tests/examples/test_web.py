"""The web applications that push jobs: the one in examples, and the one in the guide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq.testing import Workbench
from examples import web
from tests.environ import ROOT
from tests.examples.program import EXAMPLES, Program
from tests.servers.process import free_ports, http

GUIDE = ROOT / "docs" / "guides" / "recipes.md"


class Site:
    """A served application, spoken to over HTTP."""

    def __init__(self, base: str) -> None:
        self._base = base

    def ask(
        self, method: str, path: str, body: object = None, key: str | None = None
    ) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        raw = None if body is None else json.dumps(body).encode()
        status, answer = http(method, self._base + path, raw, headers)
        return status, json.loads(answer) if answer else None


@contextmanager
def served(folder: Path, app: str, url: str, tmp_path: Path) -> Iterator[Site]:
    [port] = free_ports(1)
    command = ["-m", "uvicorn", "--app-dir", str(folder), "--port", str(port), app]
    with Program(command, tmp_path / "uvicorn.txt", BUCKETQ_URL=url) as program:
        program.until(lambda output: "Application startup complete" in output)
        program.until(lambda output: "Uvicorn running" in output)
        yield Site(f"http://127.0.0.1:{port}")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "queue.json").as_uri()


def test_a_request_is_answered_with_a_job_that_a_worker_finishes(tmp_path: Path, url: str) -> None:
    worker = bucketq.Worker(url)

    @worker.handler("report")
    def report(wish: dict[str, str]) -> str:
        return f"sales of {wish['month']}"

    with served(EXAMPLES, "web:app", url, tmp_path) as site:
        status, answer = site.ask("POST", "/reports", {"month": "2026-10"}, key="7")
        assert status == 202
        place = answer["status"]
        assert place == f"/reports/{answer['job']}"
        assert site.ask("GET", place) == (
            200,
            {"job": answer["job"], "status": "queued", "result": None},
        )
        worker.run_sync(burst=True)
        assert site.ask("GET", place)[1]["status"] == "done"
        assert site.ask("GET", place)[1]["result"] == "sales of 2026-10"


def test_a_repeated_request_is_one_job_and_bad_ones_are_told_what_is_wrong(
    tmp_path: Path, url: str
) -> None:
    with served(EXAMPLES, "web:app", url, tmp_path) as site:
        first = site.ask("POST", "/reports", {"month": "2026-10"}, key="7")
        assert site.ask("POST", "/reports", {"month": "2026-10"}, key="7") == first
        assert site.ask("POST", "/reports", {"month": "2026-09"}, key="7")[0] == 422
        assert site.ask("POST", "/reports", {"month": "2026-10"})[1] != first[1]
        assert site.ask("POST", "/reports", ["no month"])[0] == 400
        assert site.ask("POST", "/reports", {"month": "2026-10"}, key="k" * 300)[0] == 400
        assert site.ask("GET", "/reports/none")[0] == 404
        with bucketq.connect_sync(url) as queue:
            assert queue.stats().total("queued") == 2
            other = queue.push("secret", None)
        assert site.ask("GET", f"/reports/{other}")[0] == 404


async def test_the_application_can_be_tested_in_one_process_on_a_workbench(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Workbench() as bench:
        monkeypatch.setenv("BUCKETQ_URL", bench.url)
        async with web.app.router.lifespan_context(web.app) as state:
            assert state is not None
            sent = await asked(dict(state), "POST", "/reports", b'{"month": "2026-10"}')
            assert sent["status"] == 202
        assert bench.pushed("report") == [{"month": "2026-10"}]


async def asked(state: dict[str, Any], method: str, path: str, body: bytes) -> dict[str, Any]:
    """Make a request without a network; return how the answer begins."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [],
        "state": state,
    }
    await web.app(scope, receive, send)
    return sent[0]


def test_the_fastapi_application_of_the_guide_runs(tmp_path: Path, url: str) -> None:
    pytest.importorskip("fastapi")
    [program] = re.findall(r"```python\n(# app\.py\n.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "app.py").write_text(program)
    with served(tmp_path, "app:app", url, tmp_path) as site:
        status, first = site.ask("POST", "/reports", {"month": "2026-10"}, key="7")
        assert status == 202
        assert site.ask("POST", "/reports", {"month": "2026-10"}, key="7") == (202, first)
        assert site.ask("GET", f"/reports/{first['job']}")[1]["status"] == "queued"
        assert site.ask("POST", "/reports", {"year": 2026})[0] == 422
        assert site.ask("GET", "/reports/none")[0] == 404
