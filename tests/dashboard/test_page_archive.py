"""The archive on the web page: time ranges, kinds and outcomes, pages across hours, one job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import bucketq
from bucketq.archive.archive_layout import Layout
from bucketq.dashboard import archive_views
from bucketq.model.records import JobRecord
from bucketq.store.url import open_store
from tests.dashboard.page_server import Page, served_page

AT = "/api/q/jobs/archive"
NOON = datetime(2026, 2, 15, 12, tzinfo=UTC)
LARGE = {"text": "x" * 100_000}


def finished(number: int, at: datetime, **fields: Any) -> JobRecord:
    job = JobRecord(
        id=f"j{number:03}",
        seq=number,
        kind="mail" if number % 2 else "image",
        status="done",
        payload=msgspec.Raw(msgspec.json.encode({"n": number})),
        pushed_at=at - timedelta(seconds=9),
        claimed_at=at - timedelta(seconds=2),
        finished_at=at,
        outcome="completed",
        attempt=1,
    )
    return replace(job, **fields)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    url = (tmp_path_factory.mktemp("queue") / "queue.json").as_uri()
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push("alive", 1)
        done = queue.push("fresh", LARGE, id="fresh")
        (job,) = queue.claim("fresh")
        queue.complete(job, "sent")
        assert done == job.id
        assert queue.flush_archive() == 1
    hours = [NOON, NOON - timedelta(hours=1), NOON - timedelta(hours=7)]
    jobs = [
        finished(number, hours[number // 100] + timedelta(seconds=number % 100))
        for number in range(250)
    ]
    jobs[249] = replace(jobs[249], outcome="dead", errors=())
    write(url, jobs)
    with served_page({"jobs": url, "remote": "bucketq://127.0.0.1:1/jobs"}) as served:
        yield served


def write(url: str, jobs: list[JobRecord]) -> None:
    """Write archive files as a queue does, one for each hour."""
    location = open_store(url)
    layout = Layout.of(location.store.url, location.key)
    root = Path(location.store.url.removeprefix("file://"))
    for start in range(0, len(jobs), 100):
        some = jobs[start : start + 100]
        assert some[0].finished_at is not None
        body = b"".join(msgspec.json.encode(job) + b"\n" for job in some)
        path = root / layout.file_key(some[0].finished_at, 1 + start, body)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


def read_all(page: Page, query: str) -> list[str]:
    """Follow the pages of a search; none is too long."""
    found, before = list[str](), ""
    while before is not None:
        answer = page.get(f"{AT}?{query}&before={before.replace('+', '%2B')}").json
        assert len(answer["jobs"]) <= 100
        found += [job["id"] for job in answer["jobs"]]
        before = answer["next_before"]
    return found


DAY = "since=2026-02-15&until=2026-02-16"


@pytest.mark.parametrize("slice_s", [-1.0, 60.0])
def test_pages_go_back_over_hours_and_have_each_job_once(
    page: Page, monkeypatch: pytest.MonkeyPatch, slice_s: float
) -> None:
    monkeypatch.setattr(archive_views, "_SLICE_S", slice_s)
    latest_first = [
        f"j{start + number:03}"
        for start, count in ((0, 100), (100, 100), (200, 50))
        for number in reversed(range(count))
    ]
    assert read_all(page, DAY) == latest_first
    odd = [name for name in latest_first if int(name[1:]) % 2]
    assert read_all(page, f"{DAY}&kind=mail") == odd
    assert read_all(page, f"{DAY}&outcome=dead&outcome=expired") == ["j249"]
    some = "since=2026-02-15T12:00:10Z&until=2026-02-15T12:00:12Z"
    assert read_all(page, some) == ["j011", "j010"]


def test_the_last_day_is_shown_without_times_and_one_job_with_all_of_it(page: Page) -> None:
    (row,) = page.get(AT).json["jobs"]
    assert (row["id"], row["outcome"]) == ("fresh", "completed")
    for query in ("", f"?at={row['finished_at']}"):
        job = page.get(f"{AT}/fresh{query}").json
        assert (job["kind"], job["payload"]["form"]) == ("fresh", "large")
        assert job["result"]["text"] == '"sent"'
        assert "lease" not in job
    assert page.get(f"{AT}/fresh/payload").json == LARGE
    assert page.get(f"{AT}/j005?at=2026-02-15T12:00:05Z").json["kind"] == "mail"
    assert page.get(f"{AT}/j005?at=2026-02-15T11:00:05Z").status == 404
    assert page.get(f"{AT}/alive").status == 404


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("since=2026-02-16&until=2026-02-15", "not before"),
        ("since=yesterday", "not a time"),
        ("since=2020-01-01", "at most 366 days"),
        ("outcome=lost", "unknown outcome"),
        ("before=2026-02-15/x/y", "not a place"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_the_reason(
    page: Page, query: str, reason: str
) -> None:
    refused = page.get(f"{AT}?{query}")
    assert (refused.status, reason in refused.json["error"]) == (400, True)


def test_a_page_that_knows_only_a_broker_says_how_to_see_the_archive(page: Page) -> None:
    refused = page.get("/api/q/remote/archive")
    assert refused.status == 400
    assert "address of the queue's object" in refused.json["error"]
