"""What the web page reads and changes, request by request, on one queue in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import bucketq
from bucketq import JobSpec
from bucketq.clock import SystemClock
from bucketq.dashboard import job_views
from bucketq.dashboard.queue_watch import QueueWatch
from bucketq.dashboard.table_views import TABLES
from bucketq.model.tokens import Right
from tests.dashboard.page_server import Page, served_page

Blocking = Any
AT = "/api/q/jobs"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return (tmp_path_factory.mktemp("queue") / "queue.json").as_uri()


@pytest.fixture(scope="module")
def queue(url: str) -> Iterator[Blocking]:
    with bucketq.connect_sync(url, mode="direct") as opened:
        yield opened


@pytest.fixture(scope="module")
def page(url: str, queue: Blocking) -> Iterator[Page]:
    del queue  # It must exist.
    with served_page({"jobs": url}) as served:
        yield served


def test_the_queue_is_counted_and_followed(page: Page, queue: Blocking) -> None:
    queue.push("counted", 1)
    (name, first), (_, second) = page.events(f"{AT}/events", 2)
    assert name == "stats"
    assert second["stats"]["counts"]["counted"]["queued"] == 1
    assert first["rights"] == ["push", "claim", "read", "admin"]
    assert second["samples"][0][0] > first["samples"][0][0]
    found = page.get(f"{AT}/stats").json
    assert found["samples"][-1][1] >= 1
    assert found["trouble"] == ""


async def test_counts_are_not_shown_before_the_rights_are_known(
    queue: Blocking, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.push("known", 1)
    watch, seen = QueueWatch("jobs", url, SystemClock()), list[object]()
    find = watch.find_rights

    async def find_slowly() -> tuple[Right, ...]:
        seen.append(watch.stats)
        return await find()

    monkeypatch.setattr(watch, "find_rights", find_slowly)
    watch.start()
    try:
        name, document = await anext(aiter(watch.events()))
    finally:
        await watch.close()
    assert seen == [None]
    assert (name, b'"admin"' in document) == ("stats", True)


def test_jobs_are_filtered_and_come_in_pages(page: Page, queue: Blocking) -> None:
    specs = [
        JobSpec(kind="paged", payload=n, group="even" if n % 2 == 0 else None, tags={"n": str(n)})
        for n in range(230)
    ]
    ids = queue.push_many(specs)
    seen, after = list[str](), 0
    while after is not None:
        answer = page.get(f"{AT}/jobs?kind=paged&status=queued&after={after}").json
        assert len(answer["jobs"]) <= 100
        seen += [job["id"] for job in answer["jobs"]]
        after = answer["next_after"]
    assert seen == ids
    (one,) = page.get(f"{AT}/jobs?kind=paged&group=even&tag=n%3D4").json["jobs"]
    assert one["id"] == ids[4]
    assert page.get(f"{AT}/jobs?status=lost").status == 400
    assert page.get(f"{AT}/jobs?tag=n").status == 400


def test_a_search_says_how_far_it_came(
    page: Page, queue: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_views, "_SLICE_JOBS", 1000)
    queue.push_many([JobSpec(kind="hay", payload={"n": n}) for n in range(1150)])
    needle = queue.push("hay", {"who": "Zoë Needle"})
    first = page.get(f"{AT}/search?kind=hay&text=zo%C3%AB%20needle").json
    assert (first["searched"], first["jobs"]) == (1100, []), "a small page and a large one"
    more = page.get(f"{AT}/search?kind=hay&text=zo%C3%AB%20needle&after={first['next_after']}").json
    assert (more["searched"], more["next_after"]) == (51, None)
    assert [job["id"] for job in more["jobs"]] == [needle]
    assert page.get(f"{AT}/search?text=%20").status == 400


def test_jobs_are_found_by_the_time_of_their_push(page: Page, queue: Blocking) -> None:
    first, second, third = (queue.get(queue.push("timed", n)) for n in range(3))

    def found(**query: object) -> list[str]:
        given = urlencode({"kind": "timed", **query})
        return [job["id"] for job in page.get(f"{AT}/search?{given}").json["jobs"]]

    since, until = second.pushed_at.isoformat(), third.pushed_at.isoformat()
    assert found(since=since) == [second.id, third.id]
    assert found(until=until) == [first.id, second.id]
    assert found(since=since, until=until) == [second.id]
    assert found(since=since, text=third.id) == [third.id]
    assert page.get(f"{AT}/search?since=yesterday").status == 400


def test_a_job_is_shown_without_its_lease(page: Page, queue: Blocking) -> None:
    name = queue.push("leased", {"a": 2**63})
    (job,) = queue.claim("leased", worker="w")
    found = page.get(f"{AT}/jobs/{name}")
    assert found.json["worker"] == "w"
    assert found.json["payload"]["text"] == '{"a":9223372036854775808}'
    listed = page.get(f"{AT}/jobs?kind=leased")
    for answer in (found, listed):
        assert job.lease.lease.encode() not in answer.body
        assert "lease" not in answer.json
    queue.complete(job, "ok")
    assert page.get(f"{AT}/jobs/none").status == 404


def test_payloads_are_plain_text_that_no_browser_shows(page: Page, queue: Blocking) -> None:
    script = "<script>alert(1)</script>"
    large, small = queue.push("body", script * 10_000), queue.push("body", b"\x00<b>")
    assert page.get(f"{AT}/jobs/{large}").json["payload"]["form"] == "large"
    assert page.get(f"{AT}/jobs/{small}").json["payload"]["hex"] == b"\x00<b>".hex()
    for name, content in ((large, b'"' + (script * 10_000).encode() + b'"'), (small, b"\x00<b>")):
        answer = page.get(f"{AT}/jobs/{name}/payload")
        assert answer.body == content
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-disposition"].startswith("attachment")
    assert page.get(f"{AT}/jobs/{small}/result").status == 400
    assert page.get(f"{AT}/jobs/{small}/lease").status == 400


def test_every_table_is_shown(page: Page, queue: Blocking) -> None:
    queue.schedule("hourly", "tick", {"x": 1}, every_s=3600)
    queue.limit(kind="mail", running=2)
    batch = queue.open_batch(JobSpec(kind="end", payload=None))
    queue.open_consumer("stream")
    announce(queue)
    held = queue.push("held", 1)
    queue.claim("held", worker="mailer")
    shown = {name: page.get(f"{AT}/{name}").json["rows"] for name in TABLES}
    assert shown["schedules"][0]["payload"] == '{"x":1}'
    assert shown["limits"][0]["target"] == "kind=mail"
    assert shown["batches"][0] | {"id": batch, "on_done": "end"} == shown["batches"][0]
    assert shown["consumers"][0]["name"] == "stream"
    assert shown["workers"][0]["kinds"] == ["mail"]
    (job,) = shown["workers"][0]["jobs"]
    assert job | {"id": held, "kind": "held"} == job
    assert shown["tokens"] == []
    assert {"name": "lease_s", "value": 30.0, "default": 30.0} in shown["settings"]
    assert shown["audit"][0]["action"] == "set-limit" or shown["audit"]
    assert page.get(f"{AT}/nothing").status == 404
    assert page.get("/api/q/other/stats").status == 400


def test_single_jobs_are_changed(page: Page, queue: Blocking) -> None:
    waiting = queue.push("one", {"n": 1}, tags={"t": "x"}, group="g")
    pushed = page.act("push", job=waiting, payload='{"n": 2}', priority=-5).json["job"]
    again = queue.get(pushed)
    assert (again.payload, again.priority, again.tags) == ({"n": 2}, -5, {"t": "x"})
    assert again.group == "g"
    assert page.act("push", job=waiting, payload="{").status == 400
    copy = queue.get(page.act("push", job=waiting).json["job"])
    assert copy.payload == {"n": 1}
    assert page.act("set-priority", job=waiting, priority=7).status == 200
    assert queue.get(waiting).priority == 7
    assert page.act("set-priority", job=waiting).status == 400
    assert page.act("cancel", job=waiting).status == 200
    assert page.act("set-priority", job=waiting, priority=7).status == 400
    assert queue.get(waiting).outcome == "cancelled"
    (dead,) = kill(queue, 1)
    assert page.act("redrive", job=dead).json["count"] == 1
    assert queue.get(dead).status == "queued"
    (gone,) = kill(queue, 1)
    assert page.act("purge", job=gone).json["count"] == 1
    assert queue.get(gone).status == "done"


def test_jobs_are_changed_in_slices_by_a_filter(page: Page, queue: Blocking) -> None:
    queue.push_many([JobSpec(kind="many", payload=n, tags={"n": str(n % 2)}) for n in range(220)])
    after, count = 0, 0
    while after is not None:
        answer = page.act("cancel-all", filter={"kind": ["many"], "tag": ["n=1"]}, after=after).json
        count, after = count + answer["count"], answer["next_after"]
    assert count == 110
    assert queue.stats().counts["many"]["queued"] == 110
    chosen = {"kind": ["many"], "tag": ["n=0"]}
    assert page.act("set-priority-all", filter=chosen, priority=-3).json["count"] == 100
    assert page.act("set-priority-all", filter=chosen, priority=2**40).status == 400
    assert page.act("set-priority-all", filter={"status": ["dead"]}, priority=1).status == 400
    assert {job.priority for job in queue.claim("many", limit=100)} == {-3}
    dead = kill(queue, 3, tags={"which": "ours"})
    kill(queue, 1, tags={"which": "other"})
    chosen = {"kind": ["dies"], "tag": ["which=ours"]}
    assert page.act("redrive-all", filter=chosen).json["count"] == 3
    assert {queue.get(name).status for name in dead} == {"queued"}
    assert page.act("purge-all", filter={"tag": ["which=other"]}).json["count"] == 1
    assert page.act("purge-all", filter={"status": ["queued"]}).status == 400


def test_the_queue_and_its_tables_are_operated(page: Page, queue: Blocking) -> None:
    assert page.act("pause", kind="mail").status == 200
    assert page.act("pause").status == 200
    assert (queue.stats().paused, queue.stats().paused_kinds) == (True, ("mail",))
    page.act("resume")
    assert not queue.stats().paused
    announce(queue)
    assert page.act("drain", name="mailer").json["count"] == 1
    assert queue.workers()[0].draining
    assert page.act("configure", settings={"max_attempts": 7}).status == 200
    assert queue.settings().max_attempts == 7
    for wrong in ({"max_attempts": -1}, {"request": "x"}, {"nothing": 1}):
        assert page.act("configure", settings=wrong).status == 400
    queue.schedule("daily", "tick", 1, every_s=86400)
    assert queue.get(page.act("run-schedule", name="daily").json["job"]).kind == "tick"
    page.act("pause-schedule", name="daily")
    assert [s.paused for s in queue.schedules() if s.name == "daily"] == [True]
    page.act("resume-schedule", name="daily")
    batch = queue.open_batch()
    assert "done" in page.act("close-batch", name=batch).json["text"]
    assert page.act("explode").status == 400
    assert {"pause", "resume", "drain", "configure"} <= {entry.action for entry in queue.audit()}
    shown = page.get(f"{AT}/audit").json["rows"]
    assert {"at", "action", "by", "about"} <= shown[0].keys()


def test_a_queue_that_does_not_answer_is_reported_and_found_again(tmp_path: Path) -> None:
    url = (tmp_path / "late.json").as_uri()
    with served_page({"jobs": url}) as page:
        ((name, told),) = page.events(f"{AT}/events", 1)
        assert name == "trouble"
        assert "late.json" in told["error"]
        assert page.get(f"{AT}/jobs").status == 409
        with bucketq.connect_sync(url, mode="direct") as queue:
            queue.push("late", 1)
        names = [name for name, _ in page.events(f"{AT}/events", 2)]
        assert names[-1] == "stats"


def announce(queue: Blocking) -> None:
    about = {"run_id": "r1", "host": "h", "pid": 1, "version": "1", "up_s": 1, "kinds": ("mail",)}
    queue.announce("mailer", **about)


def kill(queue: Blocking, count: int, **options: Any) -> list[str]:
    names = [queue.push("dies", n, max_attempts=1, **options) for n in range(count)]
    while jobs := queue.claim("dies", limit=count):
        for job in jobs:
            queue.fail(job, "ValueError: no")
    return names
