"""How fast to write, and how long to wait before trying again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_SLOWEST_S = 10.0
_FIRST_STEP_S = 0.1
_BUSY_S = 2.0
ALONE_S = 8.0
"""How long group commit writes without a pause while no other process does. A pause of 0.1 to 0.4 s
costs 1 to 5 % of the throughput then; another writer waits for the first one for that long."""
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 0.4
_PAUSE_WRITES = 5
_CROWD_S = 10.0
"""How long after a write of another that other is expected to go on writing."""
_TURN_WRITES = 3
_SHORTEST_TURN_S = 0.1
_CROWD = 8
"""Fewer than these are no crowd worth waiting for."""
_FIRST_SHARE = 0.2
_SMALLER_SHARE = 0.4
_LARGEST_SHARE = 1.0
_FEW = 0.1
_STEPS = 8


class Pacer:
    """Keeps writes of one object as far apart as its store wants them.

    Some stores allow one write a second to one object. Others say so only by throttling;
    then the pause is doubled, and shrinks again with every write that goes well.
    """

    def __init__(self, interval_s: float) -> None:
        """Leave at least ``interval_s`` between the beginnings of two writes."""
        self._floor_s = interval_s
        self._interval_s = interval_s
        self._next_at = 0.0

    async def turn(self) -> None:
        """Wait until the next write may begin."""
        loop = asyncio.get_running_loop()
        pause_s = self._next_at - loop.time()
        self._next_at = max(self._next_at, loop.time()) + self._interval_s
        if pause_s > 0:
            await asyncio.sleep(pause_s)

    def went_well(self) -> None:
        """Note a write that the store took."""
        self._interval_s = max(self._floor_s, 0.9 * self._interval_s)
        if self._interval_s < _FIRST_STEP_S:
            self._interval_s = self._floor_s

    def was_throttled(self) -> None:
        """Note that the store asked for a slower pace."""
        self._interval_s = min(max(2 * self._interval_s, _FIRST_STEP_S), _SLOWEST_S)


class FairnessPause:
    """Leaves room for others between the writes of one who writes all the time.

    A process that has just written knows the object, and needs no time to read it before the next
    write; all others do, and come too late every time. So who has written for a while
    without a pause makes one, long enough for another to read, change and write.

    A process whose pauses no other uses may make fewer of them: the time without one grows
    up to ``alone_s``, and is short again as soon as another has written. Peers that are all busy
    take turns: after another has written, each makes a pause after a few writes.
    """

    def __init__(self, alone_s: float = _BUSY_S, *, takes_turns: bool = False) -> None:
        """Begin without having written."""
        self._alone_s = alone_s
        self._takes_turns = takes_turns
        self._crowd_until_s = float("-inf")
        self._busy_s = _BUSY_S
        self._has_paused = False
        self._busy_since_s = 0.0
        self._ended_s = float("-inf")
        self._last_s = 0.0

    async def turn(self) -> None:
        """Make a pause, if it is time for one."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._ended_s > _PAUSE_S:
            self._busy_since_s = loop.time()
        elif loop.time() - self._busy_since_s > self._limit_s(loop.time()):
            self._has_paused = True
            await asyncio.sleep(min(max(_PAUSE_S, _PAUSE_WRITES * self._last_s), _LONGEST_PAUSE_S))
            self._busy_since_s = loop.time()

    def _limit_s(self, now_s: float) -> float:
        """How long to write without a pause."""
        if self._takes_turns and now_s < self._crowd_until_s:
            return max(_SHORTEST_TURN_S, _TURN_WRITES * self._last_s)
        return self._busy_s

    def wrote(self, began_s: float, *, was_first: bool) -> None:
        """Note a write that has just ended; where another was faster, others have room."""
        self._ended_s = asyncio.get_running_loop().time()
        self._last_s = self._ended_s - began_s
        if not was_first:
            self._busy_since_s = self._ended_s
            self._busy_s = _BUSY_S
            self._crowd_until_s = self._ended_s + _CROWD_S
        elif self._has_paused:
            self._busy_s = min(2 * self._busy_s, self._alone_s)
        self._has_paused = False


class BatchDelay:
    """Waits a moment for those who were just answered, so that one write takes all of them.

    When a write answers many callers at once, most of them come back with their next request,
    but not at the same moment. A write that begins with the first leaves the others to the one
    after it, and every caller waits for two. So after a write that answered a crowd, the next one
    is held up for a part of what the last one took, and longer while they keep coming. Where
    others came during the write, it is not held up for long: they have waited already.
    """

    def __init__(self) -> None:
        """Begin without having written."""
        self.last_s = 0.0
        """How long the last write took."""
        self._crowd = 0
        self._all = 0

    def wrote(self, duration_s: float, answered: int, waiting: int = 0) -> None:
        """Note a write, how many it answered, and how many had come while it lasted."""
        self.last_s = duration_s
        self._crowd = answered
        # Those who came meanwhile are no substitute for those who come back: two halves of a
        # crowd that take turns would stay apart for ever, and every caller wait for two writes.
        self._all = answered + waiting

    async def wait(self, count: Callable[[], int]) -> None:
        """Wait for the crowd; ``count`` returns how many have come."""
        crowd, self._crowd = self._crowd, 0
        if crowd < _CROWD:
            return
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        nobody_waits = self._all - crowd <= _FEW * crowd
        patience_s = _FIRST_SHARE * self.last_s
        most_s = (_LARGEST_SHARE if nobody_waits else _SMALLER_SHARE) * self.last_s
        until_s, before = began_s + patience_s, count()
        while before < self._all and loop.time() < until_s:
            await asyncio.sleep(patience_s / _STEPS)
            now = count()
            if now > before:
                before = now
                until_s = min(loop.time() + patience_s, began_s + most_s)
