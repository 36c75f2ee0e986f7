"""How long to wait before a write: for the store, for other writers, and for a larger batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bucketq.clock import Clock

_FIRST_STEP_S = 0.1
_SLOWEST_S = 10.0
"""The first and the longest pause after a store has throttled: it doubles in between. Below the
first one there is nothing to throttle, and after ten seconds callers give up."""
_BUSY_S = 2.0
"""How long a process writes without a pause, if it does not know whether others want to write."""
ALONE_S = 8.0
"""How long group commit writes without a pause while no other process writes. A pause of 0.1 to
0.4 s then costs 1 to 5 % of the throughput; another writer waits that long for the first pause."""
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 0.4
_PAUSE_WRITES = 5
"""A pause lasts for five writes, within these bounds: enough for another process to read, change
and write the object, even if its connection is slower than ours."""
_CROWD_S = 10.0
"""How long after a write of another process more of its writes are expected."""
_TIE_PART = 0.1
"""How much of a write a process that has lost a race waits at most: enough to come before or behind
another that has lost it too, and too little to lose its turn."""
_TURN_WRITES = 3
_SHORTEST_TURN_S = 0.1
"""How many writes a process makes in its turn, while others write too, and for how long at least:
a pause costs more than a few writes of a fast store."""
_CROWD = 8
"""How many callers are worth waiting for; fewer gain less than the delay costs."""
_FIRST_SHARE = 0.2
_SMALLER_SHARE = 0.4
_LARGEST_SHARE = 1.0
"""For what part of the last write to wait: for the first caller; in all, if other requests are
pending; in all, if none are."""
_FEW = 0.1
"""Pending requests that are a smaller part of the crowd do not shorten the wait."""
_LONG_FIRST_WRITES, _LONG_FIRST_S = 2.5, 0.004
_LONG_WRITES, _LONG_S = 6.0, 0.01
"""How long a long wait is, for the first caller and in all: so many writes, and at most so many
seconds, so that it is no longer than others if a store takes 25 ms for a write. Callers in four
processes on two cores take 2 to 3 ms to read their answers and to send again."""
_MISSES = 2
"""After so many long waits in which the crowd has not come, waits are short."""
_LONG_AGAIN = 50
"""After so many short waits a long one is tried: in a queue whose callers do not come back at once,
a few in a hundred requests then take up to 10 ms longer."""


class Pacer:
    """Keeps writes of one object as far apart as its store requires.

    Some stores allow one write a second to one object. Others report a limit only by throttling;
    then the pause doubles, and shrinks again with every write that succeeds.
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
        """Note a write that succeeded."""
        self._interval_s = max(self._floor_s, 0.9 * self._interval_s)
        if self._interval_s < _FIRST_STEP_S:
            self._interval_s = self._floor_s

    def was_throttled(self) -> None:
        """Note that the store throttled a write."""
        self._interval_s = min(max(2 * self._interval_s, _FIRST_STEP_S), _SLOWEST_S)


class FairnessPause:
    """Pauses between writes, so that one busy process does not starve the others.

    A process that has just written knows the object, and does not have to read it before the next
    write; all others do, and lose every race. So a process that has written for a while without a
    pause makes one, long enough for another to read, change and write.

    If no other process uses its pauses, it makes fewer: the time between them grows up to
    ``alone_s``, and is short again as soon as another process has written. Peers that are all busy
    take turns: after another has written, each pauses after a few writes. Two that have lost the
    same race would lose the next ones in step, the same one always to the other, so each waits for
    a moment of its own first.
    """

    def __init__(
        self, clock: Clock, alone_s: float = _BUSY_S, *, takes_turns: bool = False
    ) -> None:
        self._clock = clock
        self._alone_s = alone_s
        self._takes_turns = takes_turns
        self._crowd_until_s = float("-inf")
        self._busy_s = _BUSY_S
        self._has_paused = False
        self._has_lost = False
        self._busy_since_s = 0.0
        self._ended_s = float("-inf")
        self._last_s = 0.0

    async def turn(self) -> None:
        """Pause, if it is time to."""
        loop = asyncio.get_running_loop()
        if self._has_lost:
            self._has_lost = False
            share = self._clock.entropy(1)[0] / 256
            await asyncio.sleep(share * _TIE_PART * self._last_s)
        if loop.time() - self._ended_s > _PAUSE_S:
            self._busy_since_s = loop.time()
        elif loop.time() - self._busy_since_s > self._limit_s(loop.time()):
            self._has_paused = True
            await asyncio.sleep(min(max(_PAUSE_S, _PAUSE_WRITES * self._last_s), _LONGEST_PAUSE_S))
            self._busy_since_s = loop.time()

    def _limit_s(self, now_s: float) -> float:
        """Return how long to write without a pause."""
        if self._takes_turns and now_s < self._crowd_until_s:
            return max(_SHORTEST_TURN_S, _TURN_WRITES * self._last_s)
        return self._busy_s

    def wrote(self, began_s: float, *, was_first: bool) -> None:
        """Note a write that has just ended; if it lost a race, others have their turn already."""
        self._ended_s = asyncio.get_running_loop().time()
        self._last_s = self._ended_s - began_s
        self._has_lost = not was_first
        if not was_first:
            self._busy_since_s = self._ended_s
            self._busy_s = _BUSY_S
            self._crowd_until_s = self._ended_s + _CROWD_S
        elif self._has_paused:
            self._busy_s = min(2 * self._busy_s, self._alone_s)
        self._has_paused = False


class BatchDelay:
    """Delays a write for a moment, until the callers that were just answered have sent more.

    When a write answers many callers at once, most of them send their next request soon, but not at
    the same moment. A write that begins with the first leaves the others to the one after it, and
    every caller waits for two writes. So after a write that answered a crowd, the next one is
    delayed for a part of the time that the last one took, and longer while requests keep coming. If
    other requests came during the write, the delay is short: they have waited already.

    Where a write is quick, a commit takes much more CPU than a request in it, and callers of
    several processes take longer than a write to come back. So the wait is longer than a write, as
    long as the crowd comes in it.
    """

    def __init__(self) -> None:
        self.last_s = 0.0
        """How long the last write took."""
        self._crowd = 0
        self._all = 0
        self._misses = _MISSES
        """In how many long waits, one after the other, the crowd has not come."""
        self._until_long = _LONG_AGAIN
        """After how many short waits the next long one is; 0: it is long."""

    def wrote(self, duration_s: float, answered: int, waiting: int = 0) -> None:
        """Note a write, how many it answered, and how many had come while it lasted."""
        self.last_s = duration_s
        self._crowd = answered
        # Both count: if half of a crowd were enough, the two halves would alternate for ever, and
        # every caller would wait for two writes.
        self._all = answered + waiting

    async def wait(self, count: Callable[[], int], news: asyncio.Event) -> None:
        """Wait for the crowd.

        ``count`` returns how many requests have come, and ``news`` is set when one comes.
        """
        crowd, self._crowd = self._crowd, 0
        if crowd < _CROWD:
            return
        is_idle = self._all - crowd <= _FEW * crowd
        patience_s = _FIRST_SHARE * self.last_s
        most_s = (_LARGEST_SHARE if is_idle else _SMALLER_SHARE) * self.last_s
        if is_long := self._until_long == 0:
            patience_s = max(patience_s, min(_LONG_FIRST_WRITES * self.last_s, _LONG_FIRST_S))
            most_s = max(most_s, min(_LONG_WRITES * self.last_s, _LONG_S))
        came = await self._until_here(count, news, patience_s, most_s)
        self._judge(is_long=is_long, has_come=self._all - came <= _FEW * self._all)

    async def _until_here(
        self, count: Callable[[], int], news: asyncio.Event, patience_s: float, most_s: float
    ) -> int:
        """Wait until the crowd is here, or no more of it come; return how many are here."""
        loop, is_over = asyncio.get_running_loop(), False

        def end() -> None:
            nonlocal is_over
            is_over = True
            news.set()

        came, until_s = count(), loop.time() + most_s
        timer = loop.call_later(patience_s, end)
        while came < self._all and not is_over:
            news.clear()
            await news.wait()
            if (now := count()) > came:
                came = now
                timer.cancel()
                timer = loop.call_at(min(loop.time() + patience_s, until_s), end)
        timer.cancel()
        return came

    def _judge(self, *, is_long: bool, has_come: bool) -> None:
        """Note whether the crowd has come in a wait, to decide how long the next ones are."""
        if not is_long:
            self._until_long -= 1
        elif has_come:
            self._misses = 0
        else:
            self._misses += 1
            if self._misses >= _MISSES:
                self._until_long = _LONG_AGAIN
