"""``QueueHistory``: what a process knows of the objects of one queue's history.

Copies name segments, which must not be deleted while the queue keeps the copies. So a sweep of
segments asks here what else is named. A copy never changes, and is read once.
"""

from __future__ import annotations

from msgspec import Struct

from bucketq.clock import Clock
from bucketq.commit.objects.history_folder import HistoryFolder
from bucketq.commit.objects.segment_sweep import NamedSegments, named_by
from bucketq.errors import CorruptStateError
from bucketq.model.state import State
from bucketq.store.base import ObjectMissingError, ObjectStore


class HistoryPolicy(Struct, frozen=True, kw_only=True):
    """The times by which a process keeps a history; simulations set others."""

    pass_s: float = 1.0
    """The pause between two passes. A pass without work looks at the state, and no more."""
    copy_s: float = 3600.0
    """How far apart copies are, at least: a version is rebuilt from the copy before it."""
    most_copies: int = 100
    """How many copies a retention has: each has a row in the queue object."""
    patience_s: float = 10.0
    """How long changes may wait to be written, once they are too many: every commit writes them."""
    neighbours: int = 32
    """How many small objects are merged at once: so a row is written twice in all, or three times
    if the objects are very small."""
    first_sweep_s: float = 600.0
    sweep_s: float = 3600.0
    """When left-over objects are looked for, as for segments."""


DEFAULT_HISTORY_POLICY = HistoryPolicy()


class QueueHistory:
    """The history objects of one queue."""

    def __init__(self, store: ObjectStore, key: str, clock: Clock) -> None:
        """Use the folder of the queue object ``key``."""
        self.policy = DEFAULT_HISTORY_POLICY
        """When it is written and swept; set another before a committer uses it."""
        self._store = store
        self._key = key
        self._clock = clock
        self._names: dict[tuple[str, str], frozenset[str]] = {}
        """What each copy names, by incarnation and id."""

    def folder(self, incarnation: str) -> HistoryFolder:
        """Return the objects of an incarnation."""
        return HistoryFolder(self._store, self._key, incarnation, self._clock)

    async def named_by(self, state: State) -> NamedSegments:
        """Return what a version names, and what the copies name that it keeps.

        Raises:
            UnavailableError: A copy could not be read.
        """
        names = set(named_by(state).ids)
        known, self._names = self._names, {}
        for copy in state.history.copies:
            slot = (state.incarnation, copy.id)
            found = known.get(slot)
            if found is None:
                try:
                    found = frozenset((await self.folder(state.incarnation).read_copy(copy)).names)
                except (ObjectMissingError, CorruptStateError):
                    found = frozenset()  # It is lost, and what it named is of no use.
            self._names[slot] = found
            names |= found
        return named_by(state)._replace(ids=names)
