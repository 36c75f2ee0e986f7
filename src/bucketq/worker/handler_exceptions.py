"""What a handler may raise to say what is to become of its job.

Any other exception means: it failed, try it again as its backoff says.
"""

from __future__ import annotations

from datetime import timedelta

from bucketq.model import check


class Retry(Exception):  # noqa: N818 - it asks for something, and is no error by itself
    """Try the job again later. It counts as a failure, so it meets ``max_attempts``."""

    def __init__(
        self, reason: str = "the handler asked for a retry", *, delay: float | timedelta = 0.0
    ) -> None:
        """Take the reason that is recorded, and how long to wait, in seconds."""
        super().__init__(reason)
        self.delay_s = delay.total_seconds() if isinstance(delay, timedelta) else delay
        check.delay(self.delay_s, "delay")


class GiveUp(Exception):  # noqa: N818 - it asks for something, and is no error by itself
    """Do not try the job again: it is dead, with the reason, until somebody redrives it."""


class JobCancelled(Exception):  # noqa: N818 - it asks for something, and is no error by itself
    """Raised by ``Context.raise_if_cancelled`` in a handler that is to stop."""


class UnfitPayload(Exception):  # noqa: N818 - it never leaves this package
    """The payload is not of the type that the handler declares; it never will be."""


class HandlerFailed(Exception):  # noqa: N818 - it never leaves this package
    """A handler raised something in another process; the text tells what, and where."""

    def __init__(self, text: str, type_name: str = "") -> None:
        """Take the text, and what the error was called there."""
        super().__init__(text)
        self.type_name = type_name
