"""Which broker serves a queue, read from the first lines of its object only.

For clients that look for the broker and do not need the jobs. The rows are not read and the
checksum is not checked, so nothing may be written based on the result. So what the object requires
of its readers does not matter here either: a broker that knows it may serve a client that does not.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, structs

from bucketq.codec.layout import FORMAT
from bucketq.model.partitions import Partition
from bucketq.model.records import BrokerRecord


class Heading(Struct, frozen=True):
    """What the head of an object says of the queue and of its broker."""

    incarnation: str
    version: int
    broker: BrokerRecord | None
    partition: Partition | None = None


class _Broker(BrokerRecord, frozen=True, forbid_unknown_fields=False):
    """A broker record that tolerates fields of a newer bucketq."""


class _Head(Struct, frozen=True):
    format: int
    incarnation: str
    version: int
    broker: _Broker | None
    partition: Partition | None = None


def read_heading(body: bytes, where: str) -> Heading:
    """Read the head of an object; if that fails, decode all of it to report why.

    Raises:
        NewerFormatError: A newer bucketq wrote it.
        CorruptStateError: It is not an object that bucketq wrote.
    """
    try:
        # Only the first two lines are copied, because what follows may be large.
        end = body.index(b"\n", body.index(b"\n") + 1)
        head = msgspec.json.decode(body[:end].rstrip(b",") + b"}", type=_Head)
    except (ValueError, msgspec.MsgspecError):
        head = None
    if head is None or not 1 <= head.format <= FORMAT:
        from bucketq.codec.decode import decode  # noqa: PLC0415 - most clients read no jobs

        state = decode(body, where).state
        return Heading(state.incarnation, state.version, state.broker, state.partition)
    broker = None if head.broker is None else BrokerRecord(*structs.astuple(head.broker))
    return Heading(head.incarnation, head.version, broker, head.partition)
