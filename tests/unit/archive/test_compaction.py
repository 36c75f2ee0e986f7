"""Archive files become Parquet files of a table, and readers notice nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from bucketq.archive import ArchiveReader, ArchiveWriter, Layout, compaction, parquet, prune, sweep
from bucketq.archive.compaction import Compactor, Round, Written, write_part
from bucketq.archive.delta import DeltaLog
from bucketq.clock import SystemClock
from bucketq.errors import (
    BucketQError,
    CorruptStateError,
    InvalidRequestError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.model.records import Backoff, Failure, JobRecord
from bucketq.store.base import ObjectInfo, ObjectStore, PreconditionFailedError
from bucketq.store.local import LocalStore
from bucketq.store.memory import MemoryStore

pytest.importorskip("pyarrow")

NOON = datetime(2026, 2, 15, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=1)
LAYOUT = Layout.of("memory://", "jobs/queue.json")
DAY = (NOON - timedelta(days=2), LATER)


class FixedClock(SystemClock):
    """Shows one time until it is told another."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


def finished(name: str, at: datetime = NOON, kind: str = "index", seq: int = 1) -> JobRecord:
    return JobRecord(
        id=name,
        kind=kind,
        status="done",
        seq=seq,
        payload=Raw(b'{"text":"\xc3\xa4","big":123456789012345678901234567890}'),
        pushed_at=at - timedelta(minutes=5),
        claimed_at=at - timedelta(seconds=3, microseconds=1),
        finished_at=at,
        outcome="completed",
        attempt=2,
        tags={"team": "search"},
        backoff=Backoff(base_s=2.5),
        errors=(Failure(at, 1, "failed", "boom\nat line 3"),),
        result=Raw(b"[1,2]"),
    )


async def archive(store: ObjectStore, version: int, *jobs: JobRecord) -> list[str]:
    return await ArchiveWriter(store, LAYOUT).write([(job, None) for job in jobs], version)


async def names(store: ObjectStore, kinds: Iterable[str] | None = None) -> list[str]:
    wanted = None if kinds is None else set(kinds)
    return [job.id async for job in ArchiveReader(store, LAYOUT).jobs(*DAY, wanted)]


async def archive_files(store: ObjectStore) -> list[str]:
    keys = [info.key async for info in store.list(LAYOUT.root)]
    return [key for key in keys if LAYOUT.parse(key)]


async def files(store: ObjectStore) -> list[str]:
    prefix = LAYOUT.compacted + "date="
    return [info.key async for info in store.list(prefix)]


def compactor(store: ObjectStore, now: datetime = LATER) -> Compactor:
    return Compactor(store, LAYOUT, FixedClock(now))


async def planned(at_work: Compactor) -> Round:
    found = await at_work.plan()
    assert found is not None
    return found


async def write(store: ObjectStore, plan: Round) -> list[Written]:
    clock = FixedClock(LATER)
    return [await write_part(store, LAYOUT, part, clock) for part in plan.parts]


async def compact(store: ObjectStore, now: datetime = LATER) -> list[Written]:
    at_work = compactor(store, now)
    plan = await at_work.plan()
    if plan is None:
        return []
    written = await write(store, plan)
    assert await at_work.publish(plan, written)
    return written


async def test_a_compacted_job_is_read_as_it_was_archived() -> None:
    store = MemoryStore()
    jobs = [finished("a"), finished("b", NOON + timedelta(minutes=1), kind="mail/out:x@1")]
    await archive(store, 1, *jobs)
    await compact(store)
    assert await archive_files(store) == []
    assert [job async for job in ArchiveReader(store, LAYOUT).jobs(*DAY)] == jobs


async def test_fields_of_a_newer_bucketq_are_kept() -> None:
    store = MemoryStore()
    job = finished("a")
    await ArchiveWriter(store, LAYOUT).write([(job, {"colour": Raw(b'"blue"')})], 1)
    await compact(store)
    [key] = await files(store)
    body = (await store.get(key)).body
    assert list(parquet.jobs_in(body, *DAY, key)) == [job]
    import pyarrow as pa  # noqa: PLC0415 - see importorskip
    import pyarrow.parquet as pq  # noqa: PLC0415 - see importorskip

    [rest] = pq.read_table(pa.BufferReader(body), columns=["rest"]).column("rest").to_pylist()
    assert msgspec.json.decode(rest)["colour"] == "blue"


async def test_a_file_holds_the_jobs_of_one_day_and_kind() -> None:
    store = MemoryStore()
    await archive(
        store,
        1,
        finished("a", NOON - timedelta(hours=13)),
        finished("b", NOON - timedelta(hours=11)),
        finished("c", NOON - timedelta(hours=2)),
        finished("d", kind="mail"),
    )
    await compact(store)
    assert [
        key.removeprefix(LAYOUT.compacted).rpartition("/")[0] for key in await files(store)
    ] == [
        "date=2026-02-14/kind=index",
        "date=2026-02-15/kind=index",
        "date=2026-02-15/kind=mail",
    ]
    assert await names(store) == ["a", "b", "c", "d"]
    assert await names(store, ["mail"]) == ["d"]


async def test_many_jobs_of_a_kind_are_cut_into_groups_and_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction, "GROUP_ROWS", 2)
    monkeypatch.setattr(compaction, "_FILE_ROWS", 4)
    store = MemoryStore()
    moments = [NOON + timedelta(minutes=10 * minute) for minute in range(11)]
    await archive(store, 1, *(finished(f"job{at:%H%M}", at) for at in moments))
    [written] = await compact(store)
    import pyarrow as pa  # noqa: PLC0415 - see importorskip
    import pyarrow.parquet as pq  # noqa: PLC0415 - see importorskip

    groups = []
    for file in written.files:
        body = (await store.get(LAYOUT.compacted + file.name)).body
        meta = pq.ParquetFile(pa.BufferReader(body)).metadata
        groups.append([meta.row_group(n).num_rows for n in range(meta.num_row_groups)])
    assert groups == [[2, 2], [2, 2], [2, 1]]  # Six jobs of one hour, and five of the next.
    assert [job async for job in ArchiveReader(store, LAYOUT).jobs(*DAY)] == [
        finished(f"job{at:%H%M}", at) for at in moments
    ]
    assert written.files[1].span == (moments[4], moments[7])


async def test_only_hours_that_have_been_over_for_an_hour_are_compacted() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a", NOON - timedelta(seconds=1)), finished("b"))
    await compact(store, now=NOON + timedelta(minutes=59))
    assert len(await archive_files(store)) == 2
    await compact(store, now=NOON + timedelta(hours=1))
    assert len(await archive_files(store)) == 1
    assert await names(store) == ["a", "b"]


async def test_a_range_is_heeded_in_whole_hours() -> None:
    store = MemoryStore()
    hours = [NOON + timedelta(hours=hour) for hour in range(4)]
    await archive(store, 1, *(finished(f"job{hour.hour}", hour) for hour in hours))
    found = await compactor(store).plan(since=hours[1], until=hours[3])
    assert found is not None
    assert [work.hour for part in found.parts for work in part.hours] == hours[1:3]


async def test_a_late_archive_file_is_compacted_by_the_next_run_without_what_it_repeats() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"), finished("b"))
    await compact(store)
    await archive(store, 9, finished("b"), finished("c"))
    assert sorted(await names(store)) == ["a", "b", "c"]
    [written] = await compact(store)
    assert (written.jobs, written.repeated) == (1, 1)
    assert await archive_files(store) == []
    assert sorted(await names(store)) == ["a", "b", "c"]


async def test_two_jobs_with_one_id_are_both_compacted_at_once_or_one_after_the_other() -> None:
    store = MemoryStore()
    jobs = [finished("a", seq=seq) for seq in (1, 2, 3)]
    await archive(store, 1, *jobs[:2])
    await compact(store)
    await archive(store, 2, *jobs[1:])
    [written] = await compact(store)
    assert (written.jobs, written.repeated) == (1, 1)
    assert await archive_files(store) == []
    assert [job async for job in ArchiveReader(store, LAYOUT).jobs(*DAY)] == jobs


async def test_a_run_that_was_killed_before_it_published_leaves_nothing_to_be_seen() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"))
    await write(store, await planned(compactor(store)))
    assert await names(store) == ["a"]
    await compact(store)
    assert await names(store) == ["a"]
    assert len(await files(store)) == 2


async def test_what_a_killed_run_left_is_swept_away_after_a_day() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"))
    await write(store, await planned(compactor(store)))
    [left] = await files(store)
    await compact(store)
    [written_at] = [info.modified_at async for info in store.list(left)]
    assert await sweep(store, LAYOUT, written_at + timedelta(hours=23)) == 0
    assert await sweep(store, LAYOUT, written_at + timedelta(hours=25)) == 1
    assert left not in await files(store)
    assert await names(store) == ["a"]


async def test_a_run_that_was_killed_before_it_deleted_is_ended_by_the_next() -> None:
    store = MemoryStore()
    [key] = await archive(store, 1, finished("a"))
    body = (await store.get(key)).body
    await compact(store)
    await store.put(key, body)
    assert await names(store) == ["a"]
    [written] = await compact(store)
    assert (written.jobs, written.repeated, written.files) == (0, 1, [])
    assert await archive_files(store) == []
    assert await names(store) == ["a"]


async def test_of_two_runs_at_once_the_second_leaves_no_trace() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"), finished("b", kind="mail"))
    first, second = compactor(store), compactor(store)
    plans = [await planned(first), await planned(second)]
    written = [await write(store, plan) for plan in plans]
    assert await first.publish(plans[0], written[0])
    before = await files(store)
    assert not await second.publish(plans[1], written[1])
    assert len(await files(store)) == len(before) // 2
    assert sorted(await names(store)) == ["a", "b"]
    assert await second.plan() is None


async def test_two_runs_over_different_hours_are_both_published() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"), finished("b", NOON + timedelta(hours=1)))
    first, second = compactor(store), compactor(store)
    hour = NOON + timedelta(hours=1)
    plans = [await first.plan(until=hour), await second.plan(since=hour)]
    for at_work, plan in zip((first, second), plans, strict=True):
        assert plan is not None
        assert await at_work.publish(plan, await write(store, plan))
    assert await names(store) == ["a", "b"]


async def test_a_round_that_took_too_long_is_not_published() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"))
    clock = FixedClock(LATER)
    at_work = Compactor(store, LAYOUT, clock)
    plan = await planned(at_work)
    written = await write(store, plan)
    clock.at += compaction.LONGEST_ROUND
    assert not await at_work.publish(plan, written)
    assert await files(store) == []
    assert await names(store) == ["a"]


async def test_writing_a_part_again_writes_the_same() -> None:
    store = MemoryStore()
    await archive(store, 1, *(finished(f"job{number}") for number in range(50)))
    plan = await planned(compactor(store))
    assert await write(store, plan) == await write(store, plan)
    assert len(await files(store)) == 1


class Meddled(MemoryStore):
    """Lets a compaction happen before or after a listing, or before an object is read."""

    def __init__(self) -> None:
        super().__init__()
        self.before_list = self.after_list = self.before_get = False

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        found = [info async for info in super().list(prefix)]
        if any(LAYOUT.parse(info.key) for info in found):
            if self.before_list:
                self.before_list = False
                await compact(self)
                found = [info async for info in super().list(prefix)]
            if self.after_list:
                self.after_list = False
                await compact(self)
        for info in found:
            yield info

    async def get(self, key: str):  # type: ignore[no-untyped-def]  # noqa: ANN201 - as its parent's
        if self.before_get and LAYOUT.parse(key):
            self.before_get = False
            await compact(self)
        return await super().get(key)


@pytest.mark.parametrize("when", ["before_list", "after_list", "before_get"])
async def test_a_reader_beside_a_compaction_sees_no_gap_and_no_double(when: str) -> None:
    store = Meddled()
    await archive(store, 1, finished("a"), finished("b", NOON + timedelta(hours=1)))
    await archive(store, 2, finished("c"))
    setattr(store, when, True)
    assert sorted(await names(store)) == ["a", "b", "c"]
    assert await archive_files(store) == []


async def test_a_reader_goes_on_where_the_files_were_pruned_under_it() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"), finished("b", NOON + timedelta(days=-1)))
    await compact(store)
    found = []
    async for job in ArchiveReader(store, LAYOUT).jobs(*DAY):
        found.append(job.id)
        await prune(store, LAYOUT, before=LATER)
    assert found == ["b"]


async def test_a_file_that_is_missing_though_the_log_names_it_is_told_of() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"))
    await compact(store)
    [key] = await files(store)
    await store.delete(key)
    with pytest.raises(CorruptStateError, match="is missing"):
        await names(store)


async def test_pruning_takes_compacted_files_whose_last_job_is_too_old() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a", NOON - timedelta(days=1)), finished("b"))
    await compact(store)
    assert await prune(store, LAYOUT, before=NOON - timedelta(hours=1)) == 1
    assert await names(store) == ["b"]
    assert len(await files(store)) == 1
    assert await prune(store, LAYOUT, before=NOON) == 0


class Forgetful(MemoryStore):
    """Creates objects and loses the answer."""

    def __init__(self, error: BucketQError) -> None:
        super().__init__()
        self.error: BucketQError | None = error

    async def create(self, key: str, body: bytes) -> str:
        etag = await super().create(key, body)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return etag


@pytest.mark.parametrize(
    "error", [UnavailableError("no answer"), PreconditionFailedError("it exists")]
)
async def test_a_commit_whose_answer_was_lost_is_found_out(error: BucketQError) -> None:
    store = Forgetful(error)
    await archive(store, 1, finished("a"))
    await compact(store)
    log = DeltaLog(store, LAYOUT.compacted, parquet.FIELDS)
    await log.refresh()
    assert (log.version, len(log.files)) == (0, 1)
    assert await names(store) == ["a"]


async def test_a_commit_in_doubt_is_not_called_refused_when_the_next_try_is() -> None:
    class Late(MemoryStore):
        tries = 0

        async def create(self, key: str, body: bytes) -> str:
            self.tries += 1
            if self.tries == 1:
                raise UnavailableError("no answer")
            await super().create(key, body)  # The first try arrives now.
            raise StoreRefusedError("no permission")

    store = Late()
    log = DeltaLog(store, LAYOUT.compacted, parquet.FIELDS)
    assert await log.commit([], SystemClock(), "WRITE")
    assert (log.version, store.tries) == (0, 2)


async def test_a_log_of_many_versions_is_read_whole() -> None:
    store = MemoryStore()
    for number in range(40):
        await archive(store, number, finished(f"job{number}"))
        await compact(store)
    log = DeltaLog(store, LAYOUT.compacted, parquet.FIELDS)
    assert len(await log.refresh()) == 40
    assert (log.version, await log.refresh()) == (39, [])


async def test_a_table_that_another_tool_has_raised_to_a_newer_protocol_is_refused() -> None:
    store = MemoryStore()
    line = b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7}}'
    await store.put(f"{LAYOUT.compacted}_delta_log/{0:020d}.json", line)
    with pytest.raises(CorruptStateError, match="another tool has changed it"):
        await names(store)


async def test_without_pyarrow_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"))
    await compact(store)
    await archive(store, 2, finished("b", NOON + timedelta(days=-1)))
    monkeypatch.setattr(parquet, "find_spec", lambda _: None)
    with pytest.raises(InvalidRequestError, match="pip install pyarrow"):
        await names(store)


async def test_other_readers_of_delta_read_the_table(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    store = LocalStore(tmp_path)
    try:
        jobs = [finished("a"), finished("b", kind="mail/out"), finished("c", LATER)]
        await archive(store, 1, *jobs)
        await compact(store, now=LATER + timedelta(days=1))
        await archive(store, 2, finished("d", kind="mail/out"))
        await compact(store, now=LATER + timedelta(days=1))
        table = deltalake.DeltaTable(tmp_path / LAYOUT.compacted)
        assert table.version() == 1
        rows = {row["id"]: row for row in table.to_pyarrow_table().to_pylist()}
        assert sorted(rows) == ["a", "b", "c", "d"]
        assert rows["d"]["kind"] == "mail/out"
        assert rows["a"]["finished_at"] == NOON
        assert dict(rows["a"]["tags"]) == {"team": "search"}
        at_noon = table.to_pyarrow_table(filters=[("finished_at", ">=", LATER)])
        assert at_noon.column("id").to_pylist() == ["c"]
        table.optimize.compact()
        reader = ArchiveReader(store, LAYOUT)
        found = [job.id async for job in reader.jobs(NOON, LATER + timedelta(days=1))]
        assert sorted(found) == ["a", "b", "c", "d"]
        assert await prune(store, LAYOUT, before=LATER) == 2
        assert deltalake.DeltaTable(tmp_path / LAYOUT.compacted).version() == 3
    finally:
        await store.close()
