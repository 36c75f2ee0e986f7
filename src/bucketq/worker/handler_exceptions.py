"""Exceptions by which a handler decides what happens to its job.

Any other exception is a failure: the job is retried after its backoff.
"""

from __future__ import annotations

from datetime import timedelta

from bucketq.queue.arguments import seconds


class Retry(Exception):  # noqa: N818 - a request, not an error
    """Retry the job later. It counts as a failure, towards ``max_attempts``."""

    def __init__(
        self, reason: str = "the handler asked for a retry", *, delay_s: float | timedelta = 0.0
    ) -> None:
        """Record ``reason``, and retry after ``delay_s`` seconds."""
        super().__init__(reason)
        self.delay_s = seconds(delay_s, "delay_s")


class Snooze(Exception):  # noqa: N818 - a request, not an error
    """Put the job off, without using up an attempt: ``raise Snooze(60)``.

    A job can be put off 100 times. From then on it counts as a failure, towards ``max_attempts``.
    """

    def __init__(
        self, delay_s: float | timedelta, reason: str = "the handler put the job off"
    ) -> None:
        """Run the job again after ``delay_s`` seconds."""
        super().__init__(reason)
        self.delay_s = seconds(delay_s, "delay_s")


class GiveUp(Exception):  # noqa: N818 - a request, not an error
    """Do not retry the job: it is dead, with the reason, until it is redriven."""


class JobCancelled(Exception):  # noqa: N818 - a request, not an error
    """Raised by ``Context.raise_if_cancelled`` in a handler that should stop."""


class UnfitPayload(Exception):  # noqa: N818 - internal
    """The payload cannot be decoded as the type that the handler declares, now or later."""


class HandlerFailed(Exception):  # noqa: N818 - internal
    """A handler in another process raised an exception; the text has its traceback."""

    def __init__(self, text: str, type_name: str = "") -> None:
        super().__init__(text)
        self.type_name = type_name
