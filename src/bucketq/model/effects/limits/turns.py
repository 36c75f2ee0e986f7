"""Which jobs a claim gets in a queue with groups or limits.

The more urgent priority goes first. Within a priority, groups take turns in the order of their
names: the next one after the group that was served last, and after the last one the first again.
Within a group the job that was pushed first goes first. All jobs without a group are one group.

The group that was served last is kept in the object, for each set of kinds that claims name and
each priority: were it kept for all of them together, two workers for different kinds that alternate
could each always find the same group to be next, and another would never have a turn.

What a limit holds up is not looked at: a kind is left out, and a group leaves the lists
(``GroupTurns``) until it has room again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from heapq import heappop, heappush

from bucketq.model.effects.limits.limit_room import LimitRoom
from bucketq.model.indexes.cold_rows import ColdRowsNeededError, SegmentPart
from bucketq.model.indexes.lane import lane_of
from bucketq.model.limits import FEATURE, GROUPS
from bucketq.model.records import JobRecord
from bucketq.model.state import State

MOST_TURNS = 64
"""For how many sets of kinds and priorities the group is kept that was served last. Every commit
writes them. Beyond this the one that was not used for longest is forgotten, and begins anew."""
_GROUPS_AHEAD = 64
"""For how many groups the next jobs are asked for at once, if they have to be read: one request to
a store after the other would take seconds."""


def has_turns(state: State) -> bool:
    """Whether groups take turns in a queue, or limits hold; it is cheap."""
    return bool(state.requires) and (GROUPS in state.requires or FEATURE in state.requires)


class Turns:
    """The jobs that one claim may have, one after the other."""

    __slots__ = (
        "_groups",
        "_hidden",
        "_kinds",
        "_lane",
        "_line",
        "_name",
        "_now",
        "_priority",
        "_room",
        "_served",
        "_state",
        "_turn",
        "_waiting",
        "_was_taken",
    )

    def __init__(self, state: State, chosen: Iterable[str], now: datetime) -> None:
        """Begin with the kinds of a claim; none: all kinds."""
        self._state = state
        self._waiting = state.waiting
        self._groups = state.waiting.turns
        self._now = now
        self._room = LimitRoom(state, now)
        self._name = _digest(tuple(chosen))
        names, paused = chosen or state.kinds_waiting(), state.paused_kinds
        self._kinds = {kind: self._room.of_kind(kind) for kind in names if kind not in paused}
        """The kinds of which jobs may start, and how many."""
        self._priority = 0
        self._line: list[tuple[int, str, str]] = []
        """For each kind its next group, a heap: round, group, kind."""
        self._served: dict[int, str] = {}
        """The group that was served last, by priority."""
        self._hidden: list[str] = []
        self._turn: tuple[int, str, list[str]] | None = None
        """The round, group and kinds of the job that ``next`` has returned."""
        self._lane = ""
        """The lane of that job."""
        self._was_taken = False
        """Whether that job was taken, so that the group has had its turn."""

    def next(self) -> JobRecord | None:
        """Return the job whose turn it is, or None. It stays in its lane.

        Raises:
            ColdRowsNeededError: It has not been read.
        """
        if self._turn is not None:
            if not self._was_taken and (again := self._find(*self._turn[1:])) is not None:
                return again
            self._line_up(*self._turn)
            self._turn = None
        while self._line or self._begin():
            lap, group, kinds = self._next_group()
            has_room = self._room.of_group(group).left > 0
            if has_room and (job := self._find(group, kinds)) is not None:
                self._turn, self._was_taken = (lap, group, kinds), False
                return job
            if not has_room:
                self._hide(group)
            self._line_up(lap, group, kinds)
        return None

    def take(self, job: JobRecord) -> None:
        """Take the job that ``next`` has just returned out of its lane; its group had its turn."""
        self._waiting.lanes[self._lane].pop(job)
        self._room.take(job)
        self._served[self._priority] = job.group
        self._was_taken = True

    def drop(self, job: JobRecord) -> None:
        """Take out a job that was taken before: one that was moved may stand there twice."""
        self._waiting.lanes[self._lane].pop(job)

    def commit(self) -> None:
        """Note whose turns there were, and what was taken of the limits."""
        self._room.spend()
        if GROUPS not in self._state.requires:
            return
        served = self._groups.last_served
        before, is_changed = list(served), False
        for priority, group in self._served.items():
            key = (self._name, priority)
            is_changed |= served.pop(key, None) != group
            served[key] = group
        while len(served) > MOST_TURNS:
            del served[next(iter(served))]
        if is_changed or list(served) != before:
            self._state.touch_head()

    def undo(self) -> None:
        """Show groups again that had no room only because of what was taken here."""
        self._groups.show(self._hidden)

    def _begin(self) -> bool:
        """Go on with the next priority; return False if there is none."""
        kinds: list[str] = []
        for kind in list(self._kinds):
            if not self._has_room(kind) or (urgent := self._most_urgent(kind)) is None:
                continue
            if not kinds or urgent < self._priority:
                self._priority, kinds = urgent, []
            if urgent == self._priority:
                kinds.append(kind)
        last = self._groups.last_served.get((self._name, self._priority))
        for kind in kinds:
            place = self._first(0, kind) if last is None else self._after(0, last, kind)
            if place is not None:
                heappush(self._line, place)
        return bool(kinds)

    def _most_urgent(self, kind: str) -> int | None:
        """The most urgent priority of a kind that may have jobs; None: there are none."""
        plain = self._waiting.first_of(kind, self._now)
        listed = self._groups.lowest(kind)
        if plain is None or (listed is not None and listed < plain[0][0]):
            return listed
        return plain[0][0]

    def _next_group(self) -> tuple[int, str, list[str]]:
        """Take the group out of the line that is next, with all kinds for which it is."""
        lap, group, kind = heappop(self._line)
        kinds = [kind]
        while self._line and self._line[0][:2] == (lap, group):
            kinds.append(heappop(self._line)[2])
        return lap, group, kinds

    def _line_up(self, lap: int, group: str, kinds: Sequence[str]) -> None:
        """Let the groups after one that had its turn be next."""
        for kind in kinds:
            if kind in self._kinds and (following := self._after(lap, group, kind)) is not None:
                heappush(self._line, following)

    def _after(self, lap: int, group: str, kind: str) -> tuple[int, str, str] | None:
        following = self._groups.after(kind, self._priority, group)
        return self._first(lap + 1, kind) if following is None else (lap, following, kind)

    def _first(self, lap: int, kind: str) -> tuple[int, str, str] | None:
        """The first group of a round: that of jobs without a group, if there are some."""
        plain = self._waiting.first_of(kind, self._now)
        if plain is not None and plain[0][0] == self._priority:
            return (lap, "", kind)
        first = self._groups.after(kind, self._priority, "")
        return None if first is None else (lap, first, kind)

    def _find(self, group: str, kinds: Sequence[str]) -> JobRecord | None:
        """Return the next job of a group, or None if it has none of this priority."""
        first_of, priority = self._waiting.first_of, self._priority
        while True:
            best = None
            for kind in kinds:
                if not self._has_room(kind):
                    continue
                first = first_of(lane_of(kind, group), self._now)
                if first is not None and first[0][0] == priority:
                    best = first if best is None else min(best, first, key=_order)
                elif group:
                    self._groups.move(kind, group, None if first is None else first[0][0])
            if best is None:
                return None
            _, self._lane, job = best
            if job is not None:
                return job
            self._decode(self._lane)

    def _decode(self, lane: str) -> None:
        """Decode the next job of a lane. Raises ``ColdRowsNeededError``, for those after it too."""
        try:
            self._waiting.head_of(lane, self._now)
        except ColdRowsNeededError as needed:
            parts = dict.fromkeys(needed.parts)
            for other in self._lanes_ahead():
                parts |= dict.fromkeys(self._parts_of(other))
            raise ColdRowsNeededError(list(parts)) from None

    def _lanes_ahead(self) -> list[str]:
        """The lanes of groups whose turns come soon."""
        lanes = list[str]()
        for lap, group, kind in sorted(self._line)[:_GROUPS_AHEAD]:
            place: tuple[int, str, str] | None = (lap, group, kind)
            for _ in range(max(1, _GROUPS_AHEAD // len(self._line))):
                if place is None:
                    break
                lanes.append(lane_of(kind, place[1]))
                place = self._after(place[0], place[1], kind)
        return lanes

    def _parts_of(self, lane: str) -> list[SegmentPart]:
        try:
            self._waiting.head_of(lane, self._now)
        except ColdRowsNeededError as needed:
            return needed.parts
        return []

    def _has_room(self, kind: str) -> bool:
        """Whether jobs of a kind may start; otherwise it is left out from now on."""
        room = self._kinds.get(kind)
        if room is None or room.left > 0:
            return room is not None
        del self._kinds[kind]
        when = self._room.next_token(room)
        if when is not None:
            self._groups.wake_at(when, f"\n{kind}")  # No group has this name.
        return False

    def _hide(self, group: str) -> None:
        when = self._room.next_token(self._room.of_group(group))
        self._groups.hide(group, when)
        self._hidden.append(group)


def _order(first: tuple[tuple[int, int], str, JobRecord | None]) -> tuple[int, int]:
    return first[0]


@lru_cache(maxsize=1024)
def _digest(kinds: tuple[str, ...]) -> str:
    """A short name for the kinds that a claim names; empty: it names none."""
    names = sorted(set(kinds))
    if not names:
        return ""
    return blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
