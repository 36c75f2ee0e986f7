"""Faults that pass: retried with growing waits, and logged once for as long as they last."""

from __future__ import annotations

import asyncio
from logging import Logger

from bucketq.clock import Clock
from bucketq.store.backoff import RetryBackoff

_FIRST_RETRY_S = 0.5
_LAST_RETRY_S = 3.0
"""No longer: a standby that sleeps does not notice that the leader is gone."""


_LONGEST_REFUSAL_S = 5.0
"""How long claims wait on while the store refuses: credentials that are renewed, or rights that are
still on their way to every server, end no worker."""


class PassingFault:
    """One thing that may go wrong over and over, and is tried again until it works."""

    def __init__(self, clock: Clock, log: Logger, what: str) -> None:
        """Begin without a fault; ``what`` begins its lines in the log."""
        self._clock = clock
        self._log = log
        self._what = what
        self._backoff: RetryBackoff | None = None
        self._since_s = 0.0

    async def wait(self, error: Exception) -> None:
        """Log the fault if it is new, and wait before the next try."""
        await asyncio.sleep(self.strike(error))

    def strike(self, error: Exception) -> float:
        """Log the fault if it is new; return how long to wait before the next try."""
        if self._backoff is None:
            self._backoff = RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
            self._since_s = asyncio.get_running_loop().time()
            self._log.warning("%s, retrying until it passes: %s", self._what, error)
        return self._backoff.next_s()

    @property
    def lasts_s(self) -> float:
        """For how long it has lasted; 0 if there is none."""
        if self._backoff is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._since_s

    def passed(self) -> None:
        """Note that it works; the next fault is a new one."""
        if self._backoff is not None:
            self._backoff = None
            self._log.info("%s: this has passed", self._what)


class Refusals:
    """A store that refuses to be read, or to be written: when to ask it again."""

    def __init__(self, clock: Clock, log: Logger, where: str) -> None:
        """Begin without a refusal; ``where`` is what messages call the object."""
        self._unreadable = PassingFault(clock, log, f"{where}: cannot be read")
        self._unwritable = PassingFault(clock, log, f"{where}: cannot be written")
        self.rests_until_s = 0.0
        """Until when the store is left alone, unless there are requests; by the loop's time."""

    def refuse_look(self, error: Exception) -> bool:
        """Note that a look was refused; returns whether that has lasted for too long to wait on."""
        self._rest(self._unreadable.strike(error))
        return self._unreadable.lasts_s >= _LONGEST_REFUSAL_S

    def allow_look(self) -> None:
        """Note that a look was answered."""
        self._unreadable.passed()

    def refuse_write(self, error: Exception) -> None:
        """Note that a write was refused."""
        self._rest(self._unwritable.strike(error))

    def allow_write(self) -> None:
        """Note that a write was not refused."""
        self._unwritable.passed()

    def _rest(self, pause_s: float) -> None:
        self.rests_until_s = asyncio.get_running_loop().time() + pause_s
