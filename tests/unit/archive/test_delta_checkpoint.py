"""Checkpoints of the log of the compacted archive: fewer requests, and never a wrong table."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bucketq.archive import delta, parquet_format
from bucketq.archive.delta import DeltaLog
from bucketq.archive.delta_actions import AddFile, added, removed
from bucketq.errors import CorruptStateError, StoreRefusedError
from bucketq.store.base import StoredObject
from bucketq.store.local import LocalStore
from bucketq.store.memory import MemoryStore
from tests.unit.archive.compacted_archive import (
    LATER,
    LAYOUT,
    NOON,
    FixedClock,
    archive,
    compact,
    finished,
    names,
)

pytest.importorskip("pyarrow")

CLOCK = FixedClock(LATER)
LOG = f"{LAYOUT.compacted}_delta_log/"
VERSIONS = 40


class CountingStore(MemoryStore):
    """Notes what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    async def get(self, key: str) -> StoredObject:
        self.read.append(key)
        return await super().get(key)


def new_log(store: MemoryStore | LocalStore) -> DeltaLog:
    return DeltaLog(store, LAYOUT.compacted, parquet_format.FIELDS)


def a_file(number: int) -> AddFile:
    at = NOON + timedelta(minutes=number)
    return added(f"date=2026-02-15/kind=a b/part-{number}.parquet", 9, "a b", (at, at), 1, LATER)


async def long_log(store: MemoryStore) -> DeltaLog:
    """A log in which each version adds a file, and each third removes one, with checkpoints."""
    log = new_log(store)
    for number in range(VERSIONS):
        gone = [removed(a_file(number - 1), CLOCK.now())] if number % 3 == 2 else []
        assert await log.commit([a_file(number), *gone], CLOCK, "WRITE")
        await log.checkpoint(CLOCK)
    return log


def described(log: DeltaLog) -> dict[str, tuple[object, ...]]:
    files = log.files.values()
    return {file.path: (file.partition_values, file.size, file.span) for file in files}


async def test_a_checkpoint_stands_for_the_versions_before_it() -> None:
    store = CountingStore()
    written = await long_log(store)
    assert [info.key async for info in store.list(LOG) if "checkpoint" in info.key] == [
        *(f"{LOG}{version:020d}.checkpoint.parquet" for version in (9, 19, 29, 39)),
        f"{LOG}_last_checkpoint",
    ]
    store.read.clear()
    log = new_log(store)
    assert len(await log.refresh()) == len(written.files)
    assert (log.version, described(log)) == (VERSIONS - 1, described(written))
    assert len(store.read) == 5
    assert await log.commit([removed(a_file(0), CLOCK.now())], CLOCK, "DELETE")
    assert not await log.checkpoint(CLOCK)  # None is due.


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: b"no Parquet",
        lambda _: b"",
        lambda body: body[: len(body) // 2],
    ],
    ids=["other bytes", "nothing", "half of it"],
)
async def test_without_a_whole_checkpoint_the_log_is_read_and_the_next_one_replaces_it(
    spoil: Callable[[bytes], bytes],
) -> None:
    store = MemoryStore()
    written = await long_log(store)
    key = f"{LOG}{39:020d}.checkpoint.parquet"
    await store.put(key, spoil((await store.get(key)).body))
    log = new_log(store)
    await log.refresh()
    assert (log.version, described(log)) == (VERSIONS - 1, described(written))
    assert await log.checkpoint(CLOCK)
    again = new_log(store)
    await again.refresh()
    assert described(again) == described(written)


@pytest.mark.parametrize(
    "last", [b"", b'{"version":39,"size":3,"parts":2}', b'{"version":38,"size":1}', None]
)
async def test_a_pointer_that_leads_nowhere_is_no_harm(last: bytes | None) -> None:
    store = MemoryStore()
    written = await long_log(store)
    if last is None:
        await store.delete(f"{LOG}_last_checkpoint")
    else:
        await store.put(f"{LOG}_last_checkpoint", last)
    log = new_log(store)
    await log.refresh()
    assert (log.version, described(log)) == (VERSIONS - 1, described(written))


async def test_without_pyarrow_the_log_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    written = await long_log(store)
    monkeypatch.setattr(delta, "find_spec", lambda _: None)
    log = new_log(store)
    await log.refresh()
    assert described(log) == described(written)


async def test_a_checkpoint_of_a_newer_protocol_is_refused() -> None:
    store = MemoryStore()
    log = await long_log(store)
    line = b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7}}'
    await store.put(f"{LOG}{VERSIONS:020d}.json", line)
    with pytest.raises(CorruptStateError, match="another tool has changed it"):
        await log.refresh()


async def test_a_table_for_newer_writers_gets_no_checkpoint() -> None:
    store = MemoryStore()
    log = new_log(store)
    for number in range(10):
        assert await log.commit([a_file(number)], CLOCK, "WRITE")
    line = b'{"protocol":{"minReaderVersion":1,"minWriterVersion":7}}'
    await store.put(f"{LOG}{10:020d}.json", line)
    await log.refresh()
    assert not await log.checkpoint(CLOCK)


async def test_a_checkpoint_that_cannot_be_written_does_not_fail_the_compaction() -> None:
    class Full(MemoryStore):
        async def put(self, key: str, body: bytes) -> str:
            if "checkpoint" in key:
                raise StoreRefusedError("no space")
            return await super().put(key, body)

    store = Full()
    log = await long_log(store)
    again = new_log(store)
    await again.refresh()
    assert described(again) == described(log)


async def test_a_kill_between_any_two_writes_leaves_a_readable_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of a compaction is followed by a look at what a kill would leave."""
    deltalake = pytest.importorskip("deltalake")
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 1)
    monkeypatch.setattr(delta, "_LEAST_SAVED", 0)  # Even the first checkpoint is used.
    seen: list[tuple[str, list[str]]] = []

    class Watched(LocalStore):
        async def put(self, key: str, body: bytes) -> str:
            done = await super().put(key, body)
            await look(key)
            return done

        async def create(self, key: str, body: bytes) -> str:
            done = await super().create(key, body)
            await look(key)
            return done

        async def delete(self, key: str) -> None:
            await super().delete(key)
            await look(key)

    store = Watched(tmp_path)

    async def look(key: str) -> None:
        if watching:
            seen.append((key.rpartition("/")[2], sorted(await names(store))))
            table = deltalake.DeltaTable(tmp_path / LAYOUT.compacted)
            found = table.to_pyarrow_table(columns=["id"]).column("id").to_pylist()
            assert sorted(found) in (["a"], ["a", "b"])

    watching = False
    try:
        await archive(store, 1, finished("a"))
        await compact(store)
        await archive(store, 2, finished("b", kind="mail/out"))
        watching = True
        await compact(store)
        assert [found for _, found in seen] == [["a", "b"]] * len(seen)
        written = [key for key, _ in seen]
        assert written[1:4] == [
            f"{1:020d}.json",
            f"{1:020d}.checkpoint.parquet",
            "_last_checkpoint",
        ]
        assert len(written) == 5  # Before them a Parquet file, after them an archive file.
    finally:
        watching = False
        await store.close()


async def test_other_readers_need_only_the_checkpoint_and_theirs_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake = pytest.importorskip("deltalake")
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 3)
    monkeypatch.setattr(delta, "_LEAST_SAVED", 0)
    store = LocalStore(tmp_path)
    root, log = tmp_path / LAYOUT.compacted, tmp_path / LOG
    try:
        for number, kind in enumerate(["index", "mail/out", "index", "mail/out"]):
            await archive(store, number, finished(f"job{number}", kind=kind))
            await compact(store)
        first = (log / f"{0:020d}.json").read_bytes()
        for version in range(3):
            (log / f"{version:020d}.json").unlink()
        table = deltalake.DeltaTable(root)
        assert table.version() == 3
        rows = {row["id"]: row for row in table.to_pyarrow_table().to_pylist()}
        assert sorted(rows) == ["job0", "job1", "job2", "job3"]
        assert rows["job1"]["kind"] == "mail/out"
        chosen = table.to_pyarrow_table(filters=[("finished_at", ">", NOON)])
        assert chosen.num_rows == 0
        table.optimize.compact()
        table.create_checkpoint()
        last = json.loads((log / "_last_checkpoint").read_bytes())
        assert last["version"] == 4
        # Only the first version, by which bucketq sees that there is a table, and theirs are left.
        (log / f"{0:020d}.json").write_bytes(first)
        (log / f"{3:020d}.json").unlink()
        assert sorted(await names(store)) == ["job0", "job1", "job2", "job3"]
        found = new_log(store)
        await found.refresh()
        assert (found.version, len(found.files)) == (4, 2)
    finally:
        await store.close()
