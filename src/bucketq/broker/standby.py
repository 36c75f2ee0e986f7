"""``Standby``: watches the broker that leads, until there is evidence that it is gone.

Faults on this side (the storage cannot be read or rejects requests, certificate files are being
replaced) are not evidence. They are retried until they pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bucketq.broker.candidacy import Candidacy
from bucketq.broker.takeover import (
    ENOUGH,
    WEIGHT,
    Identity,
    Sign,
    is_out_of_reach,
    probe,
)
from bucketq.clock import Clock, fraction
from bucketq.commit.objects.register import Register
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.errors import StoreRefusedError, SupersededError, UnavailableError
from bucketq.model.records import BrokerRecord
from bucketq.rpc.transport import CannotDialError, Transport, UntrustedError
from bucketq.store.base import ObjectMissingError

_log = logging.getLogger("bucketq.broker")

_WATCH_S = 0.5
"""The pause between two pings of a leader that answers: a part of each failover."""
_JITTER_S = 0.3
"""So that of several brokers that stand by one is first."""
_LOOK_S = 5.0
"""How often the object is read while the leader cannot be pinged from this host."""


class Standby:
    """What a broker does while another one leads."""

    def __init__(
        self,
        register: Register,
        clock: Clock,
        transport: Transport,
        candidacy: Candidacy,
        *,
        is_shared: bool,
        takeover: bool,
        count_led: Callable[[], int] | None,
    ) -> None:
        """Begin; the arguments are those of the ``Broker``."""
        self._register = register
        self._clock = clock
        self._transport = transport
        self._candidacy = candidacy
        self._is_shared = is_shared
        self._count_led = count_led
        self._unreadable = TransientFault(clock, _log, f"{register.where}: cannot be read")
        self._unasked = TransientFault(
            clock, _log, f"{register.where}: cannot find out whether its broker is alive"
        )
        self._logged_leader: tuple[str, int] | None = None
        """Address and epoch of the leader that was last logged, so that each is logged once."""
        self.takeover = takeover
        """Whether to take over from a broker that answers."""
        self.known_gone: int | None = None
        """An epoch whose broker is known to be gone, from the process that started this one."""
        self.record: BrokerRecord | None = None
        """The broker in the object when it was last read."""
        self.opened = asyncio.Event()
        """Set once there is a broker to watch; its own broker sets it when it leads."""

    async def vacancy(self, identity: Identity, incarnation: str) -> int:
        """Wait while another broker leads; return the epoch to follow once none does."""
        evidence, against = 0, 0
        while True:
            record = self.record = await self._read_record()
            epoch = record.epoch if record else 0
            self._candidacy.see(epoch)
            if epoch != against:
                evidence, against = 0, epoch
            known_gone, self.known_gone = self.known_gone, None
            if record is not None and record.address and record.id == identity.id:
                return epoch - 1  # Its own takeover landed after it had given up.
            if record is None or not record.address or self.takeover or epoch == known_gone:
                return epoch
            if evidence >= ENOUGH:
                return epoch
            evidence = await self._watch(record, identity, incarnation, evidence)

    async def _watch(
        self, record: BrokerRecord, identity: Identity, incarnation: str, evidence: int
    ) -> int:
        """Ping the leader for as long as it answers; return the evidence against it."""
        self.opened.set()
        if self._logged_leader != (record.address, record.epoch):
            self._logged_leader = (record.address, record.epoch)
            where = self._register.where
            _log.info("%s: standing by; %s leads in epoch %d", where, record.address, record.epoch)
        if self._is_shared and is_out_of_reach(record, identity.host):
            # This host cannot ping it, so there is never evidence against it.
            _log.warning(
                "%s: %s is a loopback address of another host (%s); if that broker is gone for "
                "good, start one with --takeover",
                self._register.where,
                record.address,
                record.host,
            )
            await asyncio.sleep(_LOOK_S)
            return 0
        try:
            while (sign := await self._probe(record, incarnation)) is Sign.ALIVE:
                evidence = 0
                self._unasked.passed()
                await self._pause(_WATCH_S)
        except CannotDialError as error:
            await self._unasked.wait(error)
            return evidence
        except UntrustedError as error:
            if record.address != identity.address:
                await self._unasked.wait(error)
                return 0
            sign = Sign.GONE  # This process listens there now, so the recorded broker is gone.
        self._unasked.passed()
        await self._pause(_JITTER_S)
        return evidence + WEIGHT[sign]

    async def _probe(self, record: BrokerRecord, incarnation: str) -> Sign:
        leads = None if self._count_led is None else self._count_led()
        return await probe(self._transport, record, incarnation, leads)

    async def _pause(self, about_s: float) -> None:
        await asyncio.sleep(about_s * (0.5 + fraction(self._clock)))

    async def _read_record(self) -> BrokerRecord | None:
        while True:
            try:
                heading = await self._register.heading.read()
            except (UnavailableError, StoreRefusedError) as error:
                await self._unreadable.wait(error)
            except ObjectMissingError as error:
                message = (
                    f"{self._register.where} was deleted while it was in use; bring it back with "
                    "`bucketq restore`, or start the broker again for a new queue"
                )
                raise SupersededError(message) from error
            else:
                self._unreadable.passed()
                return heading.broker
