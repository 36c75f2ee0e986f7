"""Which broker serves a queue, read from the first lines of its object only.

For clients that look for the broker and do not need the jobs. The rows are not read and the
checksum is not checked, so nothing may be written based on the result.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from bucketq.codec.decode import decode
from bucketq.codec.layout import FORMAT
from bucketq.model.records import BrokerRecord


class Heading(Struct, frozen=True):
    """What the head of an object says of the queue and of its broker."""

    incarnation: str
    version: int
    broker: BrokerRecord | None


class _Frame(Struct, frozen=True):
    format: int


class _Broker(Struct, frozen=True):
    """A broker record that tolerates fields of a newer bucketq."""

    address: str
    id: str
    epoch: int
    since: str
    host: str = ""
    tls: bool = False


class _Head(Struct, frozen=True):
    incarnation: str
    version: int
    broker: _Broker | None


def read_heading(body: bytes, where: str) -> Heading:
    """Read the head of an object; if that fails, decode all of it to report why.

    Raises:
        NewerFormatError: A newer bucketq wrote it.
        CorruptStateError: It is not an object that bucketq wrote.
    """
    try:
        # Only these lines are cut out, for what follows may be large.
        middle = body.index(b"\n")
        first, second = body[:middle], body[middle + 1 : body.index(b"\n", middle + 1)]
        frame = msgspec.json.decode(first.rstrip(b",") + b"}", type=_Frame)
        if frame.format != FORMAT:
            return _read_whole(body, where)
        head = msgspec.json.decode(b"{" + second.rstrip(b",") + b"}", type=_Head)
        broker = head.broker
        record = (
            None if broker is None else msgspec.convert(msgspec.to_builtins(broker), BrokerRecord)
        )
    except (ValueError, msgspec.MsgspecError):
        return _read_whole(body, where)
    return Heading(head.incarnation, head.version, record)


def _read_whole(body: bytes, where: str) -> Heading:
    state = decode(body, where).state
    return Heading(state.incarnation, state.version, state.broker)
