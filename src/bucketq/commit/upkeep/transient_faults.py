"""Transient faults: retried with growing pauses, and logged once for as long as they last."""

from __future__ import annotations

import asyncio
from logging import Logger

from bucketq.clock import Clock
from bucketq.errors import BucketQError
from bucketq.store.backoff import RetryBackoff

_FIRST_RETRY_S = 0.5
_LAST_RETRY_S = 3.0
"""No longer: a standby that sleeps does not notice that the leader is gone."""


class TransientFault:
    """One thing that may fail repeatedly, and is retried until it works."""

    def __init__(
        self, clock: Clock, log: Logger, what: str, last_retry_s: float = _LAST_RETRY_S
    ) -> None:
        """Begin without a fault; ``what`` begins its lines in the log."""
        self._clock = clock
        self._log = log
        self._what = what
        self._last_retry_s = last_retry_s
        self._backoff: RetryBackoff | None = None
        self._since_s = 0.0

    async def wait(self, error: Exception) -> None:
        """Log the fault if it is new, and wait before the next try."""
        await asyncio.sleep(self.strike(error))

    def strike(self, error: Exception) -> float:
        """Log the fault if it is new; return how long to wait before the next try."""
        if self._backoff is None:
            self._backoff = RetryBackoff(self._clock, _FIRST_RETRY_S, self._last_retry_s)
            self._since_s = asyncio.get_running_loop().time()
            text = "%s, retrying until it passes: %s"
            is_ours = isinstance(error, BucketQError)  # Others are bugs: their traces help.
            self._log.warning(text, self._what, error, exc_info=None if is_ours else error)
        return self._backoff.next_s()

    @property
    def lasts_s(self) -> float:
        """For how long the fault has lasted; 0 if there is none."""
        if self._backoff is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._since_s

    def passed(self) -> None:
        """Note that it works; the next fault is a new one."""
        if self._backoff is not None:
            self._backoff = None
            self._log.info("%s: this has passed", self._what)
