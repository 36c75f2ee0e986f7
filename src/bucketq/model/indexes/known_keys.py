"""The idempotency keys of a queue: the newest are in the object, the others in segments.

A segment holds its keys in the order of their times. So those that expire are its first ones: their
end is found by reading a few blocks, and a key whose clock was ahead keeps only itself from
expiring. A key in a segment is found by the hash of its id, and leaves when it is pushed again
after it has expired; it never comes back to the object.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter

from bucketq.model.indexes.age_index import AgeIndex
from bucketq.model.indexes.cold_rows import ColdRows
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.indexes.table import Table
from bucketq.model.records import KeyRecord
from bucketq.model.segments import SegmentIndex, SegmentRecord

_TICK = timedelta(microseconds=1)
"""The shortest time between two moments."""

_at = attrgetter("at")
_age = attrgetter("at", "seq")


class KnownKeys:
    """The keys of one state. Methods that look into segments raise ``ColdRowsNeededError``."""

    def __init__(self, table: Table[KeyRecord], rows: ColdRows) -> None:
        """Know the keys of ``table``, and those in the segments of ``rows``."""
        self._table = table
        self._rows = rows
        self._ages = AgeIndex(table.by_id, _at)
        self._latest = max(map(_at, table), default=None)
        """No key in the object has a later time than this."""
        self._unread = {segment.record.id: segment for segment in rows.of_class("keys")}
        """The segments whose indexes have not been read."""
        self._bounds: dict[str, datetime] = {}
        """No key of a segment is older than this."""
        self._last, self._last_of = 0, -1
        """The highest number in segments, and the generation of segments that it is of."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self._table) + self._rows.count("keys")

    @property
    def next_seq(self) -> int:
        """The number of a key that is added behind all others, also those in segments."""
        if self._last_of != self._rows.generation:
            lasts = (segment.record.last for segment in self._rows.of_class("keys"))
            self._last, self._last_of = max(lasts, default=0), self._rows.generation
        return max(self._table.next_seq, self._last + 1)

    def find(self, keys: Collection[str]) -> dict[str, KeyRecord]:
        """Find keys, wherever they are; those that are not known are left out."""
        by_id = self._table.by_id
        found = {key: by_id[key] for key in keys if key in by_id}
        if len(found) < len(keys) and self._rows.count("keys"):
            cold = self._rows.find_keys([key for key in keys if key not in found])
            found |= {key: record for key, (record, _) in cold.items()}
        return found

    def add(self, record: KeyRecord) -> None:
        """Add a key to the object."""
        self._table.put(record)
        self._ages.add(record)
        self._latest = max(self._latest or record.at, record.at)

    def forget(self, key: str) -> None:
        """Forget a key that was found before, wherever it is."""
        if key in self._table:
            self._table.remove(key)
        else:
            segment, position = self._rows.find_keys([key])[key][1]
            self._rows.leave(segment, position, position)

    def oldest(self) -> KeyRecord | None:
        """The oldest key in the object, or None."""
        return self._ages.first()

    def oldest_cold_at(self) -> datetime | None:
        """No key in segments is older than this, as far as is known; None: there is none.

        Of a segment whose index has not been read it is known when it was written. Its keys are
        older than that, so that the answer is too late for them rather than too early.
        """
        named = self._rows.segments
        unread = [each.record.at for each in self._unread.values() if self._rows.is_readable(each)]
        bounds = [bound for name, bound in self._bounds.items() if name in named]
        return min([*unread, *bounds], default=None)

    def before(self, at: datetime, count: int) -> list[KeyRecord]:
        """The keys with an earlier time than ``at``, oldest first, and ``count`` at most."""
        found = self._ages.before(at, count)
        for segment, index in self._indexes():
            if self._bounds[segment.record.id] < at:
                found += self._some(segment, index, 0, self._place_of(segment, index, at), count)
        return sorted(found, key=_age)[:count]

    def after(self, at: datetime, count: int) -> list[KeyRecord]:
        """The keys with a later time than ``at``, oldest first, and ``count`` at most."""
        found = list[KeyRecord]()
        if self._latest is not None and self._latest > at:
            found = [key for key in self._table if key.at > at]
        for segment, index in self._indexes():
            if index.times is not None and index.times[1] > at:
                start = self._place_of(segment, index, at + _TICK)
                found += self._some(segment, index, start, segment.record.rows, count)
        return sorted(found, key=_age)[:count]

    def expire_cold(self, at: datetime) -> list[str]:
        """Drop the keys in segments with an earlier time than ``at``; return the segments."""
        ends = []
        for segment, index in self._indexes():
            if self._bounds[segment.record.id] < at:
                ends.append((segment, self._place_of(segment, index, at)))
        changed = []
        for segment, end in ends:
            self._bounds[segment.record.id] = at
            if self._rows.leave_below(segment, end):
                changed.append(segment.record.id)
        self._bounds = {k: v for k, v in self._bounds.items() if k in self._rows.segments}
        return changed

    def name(self, record: SegmentRecord, index: SegmentIndex) -> None:
        """Name a segment of keys that were counted before."""
        segment = self._rows.add(record)
        segment.index = index
        self._note(segment, index)

    def spill(self, record: SegmentRecord, index: SegmentIndex, keys: Iterable[KeyRecord]) -> None:
        """Move keys of the object to a segment that holds them."""
        for key in keys:
            self._table.remove(key.id)
        self._ages.sweep()
        self.name(record, index)

    def _indexes(self) -> list[tuple[Segment, SegmentIndex]]:
        found = self._rows.indexes("keys")
        for segment, index in found:
            if segment.record.id not in self._bounds:
                self._note(segment, index)
            self._unread.pop(segment.record.id, None)
        return found

    def _note(self, segment: Segment, index: SegmentIndex) -> None:
        if index.times is None:
            message = f"segment {segment.record.id} has no times"
            raise AssertionError(message)
        self._bounds[segment.record.id] = index.times[0]

    def _place_of(self, segment: Segment, index: SegmentIndex, at: datetime) -> int:
        """Return the position of the first key that is not older than ``at``, gone or not."""
        if index.times is not None and index.times[1] < at:
            return segment.record.rows
        low, high = 0, len(index.blocks) - 1
        while low < high:
            middle = (low + high) // 2
            stop = index.blocks[middle].stop
            (last,) = self._rows.keys_of(segment, index, stop - 1, stop)
            low, high = (middle + 1, high) if last.at < at else (low, middle)
        block = index.blocks[low]
        keys = self._rows.keys_of(segment, index, block.start, block.stop)
        return block.start + bisect_left(keys, at, key=_at)

    def _some(
        self, segment: Segment, index: SegmentIndex, start: int, stop: int, count: int
    ) -> list[KeyRecord]:
        """Return the first keys of a range of positions that have not left."""
        live = (position for position in range(start, stop) if position not in segment.gone)
        positions = list(islice(live, count))
        if not positions:
            return []
        first = positions[0]
        keys = self._rows.keys_of(segment, index, first, positions[-1] + 1)
        return [keys[position - first] for position in positions]
