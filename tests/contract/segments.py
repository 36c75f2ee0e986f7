"""One small test of each thing that is done to segments, and lost answers, on a real server.

What they mean does not depend on the server: ``test_segment_folder.py`` holds that in memory
and on files.
"""

from __future__ import annotations

from hashlib import blake2b
from urllib.parse import urlsplit

import pytest

from bucketq.clock import SystemClock
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.commit.objects.segment_sweep import NamedSegments
from bucketq.errors import CorruptStateError
from bucketq.store.base import ObjectMissingError, ObjectStore
from bucketq.store.cloud import open_cloud
from tests.contract.faults import through
from tests.servers import proxy
from tests.servers.proxy import Fault, FaultProxy
from tests.servers.server import Server

KEY = "queue.json"
BODY = bytes(range(256)) * 4096  # A megabyte: more than one packet, and than one read.
FAULTS: list[Fault] = [
    proxy.closed,
    proxy.cut,
    proxy.late,
    proxy.lost,
    proxy.landed_412,
    proxy.landed_500,
    proxy.unheard_412,
    proxy.unheard_503,
]


def _name(until: int, body: bytes = BODY) -> str:
    return f"{until:020d}-{blake2b(body, digest_size=8).hexdigest()}"


def _folder(store: ObjectStore, incarnation: str = "01J") -> SegmentFolder:
    return SegmentFolder(store, KEY, incarnation, "the queue", SystemClock())


async def segments_are_put_read_listed_and_swept(store: ObjectStore) -> None:
    folder, other = _folder(store), _folder(store, "01K")
    for until in (5, 6, 7):
        await folder.put(_name(until), BODY)
    await folder.put(_name(5), BODY)
    await other.put(_name(5), BODY)
    await store.put(f"queue/segments/01J/{_name(5)}.other", b"another object")

    assert await folder.read(_name(5), 0, len(BODY)) == BODY
    assert await folder.read(_name(5), 70_001, 32_768) == BODY[70_001:102_769]
    assert await folder.read(_name(5), len(BODY) - 1, 1) == BODY[-1:]
    with pytest.raises(CorruptStateError):
        await folder.read(_name(5), len(BODY) - 1, 2)
    with pytest.raises(ObjectMissingError):
        await folder.read(_name(8), 0, 1)
    assert [name async for name in folder.names()] == [_name(5), _name(6), _name(7)]

    async def read_named() -> NamedSegments:
        return NamedSegments("01J", 6, frozenset([_name(6)]), frozenset())

    assert await folder.sweep(read_named) == 1
    assert await other.sweep(read_named) == 0
    assert [info.key async for info in store.list("")] == [
        f"queue/segments/01J/{_name(5)}.other",
        f"queue/segments/01J/{_name(6)}.jsonl",
        f"queue/segments/01J/{_name(7)}.jsonl",
        f"queue/segments/01K/{_name(5)}.jsonl",
    ]


async def a_probe_of_segments_leaves_nothing_behind(store: ObjectStore) -> None:
    await _folder(store).probe()
    assert [info.key async for info in store.list("")] == []


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
async def a_segment_whose_answer_is_lost_is_there_once_it_is_put(
    server: Server, fault: Fault
) -> None:
    url, body = server.url(), BODY[:10_000]
    with FaultProxy(server.port, iter([fault])) as faults:
        store, _, _ = open_cloud(urlsplit(through(faults, server, url)))
        await _folder(store).put(_name(5, body), body)
        assert faults.struck == {fault.__name__: 1}
        await store.close()
    store, _, _ = open_cloud(urlsplit(url))
    assert await _folder(store).read(_name(5, body), 0, len(body)) == body
    await store.close()


TESTS = (
    segments_are_put_read_listed_and_swept,
    a_probe_of_segments_leaves_nothing_behind,
    a_segment_whose_answer_is_lost_is_there_once_it_is_put,
)
