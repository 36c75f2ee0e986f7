"""The jobs, and the worker that runs them: index a segment, and merge small parts.

Spark's executors run these handlers (``python -m examples.indexing index``, or ``bucketq work
examples.indexing.tasks:worker --spark "local[2]"``), and so does any other worker (``bucketq work
examples.indexing.tasks:worker``). They get the address of log and index with the job, and never
contact the queue.

A job may run twice, even at the same time. Each run makes its own files and then changes the
manifest, which accepts a segment once; the files of the second run are deleted.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import chain

from msgspec import Struct

import bucketq
from bucketq.store.base import ObjectMissingError
from examples.indexing import manifest, parts
from examples.indexing.location import Location, open_location
from examples.indexing.manifest import Manifest, Part
from examples.indexing.wal import Wal

FANOUT = 8
"""This many parts of similar size are merged into one."""

worker = bucketq.Worker(concurrency=4)


class IndexSegment(Struct, frozen=True):
    """Index a segment of the log."""

    url: str
    namespace: str
    segment: int


class MergeParts(Struct, frozen=True):
    """Merge the parts of a namespace, if there are many."""

    url: str
    namespace: str


class Indexed(Struct, frozen=True):
    """The result of indexing a segment."""

    documents: int
    was_there: bool = False


class Merged(Struct, frozen=True):
    """The result of a merge."""

    merges: int
    parts: int
    """How many there are now."""


@worker.handler("index", timeout_s=120)
async def index(task: IndexSegment) -> Indexed:
    """Make a part of a segment, and add it to the manifest."""
    async with open_location(task.url) as location:
        return await index_segment(location, task.namespace, task.segment)


@worker.handler("merge", timeout_s=300)
async def merge(task: MergeParts) -> Merged:
    """Merge parts of similar size until there are few of each."""
    async with open_location(task.url) as location:
        return await merge_parts(location, task.namespace)


async def index_segment(location: Location, namespace: str, number: int) -> Indexed:
    """Index a segment, unless it is indexed already."""
    if number in (await manifest.load(location, namespace)).segments:
        return Indexed(0, was_there=True)
    segment = await Wal(location, namespace).read(number)
    part = await parts.build(location, namespace, segment)

    def add(found: Manifest) -> Manifest | None:
        return None if number in found.segments else Manifest([*found.parts, part])

    after = await manifest.change(location, namespace, add)
    await manifest.discard(location, part.files, after)
    return Indexed(part.documents)


async def merge_parts(location: Location, namespace: str) -> Merged:
    """Merge the parts of a namespace."""
    merges = 0
    while chosen := choose(found := await manifest.load(location, namespace)):
        try:
            merged = await parts.merge(location, namespace, chosen)
        except ObjectMissingError:
            if found == await manifest.load(location, namespace):
                raise  # The index is damaged.
            continue  # Another run has merged them.
        after = await manifest.change(location, namespace, partial(_swap, chosen, merged))
        # Searches that began before may still read them. They start again if one is missing.
        files = chain.from_iterable(part.files for part in [*chosen, merged])
        await manifest.discard(location, files, after)
        merges += merged in after.parts
    return Merged(merges, len(found.parts))


def _swap(chosen: list[Part], merged: Part, found: Manifest) -> Manifest | None:
    if not all(part in found.parts for part in chosen):
        return None
    return Manifest([*(part for part in found.parts if part not in chosen), merged])


def choose(found: Manifest) -> list[Part]:
    """The parts to merge next: those that came first, of a size of which there are enough.

    A part is merged again only when there are as many of its size, so each document is merged as
    often as the number of its segments has digits.
    """
    by_size: dict[int, list[Part]] = {}
    for part in sorted(found.parts, key=lambda each: each.segments):
        size = int(math.log(part.segment_count, FANOUT) + 1e-9)
        by_size.setdefault(size, []).append(part)
    for _, alike in sorted(by_size.items()):
        if len(alike) >= FANOUT:
            return alike[:FANOUT]
    return []
