"""Deletes a queue: its object, its segments and, on request, its archive.

A store deletes whatever is there. So the object is first replaced, under its etag, by a tombstone:
from then on no process commits to the queue, and no job can be added in between. The tombstone says
what is to be deleted, and it is the last to go, so an interrupted deletion can be finished.

A process may be frozen in the middle for hours, while another finishes the deletion and creates a
queue at the same address. When it continues, it must not touch that queue:

* **Segments** lie in a folder of their incarnation, and only the folders of the incarnations in the
  tombstone are deleted. No queue has one of these incarnations ever again.
* **Archive files** and the Parquet files of a compacted archive have names that no other file gets:
  the digest of their content, and the version of the queue or the id of the run. What was listed
  while the tombstone stood is not written again. But the log of a compacted archive begins with
  version 0 in every queue. So the tombstone is read again right before every deletion, and an
  answer that took long does not count. ``create`` and ``restore`` finish the deletion of an archive
  before they replace a tombstone: a new queue never begins with half an archive.
* **The tombstone** itself is deleted in the same way.

One gap is left: a single request to delete the tombstone, or one version of the log, that was on
its way the whole time. Only a store with conditional deletes could refuse it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from bucketq.admin.payload_objects import delete_payloads
from bucketq.admin.queue_object import QueueObject
from bucketq.archive.archive_layout import Layout
from bucketq.codec.decode import decode
from bucketq.codec.tombstone import Tombstone, read_tombstone
from bucketq.errors import CorruptStateError, StoreRefusedError, UnavailableError
from bucketq.model.state import State
from bucketq.store.base import StoredObject

# With the backoff about half a minute; the command can be repeated at any later time.
_TRIES = 20
# Longer than a healthy store takes to answer, and shorter than a deletion by another process.
_FRESH_S = 2.0
_INCARNATION = re.compile(rb'"incarnation":\s*"(\w{1,64})"')
_VERSION = re.compile(rb'"version":\s*(\d{1,18})')
# These are among the first fields; payloads, which may quote them, come later.
_HEAD_BYTES = 64 * 1024

A = TypeVar("A")


@dataclass(frozen=True)
class Deleted:
    """What was deleted beside the object."""

    segments: int
    archive_files: int
    payloads: int = 0
    """Large payloads and results; those that the archive names are deleted with it."""


async def delete(target: QueueObject, seen: StoredObject, *, archive: bool = False) -> Deleted:
    """Delete a queue if its object is still the one that was seen.

    If that is a tombstone, the deletion was interrupted: it is finished, as it was begun.

    Raises:
        ChangedMeanwhileError: It was changed; nothing was deleted.
        StoreRefusedError: The store refuses a deletion; no process uses the queue any more.
        UnavailableError: The storage did not answer for too long; delete again.
    """
    body, stone = seen.body, read_tombstone(seen.body)
    was_deep = stone is not None
    if stone is None:
        stone, was_deep = _tombstone(target, seen.body, archive=archive)
    elif archive and not stone.archive:
        stone = replace(stone, archive=True, commit=target.new_commit())
    if body != stone.encode():
        body = stone.encode()
        await target.write(body, seen.etag)
    segments = payloads = 0
    try:
        for incarnation in stone.incarnations:
            segments += await _answered(target, target.segments_of(incarnation).clear)
            await _answered(target, target.history_of(incarnation).clear)
        payloads = await _delete_payloads(target, stone)
    except StoreRefusedError:
        if was_deep:  # A queue that never had segments may be without access to them.
            raise
    archive_files = await delete_archive(target, body)
    await _delete_tombstone(target, body)
    return Deleted(segments, archive_files, payloads)


async def _delete_payloads(target: QueueObject, stone: Tombstone) -> int:
    call = partial(delete_payloads, target, stone.incarnations, archive=stone.archive)
    return await _answered(target, call)


async def delete_archive(target: QueueObject, body: bytes) -> int:
    """Delete the archive if a tombstone says so, as long as it is there; return how many files.

    The log of a compacted archive is deleted from its first version on: without that, readers find
    no table.
    """
    stone = read_tombstone(body)
    if stone is None or not stone.archive:
        return 0
    layout = Layout.of(target.store.url, target.key)

    async def list_keys() -> list[str]:
        listed = target.store.list(layout.root)
        return [info.key async for info in listed if layout.owns(info.key)]

    async def delete_one(key: str) -> bool:
        is_ours = await _stands(target, body)
        if is_ours:
            await target.store.delete(key)
        return is_ours

    deleted = 0
    for key in await _answered(target, list_keys):
        if not await _answered(target, partial(delete_one, key)):
            break
        deleted += 1
    return deleted


def may_have_segments(state: State) -> bool:
    """Whether there may be objects in the folder of a state's incarnation."""
    return bool(state.requires) or state.settings.max_format > 1


def version_of(body: bytes) -> int:
    """The version of an object, even of a damaged one if it can be read; 0 if not."""
    written = _VERSION.search(body, 0, _HEAD_BYTES)
    return int(written[1]) if written else 0


def incarnation_of(body: bytes) -> str:
    """The incarnation of an object, even of a damaged one if it can be read; empty if not."""
    written = _INCARNATION.search(body, 0, _HEAD_BYTES)
    return written[1].decode() if written else ""


def _tombstone(target: QueueObject, body: bytes, *, archive: bool) -> tuple[Tombstone, bool]:
    """Return the tombstone of a queue, and whether the queue may need its segments."""
    stone = Tombstone(
        deleted_at=target.clock.now(),
        commit=target.new_commit(),
        version=version_of(body),
        archive=archive,
    )
    try:
        state = decode(body, target.url).state
    except CorruptStateError:
        return replace(stone, incarnation=incarnation_of(body)), False
    incarnation = state.incarnation if may_have_segments(state) else ""
    stone = replace(stone, incarnation=incarnation, former=tuple(state.former))
    return stone, bool(state.requires)


async def _stands(target: QueueObject, body: bytes) -> bool:
    """Whether the tombstone is still there.

    Raises:
        UnavailableError: The answer took long, perhaps because this process was frozen, and says
            nothing about now.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    found = await target.find()
    if found is None or found.body != body:
        return False
    if loop.time() - began_s > _FRESH_S:
        raise UnavailableError(f"no quick answer from {target.url}")
    return True


async def _delete_tombstone(target: QueueObject, body: bytes) -> None:
    async def delete_it() -> bool:
        if not await _stands(target, body):
            return True
        await target.store.delete(target.key)
        return False

    for _ in range(_TRIES):
        if await _answered(target, delete_it):
            return
    message = (
        f"{target.url} is still there after it was deleted; it accepts no more jobs, try again"
    )
    raise UnavailableError(message)


async def _answered(target: QueueObject, call: Callable[[], Awaitable[A]]) -> A:
    """Call until the storage answers, a limited number of times."""
    backoff = target.backoff()
    for _ in range(_TRIES):
        try:
            return await call()
        except UnavailableError as error:
            reason = error
        await backoff.wait()
    message = f"{target.url} could not be deleted; it accepts no more jobs, try again: {reason}"
    raise UnavailableError(message) from reason
