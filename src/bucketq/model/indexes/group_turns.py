"""``GroupTurns``: the groups that have waiting jobs, in the order in which they take turns.

For each kind and priority there is a sorted list of groups, so the group after the one that was
served last is found without looking at the others. A group stands in the list of the priority of
its next job. It may stand in a list of a more urgent one, if that job has left since: the claim
that looks at it moves it then. Jobs without a group are in no list.

A group that has reached its limit is taken out of all lists, and comes back when one of its jobs
has ended, or when its token bucket has a token. So jobs that may not start are never looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from datetime import datetime
from heapq import heappop, heappush

_CHUNK = 512
"""How many names a list of a ``SortedNames`` has at most, twice: to insert one moves 8 KB."""


class SortedNames:
    """Names in their order, of which there may be hundreds of thousands."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self) -> None:
        """Begin without names."""
        self._chunks: list[list[str]] = []
        self._firsts: list[str] = []
        """The first name of each chunk."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, name: str) -> None:
        """Add a name that is not there."""
        if not self._chunks:
            self._chunks.append([name])
            self._firsts.append(name)
            return
        place = max(0, bisect_right(self._firsts, name) - 1)
        chunk = self._chunks[place]
        insort(chunk, name)
        self._firsts[place] = chunk[0]
        if len(chunk) > 2 * _CHUNK:
            self._chunks.insert(place + 1, chunk[_CHUNK:])
            self._firsts.insert(place + 1, chunk[_CHUNK])
            del chunk[_CHUNK:]

    def remove(self, name: str) -> None:
        """Remove a name that is there."""
        place = bisect_right(self._firsts, name) - 1
        chunk = self._chunks[place]
        del chunk[bisect_left(chunk, name)]
        if chunk:
            self._firsts[place] = chunk[0]
        else:
            del self._chunks[place], self._firsts[place]

    def first(self) -> str:
        """The first name; there is one."""
        return self._firsts[0]

    def after(self, name: str) -> str | None:
        """The first name behind another, which may be there or not; None: there is none."""
        place = bisect_right(self._firsts, name) - 1
        if place >= 0:
            chunk = self._chunks[place]
            at = bisect_right(chunk, name)
            if at < len(chunk):
                return chunk[at]
        return self._firsts[place + 1] if place + 1 < len(self._firsts) else None


class _KindLists:
    """The lists of one kind, by priority."""

    __slots__ = ("names", "priorities")

    def __init__(self) -> None:
        self.names: dict[int, SortedNames] = {}
        self.priorities: list[int] = []
        """The keys of ``names``, in order."""

    def add(self, group: str, priority: int) -> None:
        names = self.names.get(priority)
        if names is None:
            names = self.names[priority] = SortedNames()
            insort(self.priorities, priority)
        names.add(group)

    def remove(self, group: str, priority: int) -> None:
        names = self.names[priority]
        names.remove(group)
        if not names:
            del self.names[priority]
            self.priorities.remove(priority)


class GroupTurns:
    """The groups of one state that have waiting jobs."""

    def __init__(self) -> None:
        """Begin without groups."""
        self.last_served: dict[tuple[str, int], str] = {}
        """The groups that were served last, by kinds (a digest) and priority of their claims, as
        the object has them."""
        self._kinds: dict[str, _KindLists] = {}
        self._places: dict[str, dict[str, int]] = {}
        """For each group and kind, the priority under which it is listed, or will be again."""
        self._hidden: set[str] = set()
        """The groups that are in no list, because of a limit."""
        self._times: list[tuple[datetime, str]] = []
        """When what a rate holds up is to be looked at again: a heap of times and names."""
        self._noted: dict[str, datetime] = {}
        """The last time that was noted for each name."""

    def note(self, kind: str, group: str, priority: int) -> None:
        """Note that a group has a waiting job of a kind with a priority."""
        kinds = self._places.get(group)
        if kinds is None:
            kinds = self._places[group] = {}
        known = kinds.get(kind)
        if known is None or priority < known:
            self._set(kinds, kind, group, priority)

    def move(self, kind: str, group: str, priority: int | None) -> None:
        """Note the priority of the next job of a group; None: there is no job."""
        kinds = self._places.get(group, {})
        if kind not in kinds:
            return
        if priority is not None:
            self._set(kinds, kind, group, priority)
            return
        if group not in self._hidden:
            self._kinds[kind].remove(group, kinds[kind])
        del kinds[kind]
        if not kinds:
            del self._places[group]
            self._hidden.discard(group)

    def lowest(self, kind: str) -> int | None:
        """The most urgent priority under which groups of a kind are listed, or None."""
        lists = self._kinds.get(kind)
        return lists.priorities[0] if lists is not None and lists.priorities else None

    def after(self, kind: str, priority: int, group: str) -> str | None:
        """The group whose turn comes after that of another, in this round; None: there is none."""
        lists = self._kinds.get(kind)
        names = None if lists is None else lists.names.get(priority)
        return None if names is None else names.after(group)

    def hide(self, group: str, until: datetime | None) -> None:
        """Take a group that has reached its limit out of the lists, until a time if that is known.

        It comes back also when one of its jobs has ended.
        """
        if group not in self._hidden:
            self._hidden.add(group)
            for kind, priority in self._places[group].items():
                self._kinds[kind].remove(group, priority)
        if until is not None:
            self.wake_at(until, group)

    def wake_at(self, when: datetime, name: str) -> None:
        """Note when a group, or the limit of a kind, has a token again."""
        if self._noted.get(name) != when:
            self._noted[name] = when
            heappush(self._times, (when, name))

    def show(self, groups: Iterable[str]) -> None:
        """List groups again that may have room."""
        for group in groups:
            if group in self._hidden:
                self._hidden.remove(group)
                for kind, priority in self._places[group].items():
                    self._lists(kind).add(group, priority)

    def show_all(self) -> None:
        """List all groups again: the limits were changed."""
        self.show(list(self._hidden))
        self._times, self._noted = [], {}

    def show_freed(self, freed: set[str], now: datetime) -> None:
        """List groups again of which a job has ended, or whose token buckets have a token by now.

        ``freed`` is emptied.
        """
        self.show(freed)
        freed.clear()
        while self._times and self._times[0][0] <= now:
            when, name = heappop(self._times)
            if self._noted.get(name) == when:
                del self._noted[name]
            self.show((name,))

    def next_time(self) -> datetime | None:
        """When something may start that a rate holds up; None: nothing is known to wait for it."""
        return self._times[0][0] if self._times else None

    def _set(self, kinds: dict[str, int], kind: str, group: str, priority: int) -> None:
        known, kinds[kind] = kinds.get(kind), priority
        if group in self._hidden:
            return
        if known is not None:
            self._kinds[kind].remove(group, known)
        self._lists(kind).add(group, priority)

    def _lists(self, kind: str) -> _KindLists:
        lists = self._kinds.get(kind)
        if lists is None:
            lists = self._kinds[kind] = _KindLists()
        return lists
