"""The log of the compacted archive: commits with lost answers, many versions, other readers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bucketq.archive import parquet_format
from bucketq.archive.delta import DeltaLog
from bucketq.archive.reader import ArchiveReader
from bucketq.archive.upkeep import prune
from bucketq.clock import SystemClock
from bucketq.errors import (
    BucketQError,
    CorruptStateError,
    InvalidRequestError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.store.base import PreconditionFailedError
from bucketq.store.local import LocalStore
from bucketq.store.memory import MemoryStore
from tests.unit.archive.compacted_archive import (
    LATER,
    LAYOUT,
    NOON,
    archive,
    compact,
    finished,
    names,
)

pytest.importorskip("pyarrow")


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
    log = DeltaLog(store, LAYOUT.compacted, parquet_format.FIELDS)
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
    log = DeltaLog(store, LAYOUT.compacted, parquet_format.FIELDS)
    assert await log.commit([], SystemClock(), "WRITE")
    assert (log.version, store.tries) == (0, 2)


async def test_a_log_of_many_versions_is_read_whole() -> None:
    store = MemoryStore()
    for number in range(40):
        await archive(store, number, finished(f"job{number}"))
        await compact(store)
    log = DeltaLog(store, LAYOUT.compacted, parquet_format.FIELDS)
    assert len(await log.refresh()) == 40
    assert (log.version, await log.refresh()) == (39, [])


async def test_a_table_that_another_tool_has_raised_to_a_newer_protocol_is_refused() -> None:
    store = MemoryStore()
    line = b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7}}'
    await store.put(f"{LAYOUT.compacted}_delta_log/{0:020d}.json", line)
    with pytest.raises(CorruptStateError, match="another tool has changed it"):
        await names(store)


async def test_without_pyarrow_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    await archive(store, 1, finished("a"))
    await compact(store)
    await archive(store, 2, finished("b", NOON + timedelta(days=-1)))
    monkeypatch.setattr(parquet_format, "find_spec", lambda _: None)
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
