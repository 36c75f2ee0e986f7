"""What ``connect`` was called with, and the committers that write an object from this process.

``connect`` chooses the committer; ``broker_client`` makes those that use a broker. A committer is
imported when it is made: those that write the object need much that no client of a broker does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from bucketq.clock import Clock
from bucketq.commit.objects.writer_name import writer_name
from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.queue import payload as payloads
from bucketq.rpc.credentials import Credentials
from bucketq.store.url import Location

if TYPE_CHECKING:
    from bucketq.archive.writer import ArchiveWriter
    from bucketq.commit.direct_committer import DirectCommitter
    from bucketq.commit.group_committer import GroupCommitter
    from bucketq.commit.objects.register import Register

Mode = Literal["auto", "direct", "embedded", "remote"]
Launch = Literal["inside", "spawn", "never"]

BROKERS = ("bucketq://", "bucketqs://")
"""How the addresses of brokers begin, without and with TLS."""


class ConnectArguments(NamedTuple):
    """The arguments of ``connect`` that apply to every kind of address."""

    mode: Mode
    launch: Launch
    payload_type: Any
    worker: str
    timeout_s: float
    create: bool
    credentials: Credentials
    fires_schedules: bool = False

    def check(self) -> None:
        """Reject what makes no sense; callers without types may pass anything."""
        mode, launch, payload_type, worker, timeout_s, create, credentials, fires = self
        for name, value, allowed in (
            ("mode", mode, get_args(Mode)),
            ("launch", launch, get_args(Launch)),
        ):
            if value not in allowed:
                message = f"unknown {name} {value!r}: use one of {', '.join(allowed)}"
                raise InvalidRequestError(message)
        check.name(worker, "worker")
        check.delay(timeout_s, "timeout_s")
        if not timeout_s:
            message = "timeout_s must be more than 0 seconds"
            raise InvalidRequestError(message)
        for name, flag in (("create", create), ("fires_schedules", fires)):
            if not isinstance(flag, bool):
                message = f"{name} must be True or False, got {type(flag).__name__}"
                raise InvalidRequestError(message)
        payloads.check_type(payload_type)
        if credentials.tls is not None:
            from bucketq.rpc.grpc.tls import read_client  # noqa: PLC0415 - few clients give files

            read_client(credentials.tls)


def direct_committer(
    place: Location, arguments: ConnectArguments, clock: Clock, register: Register
) -> DirectCommitter:
    """Make a committer that writes each request by itself."""
    from bucketq.commit.direct_committer import DirectCommitter  # noqa: PLC0415 - see above

    return DirectCommitter(
        register,
        clock,
        timeout_s=arguments.timeout_s,
        create=arguments.create,
        archive=archive_writer(place),
        fires_schedules=arguments.fires_schedules,
    )


def group_committer(
    place: Location, arguments: ConnectArguments, clock: Clock, register: Register
) -> GroupCommitter:
    """Make a committer that writes the requests of all callers of this process together."""
    from bucketq.commit.group_committer import GroupCommitter  # noqa: PLC0415 - see above

    return GroupCommitter(
        register,
        clock,
        timeout_s=arguments.timeout_s,
        create=arguments.create,
        archive=archive_writer(place),
    )


def archive_writer(place: Location) -> ArchiveWriter:
    """Make what writes the archive of the queue at a place."""
    from bucketq.archive.archive_layout import Layout  # noqa: PLC0415 - see above
    from bucketq.archive.writer import ArchiveWriter  # noqa: PLC0415

    return ArchiveWriter(place.store, Layout.of(place.store.url, place.key))


def own_register(place: Location, clock: Clock) -> Register:
    """Make a register whose commits the history ascribes to the user and host of this process."""
    from bucketq.commit.objects.register import Register  # noqa: PLC0415 - see above

    register = Register(place.store, place.key, place.url, clock, place.partition)
    register.writer = writer_name()
    return register
