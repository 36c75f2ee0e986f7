"""Readers of a compacted archive see every job once, also during a compaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from bucketq.archive.reader import ArchiveReader
from bucketq.archive.upkeep import prune
from bucketq.errors import (
    CorruptStateError,
)
from bucketq.store.base import ObjectInfo
from bucketq.store.memory import MemoryStore
from tests.unit.archive.compacted_archive import (
    DAY,
    LATER,
    LAYOUT,
    NOON,
    archive,
    archive_files,
    compact,
    files,
    finished,
    names,
)

pytest.importorskip("pyarrow")


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


async def test_a_reader_continues_after_its_files_were_pruned() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"), finished("b", NOON + timedelta(days=-1)))
    await compact(store)
    found = []
    async for job in ArchiveReader(store, LAYOUT).jobs(*DAY):
        found.append(job.id)
        await prune(store, LAYOUT, before=LATER)
    assert found == ["b"]


async def test_a_missing_file_that_the_log_names_is_reported() -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"))
    await compact(store)
    [key] = await files(store)
    await store.delete(key)
    with pytest.raises(CorruptStateError, match="is missing"):
        await names(store)


@pytest.mark.parametrize("when", ["before_list", "after_list", "before_get"])
async def test_a_job_is_found_beside_a_compaction(when: str) -> None:
    store = Meddled()
    await archive(store, 1, *(finished(name) for name in "abc"))
    setattr(store, when, True)
    found = await ArchiveReader(store, LAYOUT).find("b", NOON, NOON + timedelta(hours=1))
    assert found is not None
    assert found.id == "b"
