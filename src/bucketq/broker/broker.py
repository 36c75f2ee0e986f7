"""``Broker``: the lifecycle of one broker of one queue: standing by, leading, retired.

It owns the connections of the queue's clients. While it leads, their calls go through the inbox
to the leader. Otherwise they are answered with the address of the broker that leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from bucketq.archive.writer import ArchiveWriter
from bucketq.broker.broker_connection import BrokerConnection, RemoteRequest
from bucketq.broker.broker_observer import BrokerObserver
from bucketq.broker.candidacy import Candidacy
from bucketq.broker.inbox import Inbox
from bucketq.broker.leader import Leader
from bucketq.broker.standby import Standby
from bucketq.broker.takeover import DeposedError, Identity
from bucketq.broker.token_guard import Guard, ShownToken
from bucketq.clock import Clock, fraction
from bucketq.codec.document import Document
from bucketq.commit.objects.register import Register
from bucketq.commit.pending_requests import PendingRequest
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.errors import (
    AccessDeniedError,
    BucketQError,
    InvalidRequestError,
    OverloadedError,
    StoreRefusedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.operations import WAITING, Claim
from bucketq.model.results import Wait
from bucketq.queue.arguments import MAX_WAIT_S
from bucketq.rpc.messages import OFFERED, Answers, FlushArchive, Hello, Pong, Role, Welcome
from bucketq.rpc.transport import Transport

_log = logging.getLogger("bucketq.broker")

DRAIN_S = 12.0
"""How long a broker that is stopped may take to commit pending requests: more than one write that
the storage answers late, and well within the 30 s that Kubernetes grants."""
PULSE_S = 3.0
"""How often a client whose claims wait gets a message from its broker.

A broker may freeze after it has committed a claim and before it answers. The client must notice
and send the claim to the next broker while the lease still runs, which may be a few seconds."""
_WARN_S = 10.0
"""How often a broker that is cut off from its storage logs that."""
_JITTER_S = 0.4
"""The pause after another candidate took over, on average; random, so that few collide."""
_GIVE_WAY_S = 5.0
"""How long a broker that has handed its queue over leaves it to others: they notice within a
second, and after a while it may take the queue back if none of them could."""
_LOOK_S = 5.0
"""How often it is logged that the object cannot be read."""
_TAKEOVER_S = 2.0
"""How long a broker that is stopped waits for the outcome of its takeover."""
_MAX_PARKED = 10_000
"""How many claims wait at once: one for each connection that a listener accepts."""
_MAX_WAITS = 50_000
"""How many requests wait for the end of a job at once: each takes about a kilobyte."""
_OFFERED = frozenset[type](OFFERED)


class Broker:
    """One broker of one queue."""

    def __init__(
        self,
        register: Register,
        clock: Clock,
        transport: Transport,
        *,
        archive: ArchiveWriter | None,
        is_shared: bool = True,
        takeover: bool = False,
        create: bool = True,
        count_led: Callable[[], int] | None = None,
    ) -> None:
        """Make a broker; ``run`` starts it.

        Args:
            register: The queue's object.
            clock: Time and entropy.
            transport: For pings to the broker that leads.
            archive: Where finished jobs go.
            is_shared: Whether other hosts can access the object. If not, a loopback address in it
                always belongs to this host.
            takeover: Take over at once, even if another broker leads.
            create: Whether to create the queue if it does not exist.
            count_led: How many queues its server leads, if servers share them evenly.
        """
        self.where = register.where
        self._register = register
        self._clock = clock
        self._archive = archive
        self._create = create
        self._identity: Identity | None = None
        self._leader: Leader | None = None
        self._is_retired = False
        self._gives_way_until = 0.0
        self._candidacy = Candidacy()
        self._standby = Standby(
            register,
            clock,
            transport,
            self._candidacy,
            is_shared=is_shared,
            takeover=takeover,
            count_led=count_led,
        )
        self._no_takeover = TransientFault(clock, _log, f"{register.where}: cannot take over")
        self._connections: dict[int, BrokerConnection] = {}
        self._inbox = Inbox()
        self._guard = Guard(clock)
        self._is_draining = False
        self._pulse: asyncio.TimerHandle | None = None
        self._warn_at = 0.0
        self.incarnation = ""
        """The incarnation of the queue; empty until its object was read."""
        self.failure: BucketQError | None = None
        """Why it has stopped, if it failed."""
        self.opened = self._standby.opened
        """Set once it leads, or stands by for another broker."""
        self.leading = asyncio.Event()
        """Set while it leads."""
        self.observer: BrokerObserver | None = None
        self.idle_since: float | None = None
        """Since when it has had no client, by the loop's time."""

    @property
    def leader(self) -> Leader | None:
        """The queue itself, while this broker leads it."""
        return self._leader

    @property
    def role(self) -> Role:
        """Its role for the queue."""
        if self._is_retired:
            return "retired"
        if self._leader is None:
            return "standing by"
        return "cut off" if self._leader.is_cut_off else "leading"

    @property
    def _is_serving(self) -> bool:
        """Whether it takes calls if it leads: it is not about to stop."""
        return not self._is_retired and not self._gives_way_until

    def has_evidence_against(self, epoch: int) -> None:
        """Take over from this epoch without further evidence: the caller has enough."""
        self._standby.known_gone = epoch

    def pong(self) -> Pong:
        """Answer a ping, from memory."""
        leader, record, identity = self._leader, self._standby.record, self._identity
        version, age_s, now_s = self._register.version, 0.0, asyncio.get_running_loop().time()
        if leader is not None:
            address = identity.address if identity else ""
            epoch, version, age_s = leader.epoch, leader.version, leader.commit_age_s
        elif (hoped := self._candidacy.epoch(now_s)) is not None and identity is not None:
            # If its takeover has landed, others may see that before this broker knows.
            address, epoch = identity.address, hoped
        else:
            is_own = record is not None and identity is not None and record.id == identity.id
            address = record.address if record and not is_own else ""
            epoch = record.epoch if record else 0
        return Pong(
            incarnation=self.incarnation,
            broker=self._identity.id if self._identity else "",
            role=self.role,
            epoch=epoch,
            version=version,
            commit_age_s=age_s,
            leader=address,
            partitions=self._partitions,
        )

    @property
    def _partitions(self) -> int:
        partition = self._register.partition
        return 0 if partition is None else partition.count

    async def run(self, identity: Identity) -> None:
        """Stand by and lead, in turn, until it is retired.

        Raises if it cannot continue: the object is gone or corrupt.
        """
        self.failure = None
        try:
            await self._live(identity)
        except BucketQError as error:
            self.failure = error
            if self._pulse is not None:
                self._pulse.cancel()
            raise

    async def _live(self, identity: Identity) -> None:
        self._identity = identity
        self.idle_since = asyncio.get_running_loop().time()
        document = await self._open_object()
        self.incarnation = document.state.incarnation
        self._standby.record = document.state.broker
        del document  # While it stands by it holds no state.
        self._show_life()
        while not self._is_retired:
            await self._give_way()
            after = await self._standby.vacancy(identity, self.incarnation)
            try:
                await self._lead(identity, after)
            except DeposedError as error:
                _log.info("%s: not leading: %s", self.where, error)
                await self._cool_down()
            except (UnavailableError, StoreRefusedError) as error:
                await self._no_takeover.wait(error)

    async def _open_object(self) -> Document:
        """Read or create the queue, without a time limit; log why it takes long."""
        opening = asyncio.get_running_loop().create_task(self._register.open(create=self._create))
        try:
            while not (await asyncio.wait([opening], timeout=_LOOK_S))[0]:
                trouble = self._register.trouble or "no answer"
                _log.warning("%s: cannot be read, trying again: %s", self.where, trouble)
        finally:
            opening.cancel()
        return opening.result()

    async def hand_over(self) -> None:
        """Stop leading, so that a broker that stands by takes over; then stand by."""
        leader = self._leader
        if leader is None or not self._is_serving:
            return
        _log.info("%s: handing over, because another broker leads fewer queues", self.where)
        self._gives_way_until = asyncio.get_running_loop().time() + _GIVE_WAY_S
        while len(self._inbox):
            self._drain()
        await leader.retire()
        await leader.close()

    async def _give_way(self) -> None:
        """After a hand-over, let others be first."""
        if self._gives_way_until:
            await asyncio.sleep(self._gives_way_until - asyncio.get_running_loop().time())
            self._gives_way_until = 0.0

    async def retire(self) -> None:
        """Reject new calls, commit pending ones, and clear the address."""
        self._is_retired = True
        if self._candidacy.epoch(asyncio.get_running_loop().time()) is not None:
            # The takeover may land all the same. Leading for a moment lets it clear the address.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TAKEOVER_S):
                    await self.leading.wait()
        if (leader := self._leader) is not None:
            while len(self._inbox):
                self._drain()
            if not await leader.retire():
                _log.warning("%s: the address could not be cleared in time", self.where)
        if self._pulse is not None:
            self._pulse.cancel()
        for connection in list(self._connections.values()):
            connection.flush()

    def accept_connection(self, hello: Hello, send: Callable[[Answers], None]) -> BrokerConnection:
        """Accept a client, if this broker leads and is the one that the client expects."""
        leader, identity = self._leader, self._identity
        if leader is None or identity is None or not self._is_serving:
            raise self._superseded()
        if hello.broker and hello.broker != identity.id:
            message = f"this is broker {identity.id}, not {hello.broker}: look the queue up again"
            raise SupersededError(message)
        if hello.partitions != self._partitions:
            message = (
                f"{self.where} has {self._partitions or 'no'} partitions, and the client expects "
                f"{hello.partitions or 'none'}: connect again, with a bucketq that knows partitions"
            )
            raise InvalidRequestError(message)
        welcome = Welcome(
            incarnation=self.incarnation,
            broker=identity.id,
            epoch=leader.epoch,
            version=leader.version,
        )
        welcome, shown = self._guard.greet(leader.state, hello, welcome)
        connection = BrokerConnection(self, welcome, send, shown, hello.client)
        self._connections[id(connection)] = connection
        self.idle_since = None
        return connection

    def leave(self, connection: BrokerConnection, parked: list[PendingRequest]) -> None:
        """Note that a client is gone; its claims that wait are dropped."""
        self._connections.pop(id(connection), None)
        if not self._connections:
            self.idle_since = asyncio.get_running_loop().time()
        if self._leader is not None:
            self._leader.forget(parked)

    def admit(self, token: str) -> ShownToken | None:
        """Check a token. Raises ``AccessDeniedError`` if it is not valid."""
        if self._leader is None:
            raise self._superseded()
        return self._guard.admit(self._leader.state, token)

    def trusts(self, token: str) -> bool:
        """Whether a client with this token is accepted; empty: it has shown none."""
        return self._leader is not None and self._guard.trusts(self._leader.state, token)

    def take(self, incoming: RemoteRequest) -> None:
        """Queue a request in the inbox, or reject it at once."""
        leader = self._leader
        if leader is None or not self._is_serving:
            incoming.resolve(None, self._superseded())
            return
        try:
            self._admit(incoming, leader)
        except (AccessDeniedError, InvalidRequestError, OverloadedError) as error:
            incoming.resolve(None, error)
            return
        if not self._is_draining:
            self._is_draining = True
            asyncio.get_running_loop().call_soon(self._drain)

    def flush_archive(self, connection: BrokerConnection, tag: int) -> None:
        """Archive all finished jobs, and answer the call with their number."""
        leader = self._leader
        if leader is None:
            connection.answer(tag, None, self._superseded())
            return

        async def flush() -> None:
            try:
                self._guard.check(leader.state, connection.shown, FlushArchive())
                connection.answer(tag, await leader.flush_archive(), None)
            except BucketQError as error:
                connection.answer(tag, None, error)

        connection.keep(asyncio.get_running_loop().create_task(flush()))

    @property
    def version(self) -> int:
        """The newest version that it has seen or written."""
        return self._register.version

    def _admit(self, incoming: RemoteRequest, leader: Leader) -> None:
        operation = incoming.request.operation
        if type(operation) not in _OFFERED:
            message = f"{type(operation).__name__.lower()} is not for clients to ask for"
            raise InvalidRequestError(message)
        self._guard.check(leader.state, incoming.connection.shown, operation)
        if isinstance(operation, WAITING):
            if not 0 <= operation.wait_s <= MAX_WAIT_S:
                message = f"wait_s must be between 0 and {MAX_WAIT_S:.0f} seconds"
                raise InvalidRequestError(message)
            if operation.wait_s:
                _check_parked(leader, operation)
        self._inbox.put(incoming, leader.waiting, leader.committer.last_write_s)

    def _drain(self) -> None:
        """Apply the next portion of calls; the rest waits until other tasks have run."""
        loop = asyncio.get_running_loop()
        leader = self._leader
        for incoming in self._inbox.take(loop.time()):
            if leader is None:
                incoming.resolve(None, self._superseded())
            else:
                leader.committer.accept(incoming)
        self._is_draining = bool(len(self._inbox))
        if self._is_draining:
            loop.call_soon(self._drain)

    def _show_life(self) -> None:
        """Send a message to clients whose claims wait; warn operators if this is cut off."""
        loop = asyncio.get_running_loop()
        for connection in list(self._connections.values()):
            connection.show_life()
        self._pulse = loop.call_later(PULSE_S, self._show_life)
        leader = self._leader
        if leader is not None and leader.is_cut_off and loop.time() >= self._warn_at:
            self._warn_at = loop.time() + _WARN_S
            _log.warning(
                "%s: cut off: the storage has not answered for %.0f s; others may take over",
                self.where,
                leader.unproven_s,
            )

    def _superseded(self) -> SupersededError:
        record = self._standby.record
        address = record.address if record and not self._is_retired else ""
        message = "this broker does not lead the queue: look it up again"
        return SupersededError(message, leader=address or None)

    async def _lead(self, identity: Identity, after: int) -> None:
        leader = Leader(
            self._register,
            self._clock,
            identity=identity,
            after=after,
            archive=self._archive,
            timeout_s=DRAIN_S,
            observer=self.observer,
        )
        self._candidacy.begin(after + 1)
        try:
            await leader.open()
            self._candidacy.end()
            self._no_takeover.passed()
            self._standby.takeover = False
            self._leader = leader
            self.leading.set()
            self.opened.set()
            if self.observer is not None:
                self.observer.took_over()
            _log.info("%s: leading in epoch %d", self.where, leader.epoch)
            try:
                reason = await leader.committer.stopped()
            finally:
                self._leader = None
                self.leading.clear()
                await leader.close()
        except (DeposedError, StoreRefusedError):
            self._candidacy.end()
            raise
        except UnavailableError:
            self._candidacy.doubt(asyncio.get_running_loop().time())
            raise
        if reason is not None:
            if isinstance(reason, DeposedError):
                self._candidacy.note_deposition(asyncio.get_running_loop().time())
            raise reason

    async def _cool_down(self) -> None:
        """Wait before the next takeover: this broker may be the one that others cannot reach."""
        pause_s = self._candidacy.cool_down_s(asyncio.get_running_loop().time())
        await asyncio.sleep((pause_s or _JITTER_S) * (0.5 + fraction(self._clock)))


def _check_parked(leader: Leader, operation: Claim | Wait) -> None:
    """Reject what would be parked if too many others are."""
    if isinstance(operation, Claim) and leader.parked >= _MAX_PARKED:
        message = f"{_MAX_PARKED} claims wait at this broker already: claim less often"
        raise OverloadedError(message, retry_after_s=1.0)
    if isinstance(operation, Wait) and leader.waits >= _MAX_WAITS:
        message = f"{_MAX_WAITS} requests wait for jobs at this broker already: wait for fewer"
        raise OverloadedError(message, retry_after_s=1.0)
