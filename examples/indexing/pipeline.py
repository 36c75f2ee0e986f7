"""The steps of the pipeline, each as one call: write a corpus, run the jobs, read the result.

Each can be interrupted at any moment and run again: nothing is written or indexed twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import bucketq
from bucketq.errors import BucketQError
from bucketq.worker.counters import WorkerCounters
from examples.indexing import corpus, manifest
from examples.indexing.location import open_location
from examples.indexing.wal import Document
from examples.indexing.writer import Writer, push_missing

SEGMENT_DOCUMENTS = 100
_RETRY_S = 0.5
_MOST_IDLE_ROUNDS = 3


class Stopped(Exception):  # noqa: N818 - it is not an error
    """Ctrl-C was pressed while handlers ran; they have finished."""


@dataclass
class Written:
    """What was written."""

    documents: Counter[str] = field(default_factory=Counter)
    """By namespace."""
    segments: int = 0
    jobs: set[str] = field(default_factory=set)
    """Their ids."""


async def write_corpus(
    url: str,
    namespaces: Iterable[str],
    limit: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Written:
    """Write documents that are not there yet, in segments, and push jobs for all.

    ``progress`` is called now and then with a text.
    """
    done = Written()
    async with open_location(url) as location, bucketq.connect(url, launch="never") as queue:
        for namespace in namespaces:
            writer = Writer(location, queue, namespace)
            done.jobs.update(await push_missing(location, queue, namespace))
            known = await writer.ids()
            new = (each for each in corpus.documents(namespace, limit) if each.id not in known)
            for batch in _batches(new):
                done.jobs.update(await writer.write(batch))
                done.documents[namespace] += len(batch)
                done.segments += 1
                progress(f"{done.documents[namespace]:,} documents of {namespace}")
    return done


def run_jobs(url: str, run: Callable[[], WorkerCounters]) -> Counter[str]:
    """Index the whole log; ``run`` runs jobs until none is due.

    Returns how attempts ended. Raises ``Stopped``.
    """
    ends: Counter[str] = Counter()
    idle_rounds = 0
    while missing := asyncio.run(_push_all_missing(url)):
        tally = run()
        ends.update({str(end): count for end, count in tally.ends.items()})
        if tally.left is None:
            raise Stopped
        if dead := tally.left.total("dead"):
            message = (
                f"{dead} jobs are dead: see why with `bucketq dead {url}`, and let them run again "
                f"with `bucketq redrive {url}`"
            )
            raise BucketQError(message)
        # Otherwise other workers have the jobs, or the jobs wait for their next attempt.
        has_jobs = tally.left.total("queued") + tally.left.total("running")
        idle_rounds = 0 if tally.ends or has_jobs else idle_rounds + 1
        if idle_rounds == _MOST_IDLE_ROUNDS:
            message = (
                f"{missing} jobs cannot be claimed, though their segments are not indexed: were "
                "they cancelled? the queue accepts them again when it has forgotten their keys, "
                "after an hour (key_retention_s)"
            )
            raise BucketQError(message)
        if not tally.ends:
            asyncio.run(_wait_for_others(url))
    return ends


async def _wait_for_others(url: str) -> None:
    """Wait until jobs that cannot be claimed now may be.

    The queue stays open while it waits: without a broker, the lease of a killed worker ends only if
    a process watches it.
    """
    async with bucketq.connect(url) as queue:
        before = (await queue.stats()).total("running")
        while True:
            await asyncio.sleep(_RETRY_S)
            running = (await queue.stats()).total("running")
            if not running or running < before:
                return


async def _push_all_missing(url: str) -> int:
    """Push jobs for everything that is not indexed or merged, and return how many."""
    count = 0
    async with open_location(url) as location, bucketq.connect(url, launch="never") as queue:
        for namespace in await location.namespaces():
            count += len(await push_missing(location, queue, namespace))
    return count


async def indexed(url: str) -> dict[str, manifest.Manifest]:
    """The manifests of all namespaces."""
    async with open_location(url) as location:
        return {each: await manifest.load(location, each) for each in await location.namespaces()}


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == SEGMENT_DOCUMENTS:
            yield batch
            batch = []
    if batch:
        yield batch
