"""The ``Committer`` protocol: all that a queue needs in order to change its object.

There are five committers. ``DirectCommitter`` writes each request by itself, ``GroupCommitter``
writes the requests of all callers of this process together, a broker's ``Leader`` does the same for
its clients, ``RemoteCommitter`` sends requests to the committer that it finds, and
``PartitionedCommitter`` to those of the partitions of a queue.
"""

from __future__ import annotations

from typing import Any, Protocol

from bucketq.model.operations import Request


class CommitterLostError(Exception):
    """This committer accepts no more requests, and the one that was sent may have taken effect.

    Send the same request to another committer: it has an id, so it takes effect once.
    """


class Committer(Protocol):
    """Makes requests durable and returns their answers.

    A request brings its own id, so that the same request can be sent to another committer if one
    is lost.
    """

    @property
    def where(self) -> str:
        """What messages call the queue."""
        ...

    @property
    def mode(self) -> str:
        """How it commits, for messages."""
        ...

    @property
    def version(self) -> int:
        """The newest version of the object that it has seen or written."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it accepts requests."""
        ...

    @property
    def joins(self) -> bool:
        """Whether it takes several requests as one (``Request.numbers``)."""
        ...

    async def open(self) -> None:
        """Begin to accept requests."""
        ...

    async def submit(self, request: Request, timeout_s: float) -> Any:
        """Commit a request and return its answer, or raise the error that is its answer.

        A claim that may wait (``wait_s``) is answered when there is a job, or its time is over.
        If there is no certain answer after ``timeout_s`` (and ``wait_s``), ``UnavailableError``
        is raised. If the caller is cancelled the request may still take effect; a claim is undone
        by a ``Withdraw`` that is submitted after it.
        """
        ...

    async def flush_archive(self) -> int:
        """Archive everything that is finished now, and return how many jobs left by this call."""
        ...

    async def close(self) -> None:
        """Settle what was submitted, within a bounded time, and accept no more requests."""
        ...
