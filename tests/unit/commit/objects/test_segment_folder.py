"""The objects of a queue's segments: put, read, listed, and deleted if nothing can name them."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Callable
from hashlib import blake2b
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest

from bucketq.clock import SystemClock
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.commit.objects.segment_parts import ReadRange
from bucketq.commit.objects.segment_sweep import NamedSegments, ReadNamed
from bucketq.errors import CorruptStateError, StoreRefusedError, UnavailableError
from bucketq.store import directories
from bucketq.store.base import ObjectInfo, ObjectMissingError, ObjectStore
from bucketq.store.local import LocalStore
from bucketq.store.memory import MemoryStore
from tests.unit.commit.worlds import (
    World,
    conflict_for_no_reason,
    conflict_with_itself,
    lose_answer,
    lose_request,
    refuse,
    virtual,
)
from tests.unit.store.disk import Disk

KEY = "jobs/queue.json"
NOW = "01JNOW"
FORMER = "01JFORMER"
WHERE = "test://queue"


def name(until: int, body: bytes = b"rows\n") -> str:
    return f"{until:020d}-{blake2b(body, digest_size=8).hexdigest()}"


def folder_in(store: ObjectStore, incarnation: str = NOW, key: str = KEY) -> SegmentFolder:
    return SegmentFolder(store, key, incarnation, WHERE, SystemClock())


def at(version: int, *ids: str, incarnation: str = NOW) -> ReadNamed:
    """A queue object that was read."""

    async def read() -> NamedSegments:
        return NamedSegments(incarnation, version, frozenset(ids), frozenset())

    return read


async def listed(folder: SegmentFolder) -> list[str]:
    return [found async for found in folder.names()]


async def keys(store: ObjectStore) -> list[str]:
    return [info.key async for info in store.list("")]


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    opened: ObjectStore = MemoryStore() if request.param == "memory" else LocalStore(tmp_path)
    yield opened
    await opened.close()


async def test_a_segment_is_put_once_and_read_in_ranges(store: ObjectStore) -> None:
    folder = folder_in(store)
    read: ReadRange = folder.read
    await folder.put(name(105), b"rows\n")
    await folder.put(name(105), b"rows\n")
    assert await read(name(105), 0, 5) == b"rows\n"
    assert await read(name(105), 2, 3) == b"ws\n"
    assert await keys(store) == [f"jobs/queue/segments/{NOW}/{name(105)}.jsonl"]
    assert folder.address == f"{store.url.rstrip('/')}/jobs/queue/segments/{NOW}/"


async def test_a_file_queue_without_a_suffix_has_another_folder(tmp_path: Path) -> None:
    local, memory = LocalStore(tmp_path), MemoryStore()
    for store in (local, memory):
        await store.create("queue", b"{}")
        await folder_in(store, key="queue").put(name(1), b"rows\n")
    assert (await keys(local))[1] == f"queue.d/segments/{NOW}/{name(1)}.jsonl"
    assert (await keys(memory))[1] == f"queue/segments/{NOW}/{name(1)}.jsonl"
    await local.close()


async def test_segment_files_get_mode_and_group_of_the_queue_file(tmp_path: Path) -> None:
    queue = tmp_path / "queue.json"
    queue.write_bytes(b"{}")
    queue.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(queue, -1, 12345)
    store = LocalStore(tmp_path, like="queue.json")
    await folder_in(store, key="queue.json").put(name(1), b"rows\n")
    path = tmp_path / "queue" / "segments" / NOW / f"{name(1)}.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_gid == queue.stat().st_gid
    for parent in (path.parent, path.parent.parent, path.parent.parent.parent):
        assert stat.S_IMODE(parent.stat().st_mode) & 0o777 == 0o750
        assert parent.stat().st_gid == queue.stat().st_gid
    await store.close()


async def test_a_missing_segment_and_a_short_one_are_distinguished(store: ObjectStore) -> None:
    folder = folder_in(store)
    with pytest.raises(ObjectMissingError):
        await folder.read(name(105), 0, 1)
    await folder.put(name(105), b"rows\n")
    with pytest.raises(
        CorruptStateError, match=rf"{WHERE} is damaged: .*{name(105)}.*byte 6"
    ) as no:
        await folder.read(name(105), 4, 2)
    assert "doctor --deep" in str(no.value)


async def test_another_object_under_the_key_is_not_taken_for_the_segment(
    store: ObjectStore,
) -> None:
    folder = folder_in(store)
    await folder.put(name(105), b"rows")
    with pytest.raises(CorruptStateError, match="is not the segment that its name says"):
        await folder.put(name(105), b"rows\n")


STRANGERS = [
    "README",
    "queue.json",
    f"{name(1)}.gone.jsonl",
    f"{name(1)}.jsonl.bak",
    f"{name(1)}.jsonl.jsonl",
    f"{name(1)}",
    f"{name(1).upper()}.jsonl",
    f"{name(1)[1:]}.jsonl",
    f"0{name(1)}.jsonl",
    f"{name(1)[:19]}\N{ARABIC-INDIC DIGIT ONE}{name(1)[20:]}.jsonl",
    f"r{1:020d}-01J/{name(1)}.jsonl",
    f"deeper/{name(1)}.jsonl",
]


async def test_only_keys_of_the_exact_form_are_listed_and_swept(store: ObjectStore) -> None:
    folder = folder_in(store)
    root = f"jobs/queue/segments/{NOW}/"
    for stranger in STRANGERS:
        await store.put(root + stranger, b"rows\n")
    outside = [f"jobs/queue/segments/{NOW}.jsonl", f"jobs/queue/archive/{name(1)}.jsonl"]
    for key in outside:
        await store.put(key, b"rows\n")
    before = await keys(store)
    await folder.put(name(1), b"rows\n")
    assert await listed(folder) == [name(1)]
    assert await folder.sweep(at(9)) == 1
    assert await keys(store) == before


async def test_a_sweep_deletes_what_no_version_can_name_any_more(store: ObjectStore) -> None:
    folder = folder_in(store)
    for until in (1, 7, 8, 9, 10, 3000):
        await folder.put(name(until), b"rows\n")
    assert await folder.sweep(at(8, name(7), name(3000))) == 2
    assert await listed(folder) == [name(7), name(9), name(10), name(3000)]
    assert await folder.sweep(at(8, name(7), name(3000))) == 0
    assert await folder.sweep(at(3000)) == 4


async def test_a_segment_that_is_not_named_yet_outlives_a_sweep(store: ObjectStore) -> None:
    folder = folder_in(store)
    await folder.put(name(9), b"rows\n")
    assert await folder.sweep(at(8)) == 0
    assert await listed(folder) == [name(9)]


async def test_another_incarnation_in_the_queue_is_no_reason_to_delete(store: ObjectStore) -> None:
    former, current = folder_in(store, FORMER), folder_in(store)
    for folder in (former, current):
        await folder.put(name(1), b"rows\n")
    assert await former.sweep(at(1000)) == 0
    assert await listed(former) == [name(1)]
    assert await current.sweep(at(1000)) == 1
    assert await listed(former) == [name(1)]
    assert await former.sweep(at(1, incarnation=FORMER)) == 1


async def test_the_queue_is_read_after_the_listing_and_only_if_there_are_segments(
    store: ObjectStore,
) -> None:
    folder = folder_in(store)

    async def unread() -> NamedSegments:
        raise AssertionError("nothing is there to be deleted")

    assert await folder.sweep(unread) == 0
    await folder.put(name(1), b"rows\n")

    async def missing() -> NamedSegments:
        await folder.put(name(2), b"rows\n")
        raise ObjectMissingError("the queue was deleted")

    with pytest.raises(ObjectMissingError):
        await folder.sweep(missing)
    assert await listed(folder) == [name(1), name(2)]


async def test_what_another_process_has_swept_is_not_an_error(store: ObjectStore) -> None:
    folder, other = folder_in(store), folder_in(store)
    for until in (1, 2):
        await folder.put(name(until), b"rows\n")

    async def meanwhile() -> NamedSegments:
        assert await other.sweep(at(9)) == 2
        return NamedSegments(NOW, 9, frozenset(), frozenset())

    await folder.sweep(meanwhile)
    assert await listed(folder) == []


class Interleaved(MemoryStore):
    """A store that lets a writer make steps just before a request of a sweep."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[str], Any] | None = None

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        if self.before is not None:
            await self.before("list")
        async for info in super().list(prefix):
            yield info

    async def delete(self, key: str) -> None:
        if self.before is not None:
            await self.before("delete")
        await super().delete(key)


class Writer:
    """A writer that puts and names segments by the rules, one request at a time."""

    STEPS = (
        ("put", "a", 2),
        ("commit", "a"),  # 2: its last chance.
        ("put", "b", 3),
        ("put", "c", 4),
        ("commit", "ab"),  # 3
        ("put", "d", 4),  # The commit that was to name it is lost.
        ("commit", "bc"),  # 4: a is dropped, c introduced.
        ("commit", "bc"),  # 5
        ("put", "e", 6),
        ("commit", "ce"),  # 6
        ("put", "a", 2),  # A request from long ago arrives.
        ("commit", "ce"),  # 7
    )

    def __init__(self, folder: SegmentFolder) -> None:
        self.folder = folder
        self.taken = 0
        self.version = 1
        self.ids: frozenset[str] = frozenset()
        self._names: dict[str, str] = {}

    async def advance(self, count: int) -> None:
        for kind, letters, *until in self.STEPS[self.taken : count]:
            self.taken += 1
            if kind == "put":
                self._names[letters] = name(int(until[0]), letters.encode())
                await self.folder.put(self._names[letters], letters.encode())
            else:
                self.version += 1
                self.ids = frozenset(self._names[letter] for letter in letters)
            await self.check()

    async def check(self) -> None:
        present = set(await listed(folder_in(self.folder._store)))
        assert present >= self.ids, f"step {self.taken}: a named segment is missing"

    async def read(self) -> NamedSegments:
        return NamedSegments(NOW, self.version, self.ids, frozenset())


async def test_a_sweep_at_any_moment_deletes_nothing_that_is_or_will_be_named() -> None:
    """With steps of a writer before the listing, before the reading, and before each delete."""
    total = len(Writer.STEPS)
    swept = 0
    for stops in combinations_with_replacement(range(total + 1), 4):
        store = Interleaved()
        folder = SegmentFolder(store, KEY, NOW, WHERE, SystemClock())
        plain = MemoryStore()
        plain._objects, plain._lock = store._objects, store._lock
        writer = Writer(folder_in(plain))
        left = list(stops)

        async def go_on(_: str, writer: Writer = writer, left: list[int] = left) -> None:
            if left:
                await writer.advance(left.pop(0))

        async def read(writer: Writer = writer, go_on: Any = go_on) -> NamedSegments:
            await go_on("read")
            return await writer.read()

        store.before = go_on
        swept += await folder.sweep(read)
        await writer.check()
        store.before = None
        await writer.advance(total)
        await folder.sweep(writer.read)
        assert set(await listed(folder)) == writer.ids, stops
    assert swept > 0


@virtual
async def test_a_lost_answer_is_resolved_by_putting_the_same_bytes_again() -> None:
    world = World()
    folder = SegmentFolder(world.store, KEY, NOW, WHERE, world.clock)
    for fault in (lose_answer, conflict_with_itself, lose_request, conflict_for_no_reason):
        world.store.calls.clear()
        world.store.plan("create", fault)
        body = fault.__name__.encode()
        await folder.put(name(1, body), body)
        assert await folder.read(name(1, body), 0, len(body)) == body
        assert world.store.count("create") == (1 if fault is conflict_with_itself else 2)
    world.store.plan("get", lose_request)
    await folder.put(name(1, body), body)
    assert world.store.count("get") == 3


@virtual
async def test_an_outcome_that_stays_unknown_is_raised_after_a_few_tries() -> None:
    world = World()
    folder = SegmentFolder(world.store, KEY, NOW, WHERE, world.clock)
    for fault in (lose_request, conflict_for_no_reason):
        world.store.calls.clear()
        world.store.stand("create", fault)
        with pytest.raises(UnavailableError):
            await folder.put(name(1), b"rows\n")
        assert world.store.count("create") == 6
    world.store.calls.clear()
    world.store.stand("create", refuse)
    with pytest.raises(StoreRefusedError):
        await folder.put(name(1), b"rows\n")
    assert world.store.count("create") == 1


async def test_a_segment_of_a_writer_that_died_before_its_sync_is_durable_once_it_is_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    dead, store = LocalStore(tmp_path), LocalStore(tmp_path)
    await folder_in(dead).put(name(1), b"rows\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directories, "sync", lambda _: None)
        await folder_in(dead).put(name(2), b"rows\n")
    assert disk.may_lose == [f"{name(2)}.jsonl"]
    await folder_in(store).put(name(2), b"rows\n")
    assert disk.may_lose == []
    for opened in (dead, store):
        await opened.close()


class Refusing(MemoryStore):
    """A store that refuses one verb below the folder of segments, as a policy of a bucket may."""

    def __init__(self, verb: str) -> None:
        super().__init__()
        self._verb = verb

    def _demand(self, verb: str) -> None:
        if verb == self._verb:
            raise StoreRefusedError("it answered 403 AccessDenied")

    async def create(self, key: str, body: bytes) -> str:
        self._demand("create")
        return await super().create(key, body)

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        self._demand("get_range")
        return await super().get_range(key, offset, length)

    async def delete(self, key: str) -> None:
        self._demand("delete")
        await super().delete(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        self._demand("list")
        async for info in super().list(prefix):
            yield info


async def test_a_probe_leaves_nothing_behind(store: ObjectStore) -> None:
    folder = folder_in(store)
    await folder.put(name(9), b"rows\n")
    await folder.probe()
    assert await listed(folder) == [name(9)]


@pytest.mark.parametrize(
    ("verb", "refused", "advice"),
    [
        ("create", "written", "creating"),
        ("get_range", "read", "reading"),
        ("list", "listed", "listing"),
        ("delete", "deleted", "deleting"),
    ],
)
async def test_a_probe_says_what_is_refused_and_what_to_allow(
    verb: str, refused: str, advice: str
) -> None:
    store = Refusing(verb)
    folder = folder_in(store)
    with pytest.raises(StoreRefusedError) as no:
        await folder.probe()
    assert str(no.value) == (
        f"segments of {WHERE} cannot be {refused}: it answered 403 AccessDenied; allow {advice} "
        f"of objects whose keys begin with jobs/queue/segments/{NOW}/"
    )
    # What is left behind is deleted by the first sweep that may.
    store._verb = ""
    await folder.sweep(at(0))
    assert await keys(store) == []


async def test_a_probe_and_a_sweep_at_the_same_time_do_not_disturb_each_other() -> None:
    class Swept(MemoryStore):
        async def create(self, key: str, body: bytes) -> str:
            etag = await super().create(key, body)
            assert await folder_in(self).sweep(at(0)) == 1
            return etag

    await folder_in(Swept()).probe()


async def test_a_probe_detects_a_store_that_returns_other_ranges() -> None:
    class Shifted(MemoryStore):
        async def get_range(self, key: str, offset: int, length: int) -> bytes:
            return await super().get_range(key, 0, length)

    with pytest.raises(StoreRefusedError, match=r"other bytes .* use another store"):
        await folder_in(Shifted()).probe()
