"""Checks the history of a queue: that every version of it, and every copy, can be read.

Everything is read, one object at a time, and nothing is written. A queue in use merges and forgets
parts of its history meanwhile, so if something is missing, all of it is looked at again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from bucketq.admin.queue_object import QueueObject
from bucketq.codec.decode import decode
from bucketq.codec.history_file import ChangesName, decode_changes
from bucketq.commit.objects.history_folder import HistoryFolder
from bucketq.errors import CorruptStateError
from bucketq.model.state import State
from bucketq.store.base import ObjectMissingError

_TRIES = 3
"""How often the history is looked at: a merge takes two steps, and a check may meet either."""

A = TypeVar("A")


@dataclass
class HistoryCheck:
    """What was found in the history of one version of a queue."""

    since: int
    """The first version that the queue remembers."""
    version: int
    copies: int
    objects: int = 0
    """How many objects were read."""
    size_bytes: int = 0
    problems: list[str] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """The segments and vectors that copies name."""


async def check_history(target: QueueObject) -> HistoryCheck | None:
    """Read the whole history of a queue; None: it is off.

    Raises:
        QueueNotFoundError: There is no queue.
        CorruptStateError: The queue object itself is damaged.
        UnavailableError: The storage did not answer in time.
    """
    for tries_left in reversed(range(_TRIES)):
        state = decode((await target.read()).body, target.url).state
        if not state.history.since:
            return None
        found = await _look(target, state)
        if not found.problems or not tries_left:
            break
    return found


async def _look(target: QueueObject, state: State) -> HistoryCheck:
    history, folder = state.history, target.history_of(state.incarnation)
    found = HistoryCheck(history.since, state.version, len(history.copies))
    for copy in history.copies:
        what = f"the copy of version {copy.seq:,}"
        read = await _read(target, found, what, partial(folder.read_copy, copy))
        if read is not None:
            found.named |= read.names
    listed = await target.until_answered(folder.list, f"the history of {target.url}")
    found.size_bytes = listed.size_bytes
    # Rows that are not in the queue object any more are in history objects.
    wanted, last = history.since, next((row.seq - 1 for row in history.changes), state.version)
    for name, _ in listed.changes:
        what = f"{folder.address}{name}"
        if await _read(target, found, what, partial(_decoded, folder, name)) is None:
            continue
        if wanted < name.first <= last:
            found.problems.append(_describe_gap(wanted, name.first - 1))
        wanted = max(wanted, name.last + 1)
    if wanted <= last:
        found.problems.append(_describe_gap(wanted, last))
    return found


async def _decoded(folder: HistoryFolder, name: ChangesName) -> int:
    lines = await folder.read_changes(name)
    return len(decode_changes(lines, f"{folder.address}{name}"))


async def _read(
    target: QueueObject, found: HistoryCheck, what: str, read: Callable[[], Awaitable[A]]
) -> A | None:
    """Read an object; if that is impossible, say so and return None."""
    try:
        answer = await target.until_answered(read, what)
    except ObjectMissingError:
        found.problems.append(f"{what} is missing")
    except CorruptStateError as error:
        found.problems.append(f"{what} is damaged: {error}")
    else:
        found.objects += 1
        return answer
    return None


def _describe_gap(first: int, last: int) -> str:
    versions = f"version {first:,}" if first == last else f"versions {first:,} to {last:,}"
    return f"no object has the changes of {versions}"
