"""``connect``: from the address of a queue to a queue."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from types import ModuleType
from typing import (
    Any,
    Generic,
    NoReturn,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from bucketq.client.connect_arguments import (
    BROKERS,
    ConnectArguments,
    Launch,
    Mode,
    direct_committer,
    group_committer,
    own_register,
)
from bucketq.clock import Clock, SystemClock
from bucketq.commit.base import Committer
from bucketq.commit.objects.heading_reader import HeadingReader
from bucketq.errors import ClosedError, InvalidRequestError
from bucketq.model.partitions import OtherPartitionsError, Partition
from bucketq.queue.queue import Queue
from bucketq.rpc.credentials import Tls, make_credentials
from bucketq.store.base import ObjectStore
from bucketq.store.url import CredentialProvider, Location, open_store, split_partitions

T = TypeVar("T")


class UnopenedQueue(Generic[T]):
    """A queue that is about to be opened: ``async with connect(url) as queue``."""

    def __init__(
        self,
        place: Location | str,
        arguments: ConnectArguments,
        clock: Clock,
        asked: Partition | None = None,
    ) -> None:
        """Keep what is needed to open it: a location, or the addresses of brokers.

        ``asked`` says how many partitions the latter ask for.
        """
        self._asked = asked
        self._place = place
        self._arguments = arguments
        self._clock = clock
        self._stack: AsyncExitStack | None = None
        self._process = 0

    async def __aenter__(self) -> Queue[T]:
        """Open the queue, and create it if it does not exist."""
        if self._stack is not None:
            message = "this connection is open already: call `bucketq.connect` once for each use"
            raise ClosedError(message)
        async with AsyncExitStack() as stack:
            if isinstance(self._place, Location) and not self._place.is_lent:
                stack.push_async_callback(self._place.store.close)
            queue = self._over(self._committer(self._partitions))
            try:
                await stack.enter_async_context(queue)
            except OtherPartitionsError as error:
                if self._partitions or not error.count:
                    raise
                queue = self._over(self._committer(error.count))
                await stack.enter_async_context(queue)
            self._stack = stack.pop_all()
        self._process = os.getpid()
        return queue

    @property
    def _partitions(self) -> int:
        """How many partitions the address asks for; 0: it does not say, or the queue has none."""
        partition = self._asked if isinstance(self._place, str) else self._place.partition
        return 0 if partition is None else partition.count

    def _over(self, committer: Committer) -> Queue[T]:
        return Queue(
            committer,
            self._clock,
            payload_type=self._arguments.payload_type,
            worker=self._arguments.worker,
            timeout_s=self._arguments.timeout_s,
        )

    def _committer(self, partitions: int) -> Committer:
        """Choose how requests are committed; 0 partitions: the queue has none."""
        place, arguments, clock = self._place, self._arguments, self._clock
        readers: list[HeadingReader] = []

        def make(index: int) -> Committer:
            if isinstance(place, str):
                part_of = Partition(index, partitions) if partitions else None
                remote: Committer
                remote = _broker_client().open_remote(place, arguments, clock, part_of)
                return remote
            if not partitions:
                return self._committer_at(place, readers)
            known = readers[0].partition if readers else None
            part = place.at_partition(index, partitions, "" if known is None else known.queue)
            return self._committer_at(part, readers)

        if not partitions:
            return make(0)
        from bucketq.commit.partitioned.partitioned_committer import (  # noqa: PLC0415 - few have them
            PartitionedCommitter,
        )

        where = place if isinstance(place, str) else place.url
        return PartitionedCommitter(where, partitions, make, clock, timeout_s=arguments.timeout_s)

    def _committer_at(self, place: Location, readers: list[HeadingReader]) -> Committer:
        """Make the committer of a place, and add what reads the heading there."""
        arguments, clock = self._arguments, self._clock
        mode = arguments.mode
        if mode == "remote" and place.scope == "process":
            message = f"no broker can serve {place.url}, which only this process sees"
            raise InvalidRequestError(message)
        if mode == "auto" and place.scope == "process":
            mode = "embedded"  # No other process could reach a broker of it.
        if mode == "auto" and (not _has_grpc() or _is_forked()):
            mode = "direct"
        if mode in {"auto", "remote"}:
            readers.append(HeadingReader(place.store, place.key, place.url, place.partition))
            client: Committer = _broker_client().open_client(
                place, arguments, clock, may_write=mode == "auto", reader=readers[-1]
            )
            return client
        register = own_register(place, clock)
        readers.append(register.heading)
        if mode == "embedded":
            return group_committer(place, arguments, clock, register)
        return direct_committer(place, arguments, clock, register)

    async def __aexit__(self, *error: object) -> None:
        """Commit pending requests, and close."""
        stack, self._stack = self._stack, None
        # A forked child has neither the threads nor the loop that closing would wait for, and
        # pending requests belong to its parent.
        if stack is not None and os.getpid() == self._process:
            await stack.aclose()

    def __getattr__(self, name: str) -> NoReturn:
        """Explain how to open it."""
        if name.startswith("_") or not hasattr(Queue, name):
            raise AttributeError(name)
        where = self._place if isinstance(self._place, str) else self._place.url
        message = (
            f"the queue {where} is not open yet, so {name!r} cannot be used: write "
            "`async with bucketq.connect(...) as queue:` and use `queue` inside"
        )
        raise ClosedError(message)


class Options(TypedDict, total=False):
    """The options that ``connect`` and ``connect_sync`` share; ``connect`` explains them."""

    mode: Mode
    launch: Launch
    worker: str | None
    timeout_s: float
    create: bool
    store: ObjectStore | None
    credential_provider: CredentialProvider | None
    token: str | None
    tls: Tls | None
    networks: Iterable[str] | None
    insecure: bool
    fires_schedules: bool


@overload
def connect(url: str, *, payload_type: type[T], **options: Unpack[Options]) -> UnopenedQueue[T]: ...


@overload
def connect(url: str, **options: Unpack[Options]) -> UnopenedQueue[Any]: ...


def connect(  # noqa: PLR0913 - each is an option that its user names
    url: str,
    *,
    payload_type: Any = Any,
    mode: Mode = "auto",
    launch: Launch = "inside",
    worker: str | None = None,
    timeout_s: float = 60.0,
    create: bool = True,
    store: ObjectStore | None = None,
    credential_provider: CredentialProvider | None = None,
    token: str | None = None,
    tls: Tls | None = None,
    networks: Iterable[str] | None = None,
    insecure: bool = False,
    fires_schedules: bool = False,
) -> UnopenedQueue[Any]:
    """Open the queue at ``url``: ``async with bucketq.connect(url) as queue``.

    Args:
        url: ``s3://bucket/key``, ``gs://bucket/key``, ``az://container/key``,
            ``file:///path/queue.json`` or ``memory://name``; or, for clients that have no
            access to the bucket, ``bucketq://host:port[,host:port]/queue``, and ``bucketqs://``
            for brokers that speak TLS. ``?partitions=8`` creates a queue that is spread.
        payload_type: What payloads are: a dataclass, a msgspec Struct, a pydantic model, or any
            type that msgspec decodes. Left out, payloads are plain JSON values or bytes.
        mode: ``auto`` uses the queue's broker; if there is none, it starts one or writes directly,
            as ``launch`` and the store allow. ``remote`` uses a broker or fails. ``direct`` writes
            every operation by itself. ``embedded`` commits the requests of all callers of this
            process together, and serves no other process. Without the ``broker`` extra, and in a
            process that was forked from one that used it, ``auto`` means ``direct``.
        launch: How ``auto`` starts a broker on a store that only this host sees: ``inside`` this
            process, for others of this host as well, until the connection is closed; ``spawn``
            as a process of its own, which ends when it is idle; ``never``.
        worker: The name under which this process claims jobs; by default host and process.
        timeout_s: How long an operation is tried before its outcome is unknown.
        create: Whether to create the queue if it does not exist.
        store: A store of your own, which you also close; ``url`` is then the key of the queue's
            object in it.
        credential_provider: Called for credentials of a cloud address, if those of the
            environment are not the right ones; see ``CredentialProvider``.
        token: The token for brokers that require one; BUCKETQ_TOKEN by default.
        tls: How certificates of brokers are verified; BUCKETQ_TLS_CA, BUCKETQ_TLS_CERT,
            BUCKETQ_TLS_KEY and BUCKETQ_TLS_NAME by default. With it, brokers on other hosts are
            used over TLS only.
        networks: The networks of brokers, as in ``["10.0.0.0/8"]``, beside the loopback;
            BUCKETQ_NETWORKS, separated by commas, by default.
        insecure: Show the token to other hosts in plaintext too; BUCKETQ_INSECURE=1 by default.
        fires_schedules: Whether a queue that writes directly fires schedules when they are due, as
            a ``Worker`` does; for processes that stay open. Brokers and embedded queues always do.
    """
    credentials = make_credentials(
        os.environ, token=token, tls=tls, networks=networks, insecure=insecure
    )
    if worker is None:
        worker = f"{socket.gethostname()}:{os.getpid()}"
    arguments = ConnectArguments(
        mode, launch, payload_type, worker, timeout_s, create, credentials, fires_schedules
    )
    arguments.check()
    if isinstance(url, str) and url.startswith(BROKERS) and store is None:
        if mode not in {"auto", "remote"}:
            message = f"{url} leads to a broker, so mode {mode!r} is impossible"
            raise InvalidRequestError(message)
        plain, count = split_partitions(url)
        _broker_client().parse_address(plain)
        asked = None if count is None else Partition(0, count)
        return UnopenedQueue(plain, arguments, SystemClock(), asked)
    location = open_store(url, store=store, credential_provider=credential_provider)
    return UnopenedQueue(location, arguments, location.clock or SystemClock())


def _has_grpc() -> bool:
    return find_spec("grpc") is not None and find_spec("google.protobuf") is not None


def _is_forked() -> bool:
    """Whether gRPC was used before this process was forked, and cannot be used in it."""
    loaded = sys.modules.get("bucketq.client.broker_client")
    # Another thread may be importing it at this moment, and then it was not used before.
    users: set[int] = getattr(loaded, "GRPC_USERS", set())
    return bool(users) and os.getpid() not in users


def _broker_client() -> ModuleType:
    """Import what needs the ``broker`` extra, when it is needed."""
    if not _has_grpc():
        message = 'brokers need one more package: pip install "bucketq[broker]"'
        raise InvalidRequestError(message)
    if _is_forked():
        message = (
            "gRPC does not survive a fork, and this process was forked after it was used: start "
            'processes with "spawn", or connect with mode "direct"'
        )
        raise InvalidRequestError(message)
    from bucketq.client import broker_client  # noqa: PLC0415 - an extra

    return broker_client
