"""Reservations, as data: how a process writes segments itself, and adds them in one commit.

A bulk write of millions of jobs first *reserves*: a commit lists the reservation in the queue. Then
any number of processes put segments whose names begin with it; nothing deletes them while it is
listed. In the end one commit *adopts* them: it names the segments, moves the position of the writer
and removes the reservation. A reservation that is not renewed expires, and what was put under it is
swept.

``adoption`` says what each operation does.
"""

import re
from datetime import datetime

from msgspec import Struct

from bucketq.model.base import Operation
from bucketq.model.segments import SegmentRecord

_SEGMENT = r"(r([0-9]{20})-[0-9a-f]{16})-[0-9a-f]{16}"
NAME = r"[0-9a-f]{16}"
"""What a writer calls its reservation: 64 random bits."""

RENEWALS = 24
"""How often a reservation is renewed in the time after which it expires: if it is a day, hourly.
A store that is away for hours must not cost the whole write."""


class ReservationRecord(Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A reservation as the object holds it."""

    id: str
    """``r``, the version that lists it first, and the name that the writer gave it."""
    seq: int
    writer: str
    at: datetime
    """When it was made or renewed."""


class Reserve(Operation, frozen=True):
    """Reserve names for the segments of a position of a writer. Answers the reservation.

    Answers an empty string if the position was published. A writer has one reservation. Reserving
    under the same name answers the same one, as often as it is repeated; an earlier one of another
    name is removed, which fences the processes that use it.
    """

    writer: str
    batch: int
    name: str
    """64 random bits in hexadecimal."""
    part: int = 0
    joins: bool = False
    """Whether it is one of several processes that share the name, and is refused if the writer has
    a reservation of another name: a process of an earlier run must not fence the newest."""


class RenewReservation(Operation, frozen=True):
    """Keep a reservation from expiring."""

    reservation: str


class DropReservation(Operation, frozen=True):
    """Give a reservation up. Answers whether there was one."""

    reservation: str


class Adopt(Operation, frozen=True):
    """Add the jobs of segments that were put under a reservation, all or none.

    Answers whether that was now: a position that was published changes nothing.
    """

    reservation: str
    writer: str
    batch: int
    segments: tuple[SegmentRecord, ...]
    """The entries, with numbers from 0 on in each; their order is the order of the push."""
    part: int = 0


AnyReservation = Reserve | RenewReservation | DropReservation | Adopt
RESERVATIONS = (Reserve, RenewReservation, DropReservation, Adopt)


def reservation_of(segment_id: str) -> tuple[str, int] | None:
    """The reservation under which a segment was put, and its version; None: it has none."""
    found = re.fullmatch(_SEGMENT, segment_id)
    return None if found is None else (found[1], int(found[2]))
