"""Archive files become Parquet files of a table, and readers notice nothing."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec import Raw

from bucketq.archive import compaction, parquet_format
from bucketq.archive.compaction import Compactor
from bucketq.archive.reader import ArchiveReader
from bucketq.archive.upkeep import prune, sweep
from bucketq.archive.writer import ArchiveWriter
from bucketq.store.memory import MemoryStore
from tests.unit.archive.compacted_archive import (
    DAY,
    LATER,
    LAYOUT,
    NOON,
    FixedClock,
    archive,
    archive_files,
    compact,
    compactor,
    files,
    finished,
    names,
    planned,
    write,
)

pytest.importorskip("pyarrow")


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
    assert list(parquet_format.jobs_in(body, *DAY, key)) == [job]
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


async def test_pruning_takes_compacted_files_whose_last_job_is_too_old() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a", NOON - timedelta(days=1)), finished("b"))
    await compact(store)
    assert await prune(store, LAYOUT, before=NOON - timedelta(hours=1)) == 1
    assert await names(store) == ["b"]
    assert len(await files(store)) == 1
    assert await prune(store, LAYOUT, before=NOON) == 0
