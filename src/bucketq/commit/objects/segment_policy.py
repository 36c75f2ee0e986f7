"""``SegmentPolicy``: when segments are merged and swept, and how long one may wait for its name.

These are not settings of a queue, because no operator has a reason to change them. Simulations do:
what takes hours and thousands of commits in production must happen in a minute there.
"""

from __future__ import annotations

from msgspec import Struct

from bucketq.codec.segment_file import SEGMENT_BYTES

FULL_BYTES = SEGMENT_BYTES // 4
"""Larger segments are not merged, because four of them do not fit in one: writing all rows again
would save few entries. A gigabyte of waiting jobs has at most 500 entries then, 140 KB."""
_MARGIN = 4
"""A segment may be introduced for so many times the versions that passed during the last put, if
that is more than the policy's least: the store is slow then, and the commits are not."""


class SegmentPolicy(Struct, frozen=True, kw_only=True):
    """The times and numbers by which a process spills, merges and sweeps."""

    least_versions: int = 1024
    """For at least so many versions a new segment may be introduced: minutes of a busy queue. One
    that comes too late was written in vain, and a sweep waits for it that long."""
    pass_s: float = 1.0
    """The pause between two passes of upkeep. A pass without work looks at the table of segments,
    and no more."""
    neighbours: int = 32
    """How many segments are merged into one. So many spills fill a segment, and so a row is written
    again only once. With eight it was written twice, which took 4 % of the rate of a deep queue."""
    most_keys: int = 1000
    """How many idempotency keys the object holds before the oldest move: about 150 KiB of them."""
    most_ranges: int = 4096
    """How many ranges of rows that have left the entries hold together, about 64 KiB, before most
    of them move to a vector."""
    most_entry_bytes: int = 1 << 20
    """How large the table of segments is before a process that keeps no queue open, and so does no
    upkeep, does some of it: every commit writes the table, and small segments make it large."""
    first_sweep_s: float = 600.0
    sweep_s: float = 3600.0
    """When segments are swept: soon after a process that was killed has left some, and rarely,
    because a listing costs as much as a write and left-over segments only cost storage."""

    def until(self, version: int, passed: int) -> int:
        """The last version that may introduce a segment that is put now.

        ``passed`` is how many versions passed during the last put.
        """
        return version + max(self.least_versions, _MARGIN * passed)


DEFAULT_POLICY = SegmentPolicy()
