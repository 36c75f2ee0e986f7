"""The doctor: sound stores, and stores that cannot hold a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

import bucketq
from bucketq.admin import QueueObject
from bucketq.admin.edit import begin_edit, finish_edit
from bucketq.cli.commands.storage.doctor import PRICE_LISTS, describe, expect
from bucketq.cli.store_checks import StoreChecks, check_store
from bucketq.clock import SystemClock
from bucketq.codec.decode import decode
from bucketq.errors import InvalidRequestError, StoreRefusedError, UnavailableError
from bucketq.store.base import ObjectInfo, StoredObject
from bucketq.store.memory import MemoryStore
from tests.cli.console import Console


def judged(checkup: StoreChecks) -> dict[str, str]:
    return {finding.name: finding.judgement for finding in checkup.findings}


async def checked(store: MemoryStore, url: str = "s3://bucket/queue.json") -> StoreChecks:
    checkup = await check_store(QueueObject(store, "queue.json", url, SystemClock()))
    assert [info.key async for info in MemoryStore.list(store, "queue.json.doctor")] == []
    return checkup


async def test_a_sound_store_passes_and_nothing_is_left_behind() -> None:
    checkup = await checked(MemoryStore())
    assert checkup.is_fit
    assert set(judged(checkup).values()) == {"ok"}
    assert checkup.put_ms is not None
    assert checkup.get_large_ms is not None


async def test_jobs_that_wait_for_each_other_are_named_and_no_edit_makes_such() -> None:
    store = MemoryStore()
    target = QueueObject(store, "queue.json", "s3://bucket/queue.json", SystemClock())
    async with bucketq.connect("queue.json", store=store, mode="direct") as queue:
        await queue.push("step", 1, id="a")
        await queue.push("step", 2, id="b", after="a")
        await queue.push("step", 3, id="c", after=["a", "b"])
    draft = await begin_edit(target)
    text = draft.text.replace(b'"id":"a"', b'"id":"a","after":["c"]')
    with pytest.raises(InvalidRequestError, match="job a waits for c, which waits for a, so none"):
        await finish_edit(target, draft, text)
    found = await target.read()
    await target.write_state(decode(text, "the text", accept=True).state, found.etag)
    (finding,) = [each for each in (await checked(store)).findings if each.name == "dependencies"]
    assert finding.judgement == "warn"
    assert finding.text.startswith("job a waits for c, which waits for a, so none of them ever")


async def test_doctor_warns_of_finished_jobs_that_no_process_archives() -> None:
    store, clock = MemoryStore(), AheadClock()
    async with bucketq.connect("queue.json", store=store, mode="direct") as queue:
        await queue.push("index", 1)
        for job in await queue.claim():
            await queue.complete(job)
    for clock.ahead_s, expected in ((60.0, []), (71.0, ["warn"])):
        target = QueueObject(store, "queue.json", "s3://bucket/queue.json", clock)
        checkup = await check_store(target)
        found = [finding for finding in checkup.findings if finding.name == "archive"]
        assert [finding.judgement for finding in found] == expected
        assert checkup.is_fit
    assert "1 finished job waiting for the archive" in found[0].text
    assert "bucketq archive flush" in found[0].text


class AheadClock(SystemClock):
    """A clock that is ahead of this machine's."""

    ahead_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)


class Careless(MemoryStore):
    """A store that ignores preconditions, as some compatible servers do."""

    async def create(self, key: str, body: bytes) -> str:
        return await self.put(key, body)

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        del etag
        return await self.put(key, body)


class OnlyCreates(MemoryStore):
    """A store that supports If-None-Match, and ignores If-Match."""

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        del etag
        return await self.put(key, body)


@pytest.mark.parametrize("kind", [Careless, OnlyCreates])
async def test_a_store_that_ignores_preconditions_fails(kind: type[MemoryStore]) -> None:
    checkup = await checked(kind())
    assert not checkup.is_fit
    [finding] = [found for found in checkup.findings if found.judgement == "fail"]
    assert finding.name == "conditional writes"
    assert "keep no queue in this store" in finding.text


class Racy(MemoryStore):
    """A store that checks first and writes later."""

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        current = (await self.get(key)).etag
        await asyncio.sleep(0.001)
        if current == etag:
            return await self.put(key, body)
        return await super().replace(key, body, etag)


async def test_a_store_that_is_not_atomic_fails() -> None:
    checkup = await checked(Racy())
    assert judged(checkup)["conditional writes"] == "ok"
    assert judged(checkup)["atomicity"] == "fail"


class NoEntry(MemoryStore):
    """A store without permission to write."""

    async def create(self, key: str, body: bytes) -> str:
        raise StoreRefusedError("403: no permission to write; check the policy")


class Mute(MemoryStore):
    """A store that cannot be reached."""

    async def get(self, key: str) -> StoredObject:
        raise UnavailableError("connection refused")


async def test_missing_permissions_and_missing_stores_are_reported_with_their_reason() -> None:
    refused = await checked(NoEntry())
    assert judged(refused) == {"read": "ok", "write": "fail"}
    assert refused.findings[1].text == "403: no permission to write; check the policy"
    mute = await checked(Mute())
    assert judged(mute) == {"read": "fail"}


class NoSegments(MemoryStore):
    """A store whose policy does not cover the folder of segments."""

    async def create(self, key: str, body: bytes) -> str:
        if "/segments/" in key:
            raise StoreRefusedError("403: no permission to write; check the policy")
        return await MemoryStore.create(self, key, body)


async def test_a_policy_without_segments_is_reported() -> None:
    checkup = await checked(NoSegments())
    assert judged(checkup)["segments"] == "fail"
    assert judged(checkup)["conditional writes"] == "ok"
    (found,) = (finding for finding in checkup.findings if finding.name == "segments")
    assert "allow creating of objects whose keys begin with queue/segments/" in found.text
    assert "max_format=1" in found.text


async def test_segments_are_not_tried_if_the_queue_may_not_have_them() -> None:
    store = NoSegments()
    async with bucketq.connect("queue.json", store=store, mode="direct") as queue:
        await queue.configure(max_format=1)
    checkup = await checked(store)
    assert checkup.is_fit
    assert judged(checkup)["segments"] == "skip"


async def test_doctor_warns_of_segments_that_no_process_rewrites() -> None:
    store, clock = MemoryStore(), AheadClock()
    async with bucketq.connect("queue.json", store=store, mode="direct") as queue:
        await queue.configure(spill_bytes=2000)
        for number in range(40):
            await queue.push("k", number)
        assert (await queue.stats()).segments > 0
    for clock.ahead_s, expected in ((0.0, "ok"), (7.5 * 86400, "ok"), (9 * 86400, "warn")):
        target = QueueObject(store, "queue.json", "s3://bucket/queue.json", clock)
        checkup = await check_store(target)
        (found,) = (finding for finding in checkup.findings if finding.name == "segments")
        assert (found.judgement, checkup.is_fit) == (expected, True)
        assert "queue/segments/" in found.text
        assert "lifecycle" in found.text
    assert "the oldest is 9 days old" in found.text


class Late(MemoryStore):
    """A store whose clock is ten minutes behind."""

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async for info in MemoryStore.list(self, prefix):
            behind = info.modified_at - timedelta(minutes=10)
            yield ObjectInfo(info.key, info.size_bytes, behind)


class Versioned(MemoryStore):
    """A store whose etags contain a version, as those of S3 do."""

    async def get(self, key: str) -> StoredObject:
        found = await MemoryStore.get(self, key)
        return StoredObject(found.body, f"v{found.etag};{found.etag}")

    async def create(self, key: str, body: bytes) -> str:
        etag = await MemoryStore.create(self, key, body)
        return f"v{etag};{etag}"

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        new = await MemoryStore.replace(self, key, body, etag.partition(";")[2])
        return f"v{new};{new}"


async def test_a_wrong_clock_and_versioning_are_warnings() -> None:
    late = await checked(Late())
    assert (judged(late)["clock"], late.is_fit) == ("warn", True)
    versioned = await checked(Versioned())
    assert (judged(versioned)["versioning"], versioned.is_fit) == ("warn", True)
    unknown = await checked(MemoryStore(), "gs://bucket/queue.json")
    assert judged(unknown)["versioning"] == "skip"


async def test_a_damaged_queue_fails() -> None:
    store = MemoryStore()
    await store.put("queue.json", b"<html>")
    checkup = await checked(store)
    assert judged(checkup)["queue"] == "fail"
    assert judged(checkup)["conditional writes"] == "ok"


def test_the_estimate_follows_from_the_measured_times() -> None:
    checkup = StoreChecks(put_ms=60.0, get_ms=20.0)
    expected = expect(checkup, "s3", 0.0)
    assert expected is not None
    assert expected.commits_per_s_direct == pytest.approx(12.5)
    assert expected.commits_per_s_embedded == pytest.approx(1000 / 60)
    assert expected.dollars_per_million_jobs == pytest.approx(16.2)
    assert expected.dollars_per_million_jobs_batched == pytest.approx(0.15)
    paced = expect(checkup, "gs", 1.0)
    assert paced is not None
    assert paced.commits_per_s_embedded == 1
    text = "\n".join(describe(expected, "s3"))
    assert "$16.20" in text
    assert PRICE_LISTS["s3"] in text


def test_the_command_on_a_file_and_in_memory(console: Console) -> None:
    console.ok("push", "URL", "k", "1")
    ran = console.ok("doctor", "URL")
    assert "an intact queue, version 2, 1 job\n" in ran.out
    assert "commits/s" in ran.out
    left = {path.name for path in console.folder.iterdir()}
    assert left - {".bucketq.queue.json.0.spare", "queue"} == {".bucketq.lock", "queue.json"}
    assert not [*console.folder.rglob("*.jsonl")], "only the folder of segments is left"
    report = console.ok("doctor", "memory://doctor", "--json").json
    assert report["fit"] is True
    assert {finding["judgement"] for finding in report["findings"]} == {"ok"}
    console.path.write_text("{}")
    assert console.run("doctor", "URL").code == 1


def test_the_deep_check_of_a_queue_names_what_is_damaged_and_left_over(console: Console) -> None:
    console.deepen()
    sound = console.ok("doctor", "URL", "--deep", "--json").json
    assert sound["deep"]["segments"] > 0
    assert (sound["deep"]["bad"], sound["deep"]["twice"]) == ([], [])
    assert "every row of the queue is in one place" in " ".join(
        console.ok("doctor", "URL", "--deep").out.split()
    )
    folder = console.folder / "queue" / "segments" / sound["deep"]["incarnation"]
    other = folder.with_name("01OTHER")
    other.mkdir()
    segment = max(folder.glob("*.jsonl"), key=lambda path: path.stat().st_size)
    (other / segment.name).write_bytes(b"left")
    segment.write_bytes(segment.read_bytes().replace(b'"id":"', b'"ID":"', 1))
    ran = console.run("doctor", "URL", "--deep")
    assert ran.code == 1
    assert segment.name in "".join(ran.out.split())
    report = console.run("doctor", "URL", "--deep", "--json")
    assert report.code == 1
    (bad,) = report.json["deep"]["bad"]
    assert bad["key"].endswith(segment.name)
    assert 0 < bad["lost"] <= bad["live"]
    assert [*report.json["deep"]["other_incarnations"]] == ["01OTHER"]
    texts = [f["text"] for f in report.json["findings"] if f["name"] == "left over"]
    assert "gc --incarnation 01OTHER" in texts[-1]
    assert console.run("doctor", "URL").code == 0, "only --deep reads segments"
    assert console.ok("repair", "URL").out.endswith("is intact: nothing to repair\n")
    assert console.run("repair", "URL", "--accept", "--accept-loss", "all").code == 2
    assert "only the object was checked" in console.ok("repair", "URL").err
    done = console.ok("repair", "URL", "--accept-loss", bad["id"])
    assert f"gave up {bad['lost']:,} row" in done.out
    assert ".broken-" in done.err
    again = console.ok("repair", "URL", "--accept-loss", "all", "--json").json
    assert (again["lost"], again["segments"], again["saved"]) == (0, [], None)
    assert console.ok("doctor", "URL", "--deep", "--json").json["deep"]["bad"] == []


def test_the_deep_check_of_no_queue(console: Console) -> None:
    report = console.ok("doctor", "URL", "--deep", "--json").json
    assert report["deep"] is None
