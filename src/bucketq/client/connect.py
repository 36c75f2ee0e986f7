"""``connect``: from the address of a queue to a queue."""

from __future__ import annotations

import os
import socket
from contextlib import AsyncExitStack
from typing import Any, Generic, Literal, NoReturn, TypedDict, TypeVar, Unpack, overload

from bucketq.archive import Layout, SegmentWriter
from bucketq.clock import Clock, SystemClock
from bucketq.errors import ClosedError, InvalidRequestError
from bucketq.model import check
from bucketq.queue import payload as payloads
from bucketq.queue.base import Queue
from bucketq.queue.commit import GroupCommitQueue
from bucketq.queue.direct import DirectQueue
from bucketq.queue.register import Register
from bucketq.store.base import ObjectStore
from bucketq.store.url import CredentialProvider, Location, open_store

T = TypeVar("T")

Mode = Literal["auto", "direct", "embedded"]

_QUEUES: dict[str, type[DirectQueue[Any] | GroupCommitQueue[Any]]] = {
    "auto": DirectQueue,
    "direct": DirectQueue,
    "embedded": GroupCommitQueue,
}


class Connection(Generic[T]):
    """A queue that is about to be opened: ``async with connect(url) as queue``."""

    def __init__(
        self,
        location: Location,
        *,
        mode: Mode,
        payload_type: Any,
        worker: str,
        timeout_s: float,
        create: bool,
        clock: Clock,
    ) -> None:
        """Keep what is needed to open it."""
        self._location = location
        self._make = _QUEUES[mode]
        self._payload_type = payload_type
        self._worker = worker
        self._timeout_s = timeout_s
        self._create = create
        self._clock = clock
        self._stack: AsyncExitStack | None = None
        self._process = 0

    async def __aenter__(self) -> Queue[T]:
        """Open the queue, creating it where there is none."""
        if self._stack is not None:
            message = "this connection is open already: call `bucketq.connect` once for each use"
            raise ClosedError(message)
        location = self._location
        async with AsyncExitStack() as stack:
            if not location.is_lent:
                stack.push_async_callback(location.store.close)
            register = Register(location.store, location.key, location.url, self._clock)
            queue: Queue[T] = await stack.enter_async_context(
                self._make(
                    register,
                    self._clock,
                    payload_type=self._payload_type,
                    worker=self._worker,
                    timeout_s=self._timeout_s,
                    create=self._create,
                    archive=SegmentWriter(location.store, Layout.of(location.key)),
                )
            )
            self._stack = stack.pop_all()
        self._process = os.getpid()
        return queue

    async def __aexit__(self, *error: object) -> None:
        """Commit what is under way, and close."""
        stack, self._stack = self._stack, None
        # A forked child has neither the threads nor the loop that closing would wait for, and
        # what is under way is its parent's.
        if stack is not None and os.getpid() == self._process:
            await stack.aclose()

    def __getattr__(self, name: str) -> NoReturn:
        """Tell whoever forgot to open it."""
        if name.startswith("_") or not hasattr(DirectQueue, name):
            raise AttributeError(name)
        message = (
            f"the queue {self._location.url} is not open yet, so {name!r} cannot be used: write "
            "`async with bucketq.connect(...) as queue:` and use `queue` inside"
        )
        raise ClosedError(message)


class Options(TypedDict, total=False):
    """The options that ``connect`` and ``connect_sync`` share; ``connect`` explains them."""

    mode: Mode
    worker: str | None
    timeout_s: float
    create: bool
    store: ObjectStore | None
    credential_provider: CredentialProvider | None


@overload
def connect(url: str, *, payload_type: type[T], **options: Unpack[Options]) -> Connection[T]: ...


@overload
def connect(url: str, **options: Unpack[Options]) -> Connection[Any]: ...


def connect(
    url: str,
    *,
    payload_type: Any = Any,
    mode: Mode = "auto",
    worker: str | None = None,
    timeout_s: float = 60.0,
    create: bool = True,
    store: ObjectStore | None = None,
    credential_provider: CredentialProvider | None = None,
) -> Connection[Any]:
    """Open the queue at ``url``: ``async with bucketq.connect(url) as queue``.

    Args:
        url: ``s3://bucket/key``, ``gs://bucket/key``, ``az://container/key``,
            ``file:///path/queue.json`` or ``memory://name``.
        payload_type: What payloads are: a dataclass, a msgspec Struct, a pydantic model, or any
            type that msgspec decodes. Left out, payloads are plain JSON values or bytes.
        mode: ``direct`` writes every operation by itself; ``embedded`` commits what all callers
            of this process ask for together; ``auto`` chooses (today: direct).
        worker: The name under which this process claims jobs; by default host and process.
        timeout_s: How long an operation is tried before its outcome is called unknown.
        create: Whether to create the queue where there is none.
        store: A store of your own, which you also close; ``url`` is then the key of the queue's
            object in it.
        credential_provider: Called for credentials of a cloud address, where those of the
            environment will not do; see ``CredentialProvider``.
    """
    if not isinstance(mode, str) or mode not in _QUEUES:
        message = f"unknown mode {mode!r}: use one of {', '.join(_QUEUES)}"
        raise InvalidRequestError(message)
    if worker is None:
        worker = f"{socket.gethostname()}:{os.getpid()}"
    check.name(worker, "worker")
    check.delay(timeout_s, "timeout_s")
    if not timeout_s:
        message = "timeout_s must be more than 0 seconds"
        raise InvalidRequestError(message)
    if not isinstance(create, bool):
        message = f"create must be True or False, got {type(create).__name__}"
        raise InvalidRequestError(message)
    payloads.check_type(payload_type)
    return Connection(
        open_store(url, store=store, credential_provider=credential_provider),
        mode=mode,
        payload_type=payload_type,
        worker=worker,
        timeout_s=timeout_s,
        create=create,
        clock=SystemClock(),
    )
