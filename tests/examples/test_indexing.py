"""The example that indexes: its log, its index and its search, job by job and without Spark."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

import bucketq
from bucketq.errors import BucketQError, CorruptStateError, InvalidRequestError, UnavailableError
from bucketq.store.base import PreconditionFailedError, StoredObject
from bucketq.store.memory import MemoryStore
from bucketq.worker.counters import WorkerCounters
from examples.indexing import corpus, manifest, parts, pipeline, tasks
from examples.indexing.location import Location, open_location
from examples.indexing.ranking import words_of
from examples.indexing.search import search
from examples.indexing.tasks import FANOUT, choose, index_segment, merge_parts
from examples.indexing.wal import Document, Place, Wal
from examples.indexing.writer import Writer, push_missing
from tests.servers.running import running
from tests.servers.server import ENVIRON

NAMESPACE = "docs"
QUERIES = ("the queue", "a broker is killed", "compare-and-set", "lease heartbeat worker")


def guides(count: int = 60) -> list[Document]:
    return list(corpus.documents("guides", count))


@pytest.fixture
def location() -> Location:
    return Location(MemoryStore(), "shop/", "memory://shop")


async def fill(location: Location, documents: Sequence[Document], size: int = 5) -> int:
    """Write documents to the log, and return how many segments that took."""
    wal = Wal(location, NAMESPACE)
    number = 0
    for first in range(0, len(documents), size):
        number = await wal.append(documents[first : first + size])
    return number


async def ranked(location: Location, query: str) -> list[tuple[str, float]]:
    answer = await search(location, NAMESPACE, query, limit=1000)
    return [(hit.document.id, hit.score) for hit in answer.hits]


def naive(documents: Sequence[Document], query: str) -> list[tuple[str, float]]:
    """BM25 as the textbook has it, over all documents at once."""
    bags = [Counter(words_of(f"{each.title} {each.text}")) for each in documents]
    average = sum(bag.total() for bag in bags) / len(bags)
    found = []
    for place, bag in enumerate(bags):
        score = 0.0
        for term in dict.fromkeys(words_of(query)):
            containing = sum(term in other for other in bags)
            idf = math.log((len(bags) - containing + 0.5) / (containing + 0.5) + 1)
            weight = bag[term] + 1.2 * (1 - 0.75 + 0.75 * bag.total() / average)
            score += idf * bag[term] * 2.2 / weight
        if score:
            found.append((-score, place))
    return [(documents[place].id, -minus) for minus, place in sorted(found)]


async def unnamed(location: Location) -> set[str]:
    """Files of the index that its manifest does not name."""
    prefix = f"{location.index(NAMESPACE)}parts/"
    there = {info.key async for info in location.store.list(prefix)}
    named = (await manifest.load(location, NAMESPACE)).keys
    assert named <= there, "the manifest names files that are gone"
    return there - named


async def test_answers_are_the_same_before_while_and_after_it_is_indexed(
    location: Location,
) -> None:
    documents = guides()
    last = await fill(location, documents)
    before = {query: await ranked(location, query) for query in QUERIES}
    for query, found in before.items():
        told = naive(documents, query)
        assert [each for each, _ in found] == [each for each, _ in told]
        assert [score for _, score in found] == pytest.approx([score for _, score in told])
    # In no order, as executors would.
    for number in sorted(range(1, last + 1), key=lambda number: number * 7 % last):
        await index_segment(location, NAMESPACE, number)
        assert {query: await ranked(location, query) for query in QUERIES} == before
    await merge_parts(location, NAMESPACE)
    assert {query: await ranked(location, query) for query in QUERIES} == before
    answer = await search(location, NAMESPACE, QUERIES[0])
    assert (answer.indexed, answer.tail) == (len(documents), 0)


async def test_a_search_tells_what_came_from_index_and_tail(location: Location) -> None:
    await fill(location, guides(12), size=5)
    await index_segment(location, NAMESPACE, 2)
    answer = await search(location, NAMESPACE, "queue", limit=2)
    assert (answer.indexed, answer.tail, len(answer.hits)) == (5, 7, 2)
    assert answer.matching == len(naive(guides(12), "queue"))


async def test_two_writers_never_overwrite_each_other_and_leave_no_number_out(
    tmp_path: Path,
) -> None:
    async def write(location: Location, name: str) -> list[int]:
        wal = Wal(location, NAMESPACE)
        return [await wal.append([Document(f"{name}{n}", "", "")]) for n in range(8)]

    async with open_location((tmp_path / "queue.json").as_uri()) as location:
        numbers = await asyncio.gather(*(write(location, name) for name in "abc"))
        read = [segment async for segment in Wal(location, NAMESPACE).missing_from(())]
    assert sorted(n for each in numbers for n in each) == list(range(1, 25))
    assert [segment.number for segment in read] == list(range(1, 25))
    for name, own in zip("abc", numbers, strict=True):
        assert [read[n - 1].documents[0].id for n in own] == [f"{name}{n}" for n in range(8)]


async def test_a_writer_that_dies_before_it_pushed_leaves_documents_that_are_found(
    tmp_path: Path,
) -> None:
    url = (tmp_path / "queue.json").as_uri()
    async with open_location(url) as location, bucketq.connect(url, mode="direct") as queue:
        await fill(location, [Document("a", "lost and found", "a needle")])
        assert await ranked(location, "needle") != []
        assert (await queue.stats()).total("queued") == 0
        first = await push_missing(location, queue, NAMESPACE)
        assert len(first) == (await queue.stats()).total("queued") == 1
        assert await push_missing(location, queue, NAMESPACE) == first
        await Writer(location, queue, NAMESPACE).write([Document("b", "", "a pin")])
        jobs = (await queue.jobs()).jobs
    assert [job.payload["segment"] for job in jobs] == [1, 2]


def worker_of(url: str, concurrency: int = 4) -> bucketq.Worker:
    """A worker with the handlers of the example, that no other test has configured."""
    own = bucketq.Worker(url, concurrency=concurrency)
    own.handler("index")(tasks.index)
    own.handler("merge")(tasks.merge)
    return own


def run_jobs(url: str) -> Counter[str]:
    own = worker_of(url)

    def run() -> WorkerCounters:
        own.run_sync(burst=True)
        return own.counters

    return pipeline.run_jobs(url, run)


def test_cancelled_jobs_are_reported_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_RETRY_S", 0.0)
    url = (tmp_path / "queue.json").as_uri()
    asyncio.run(pipeline.write_corpus(url, ["guides"], 10))
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.cancel(queue.jobs().jobs[0].id)
    with pytest.raises(BucketQError, match=r"1 jobs cannot be claimed, .* were they cancelled"):
        run_jobs(url)


def test_jobs_of_a_killed_worker_are_waited_for_and_done(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    asyncio.run(pipeline.write_corpus(url, ["guides"], 150))
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(lease_s=2.0, heartbeat_s=0.5, grace_s=1.0)
        queue.claim()  # And nobody is heard of any more.
    assert run_jobs(url) == {"done": 2}
    [found] = asyncio.run(pipeline.indexed(url)).values()
    assert (found.segments, found.documents) == ({1, 2}, 150)


async def test_a_worker_indexes_and_merges_what_was_written(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    documents = guides(FANOUT * 5)
    async with open_location(url) as location:
        async with bucketq.connect(url, mode="direct") as queue:
            writer = Writer(location, queue, NAMESPACE)
            for first in range(0, len(documents), 5):
                await writer.write(documents[first : first + 5])
            assert await writer.ids() == {each.id for each in documents}
        before = await ranked(location, "queue")
        # One after the other, so that the merge comes last, as it was pushed.
        own = worker_of(url, concurrency=1)
        await own.run(burst=True)
        assert own.counters.ends == {"done": FANOUT + 1}
        [part] = (await manifest.load(location, NAMESPACE)).parts
        assert part.segments == [(1, FANOUT)]
        assert await ranked(location, "queue") == before
        assert await unnamed(location) == set()


async def test_a_job_that_runs_twice_changes_nothing_and_leaves_no_files(
    location: Location,
) -> None:
    await fill(location, guides(10))
    await asyncio.gather(*(index_segment(location, NAMESPACE, 1 + n % 2) for n in range(8)))
    found = await manifest.load(location, NAMESPACE)
    assert sorted(part.segments for part in found.parts) == [[(1, 1)], [(2, 2)]]
    assert (await index_segment(location, NAMESPACE, 1)).was_there
    assert await manifest.load(location, NAMESPACE) == found
    assert await unnamed(location) == set()


async def test_merges_keep_the_number_of_parts_small_and_double_nothing(location: Location) -> None:
    last = await fill(
        location, [Document(str(n), "", f"word{n % 7} all") for n in range(150)], size=1
    )
    for number in range(1, last + 1):
        await index_segment(location, NAMESPACE, number)
        if number % FANOUT == 0:
            # Two at once, as it may be where a lease was lost.
            await asyncio.gather(*(merge_parts(location, NAMESPACE) for _ in range(2)))
    found = await manifest.load(location, NAMESPACE)
    assert sorted(part.segment_count for part in found.parts) == [1] * 6 + [8] * 2 + [64] * 2
    assert choose(found) == []
    assert len(found.segments) == sum(part.segment_count for part in found.parts) == 150
    assert len(await ranked(location, "all")) == 150
    assert await unnamed(location) == set()


async def test_a_search_reads_only_files_that_may_have_its_words(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_POSTINGS_A_FILE", 200)
    monkeypatch.setattr(parts, "_TEXTS_A_FILE", 4)
    documents = guides(40)
    await fill(location, documents, size=40)
    before = {query: await ranked(location, query) for query in QUERIES}
    await index_segment(location, NAMESPACE, 1)
    [part] = (await manifest.load(location, NAMESPACE)).parts
    assert len(part.postings) > 10
    for one, other in pairwise(part.postings):
        assert one.first <= one.last <= other.first
    answer = await search(location, NAMESPACE, "broker", limit=1)
    assert answer.files_read <= 3
    assert 0 < answer.bytes_read < answer.bytes / 3
    assert {query: await ranked(location, query) for query in QUERIES} == before


async def test_a_search_whose_files_are_merged_away_begins_anew(location: Location) -> None:
    await fill(location, guides(FANOUT * 2), size=2)
    before = await ranked(location, "queue")
    for number in range(1, FANOUT + 1):
        await index_segment(location, NAMESPACE, number)
    merges = 0

    class Merging(MemoryStore):
        """Merges all parts when the first of them is about to be read."""

        async def get(self, key: str) -> StoredObject:
            nonlocal merges
            if key.endswith(".parquet") and not merges:
                merges += 1
                await merge_parts(location, NAMESPACE)
            return await location.store.get(key)

    assert await ranked(Location(Merging(), location.folder, location.url), "queue") == before
    assert merges == 1


class Forgetful(MemoryStore):
    """Writes, and then tells of a failure: that the answer was lost, or of a conflict."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error
        self.count = 0

    def _fail(self) -> None:
        self.count += 1
        if self.count % 2:
            raise self._error

    async def create(self, key: str, body: bytes) -> str:
        etag = await super().create(key, body)
        self._fail()
        return etag

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        etag = await super().replace(key, body, etag)
        self._fail()
        return etag


@pytest.mark.parametrize("error", [UnavailableError("lost"), PreconditionFailedError("conflict")])
async def test_a_write_that_landed_and_was_told_as_failed_is_made_once(error: Exception) -> None:
    location = Location(Forgetful(error), "", "memory://")
    documents = [Document(str(n), "", "word") for n in range(6)]
    assert await fill(location, documents, size=1) == 6
    for number in range(1, 7):
        await index_segment(location, NAMESPACE, number)
    found = await manifest.load(location, NAMESPACE)
    assert [part.segments for part in found.parts] == [[(n, n)] for n in range(1, 7)]
    assert len(await ranked(location, "word")) == 6
    assert await unnamed(location) == set()


async def test_what_makes_no_sense_is_refused_with_the_reason(location: Location) -> None:
    with pytest.raises(InvalidRequestError, match=r"'docs' has no documents: .* none yet"):
        await search(location, NAMESPACE, "queue")
    await fill(location, guides(1))
    with pytest.raises(InvalidRequestError, match="'other' has no documents: there are docs"):
        await search(location, "other", "queue")
    with pytest.raises(InvalidRequestError, match="there is no word in ' \\?'"):
        await search(location, NAMESPACE, " ?")
    with pytest.raises(InvalidRequestError, match=r"'\.\./x' cannot be a namespace"):
        await search(location, "../x", "queue")
    key = f"{location.wal(NAMESPACE)}000000000002.jsonl"
    await location.store.create(key, b'{"segment":2,"write":"x","documents":2}\n')
    with pytest.raises(CorruptStateError, match="is cut off: it has 0 of 2 documents"):
        await search(location, NAMESPACE, "queue")


async def test_an_index_that_was_removed_is_built_again_from_the_log(location: Location) -> None:
    await fill(location, guides(4), size=2)
    before = await ranked(location, "queue")
    for _ in range(2):
        for number in (1, 2):
            await index_segment(location, NAMESPACE, number)
        assert await ranked(location, "queue") == before
        for key in [info.key async for info in location.store.list(location.index(NAMESPACE))]:
            await location.store.delete(key)


def test_every_document_has_an_id_of_its_own_and_a_place_in_order() -> None:
    ids = [each.id for name in corpus.NAMESPACES for each in corpus.documents(name, 300)]
    assert len(set(ids)) == len(ids) > 800
    assert parts.spell(Place(9, 10)) < parts.spell(Place(10, 2)) < parts.spell(Place(10, 11))


@pytest.mark.servers
async def test_log_and_index_live_on_an_object_store_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    documents = guides(24)
    async with open_location(running("seaweedfs").url()) as location:
        last = await fill(location, documents, size=3)
        before = await ranked(location, "queue")
        await asyncio.gather(*(index_segment(location, NAMESPACE, n) for n in range(1, last + 1)))
        await merge_parts(location, NAMESPACE)
        assert len((await manifest.load(location, NAMESPACE)).parts) == 1
        assert await ranked(location, "queue") == before != []
        assert await unnamed(location) == set()
