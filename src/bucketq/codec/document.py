"""A state together with its encoded form, so that a commit encodes only what has changed.

The rows of a table are encoded block by block, and a block that was not changed is taken from
the commit before: its text is a view of the bytes that were written then, so that no row is kept
encoded twice. Checksums are kept for blocks and for groups of them, and that of the whole follows
from those, so that only the blocks that were touched are read again.
"""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
from msgspec import UNSET, Raw

from bucketq.codec.crc import Shift, combine, shift_of
from bucketq.codec.layout import (
    CHANGES,
    COMMA,
    END,
    OPENINGS,
    OPTIONAL,
    SEGMENTS,
    SEPARATOR,
    Head,
)
from bucketq.codec.unknown_fields import encode_row
from bucketq.model import history
from bucketq.model.history import ChangeRecord
from bucketq.model.indexes.cold_rows import ColdRows
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.indexes.table import Table
from bucketq.model.segments import SegmentRecord
from bucketq.model.state import State

_GROUP_BITS = 3
"""How many blocks have one checksum together. With more blocks more checksums are put together for
one that was touched, with fewer there are more groups; a queue has mostly about twenty blocks."""

_SHORT_BYTES = 4 * 1024
"""A text that is not longer is read again: that takes 2 us, about as long as putting
two checksums together."""
_CHANGES_BYTES = 48 * 1024
"""The same for the rows of a history: nearly every commit has a length of them that was not met
before, which takes longer to put together."""

_CLOSING = b"\n]"
"""How a table ends; no row begins like that."""

_encoder = msgspec.json.Encoder()

_Text = bytes | memoryview
_Sum = tuple[int, Shift]


class Prepared(NamedTuple):
    """The bytes of one commit, frozen, and what names them."""

    body: bytes
    version: int
    commit: str


class _Section:
    """The encoded form of one table: the rows of each block, each row preceded by a line break."""

    def __init__(self, name: str, table: Table[Any]) -> None:
        self.name = name
        self.table = table
        self._texts: dict[int, _Text] = {}
        self._sums: dict[int, _Sum] = {}
        """Of blocks that rest, the checksum, and what its length does to one before it."""
        self._groups: dict[int, _Sum] = {}
        """The same of each group that rests."""
        self._grouped: dict[int, list[int]] = {}
        """The blocks of each group; empty: not known."""

    @property
    def is_needed(self) -> bool:
        """Whether there is something to encode, or to forget."""
        return bool(self.table.by_id or self.table.touched)

    def adopt(self, body: bytes, start: int, end: int) -> None:
        """Take the encoded rows, without the table's brackets, from an object just read.

        They are taken only if every block begins with a line as this code writes it: then the text
        between the beginnings of two blocks is the rows of the first.
        """
        openings = [_line_start(rows[0]) for rows in self.table.blocks.values()]
        if not openings or not body.startswith(openings[0], start):
            return
        starts, ends = [start], list[int]()
        for opening in openings[1:]:
            comma = body.find(COMMA + opening, starts[-1], end)
            if comma < 0:
                return
            ends.append(comma)
            starts.append(comma + len(COMMA))
        if body.find(_CLOSING, starts[-1], end) >= 0:
            return  # A table follows that this code does not know; it is kept with the head.
        view = memoryview(body)
        for number, begin, stop in zip(self.table.blocks, starts, [*ends, end], strict=True):
            self._texts[number] = view[begin:stop]

    def encode(self, state: State, crc: int) -> tuple[list[_Text], int, int]:
        """The parts of the table's text, the checksum up to there, and the length of the parts."""
        touched = self.table.take_touched()
        if not self.table.blocks:
            self._texts, self._sums, self._groups, self._grouped = {}, {}, {}, {}
            return [], crc, 0
        if not self._texts:
            touched = set(self.table.blocks)
        for number in touched:
            self._groups.pop(number >> _GROUP_BITS, None)
            self._sums.pop(number, None)
            rows = self.table.blocks.get(number)
            if (rows is None) == (number in self._texts):  # The blocks are not the same any more.
                self._grouped = {}
            if rows is None:
                self._texts.pop(number, None)
            else:
                self._texts[number] = self._encode_rows(state, rows)
        if len(self._texts) == 1 and not self._groups:  # Most tables are small.
            (text,) = self._texts.values()
            if touched or len(text) <= _SHORT_BYTES:
                return [text], crc32(text, crc), len(text)
        return self._join(crc, touched)

    def rest_on(self, body: memoryview, start: int) -> None:
        """Keep the text as views of an object that was just encoded, to keep it once only."""
        for number in self.table.blocks:
            stop = start + len(self._texts[number])
            self._texts[number] = body[start:stop]
            start = stop + len(COMMA)

    def _join(self, crc: int, touched: set[int]) -> tuple[list[_Text], int, int]:
        """Join the blocks; the checksums of groups that rest are not computed again."""
        texts = [self._texts[number] for number in self.table.blocks]
        parts: list[_Text] = [COMMA] * (2 * len(texts) - 1)
        parts[::2] = texts
        touched_groups = {number >> _GROUP_BITS for number in touched}
        for place, (group, blocks) in enumerate(self._members().items()):
            if place:
                crc = crc32(COMMA, crc)
            if group in touched_groups:
                crc = self._sum(blocks, touched, crc)
                continue
            known = self._groups.get(group)
            # The checksum of a group is kept once it rests: most change again at once.
            if known is None:
                length = sum([len(self._texts[each]) for each in blocks]) + len(blocks) - 1
                known = self._groups[group] = self._sum(blocks, touched, 0), shift_of(length)
            crc = combine(crc, *known)
        return parts, crc, sum(map(len, texts)) + len(texts) - 1

    def _members(self) -> dict[int, list[int]]:
        """The blocks of each group."""
        if not self._grouped:
            for number in self.table.blocks:
                self._grouped.setdefault(number >> _GROUP_BITS, []).append(number)
        return self._grouped

    def _sum(self, blocks: list[int], touched: set[int], crc: int) -> int:
        """The checksum of the rows of some blocks, behind what ``crc`` is the checksum of."""
        for place, number in enumerate(blocks):
            if place:
                crc = crc32(COMMA, crc)
            text = self._texts[number]
            known = self._sums.get(number)
            if known is None and (number in touched or len(text) <= _SHORT_BYTES):
                crc = crc32(text, crc)
                continue
            if known is None:
                known = self._sums[number] = crc32(text), shift_of(len(text))
            crc = combine(crc, *known)
        return crc

    def _encode_rows(self, state: State, rows: list[Any]) -> bytes:
        if not state.extra:
            if self.name == "jobs" and (lines := state.done.lines_of(rows)) is not None:
                return b"\n" + SEPARATOR.join(lines)
            text = _encoder.encode_lines(rows)
            joined = text.replace(b"\n", SEPARATOR)
            if len(joined) - len(text) == len(rows):  # A comma for each line, and a line a row.
                return b"\n" + joined[: -len(SEPARATOR)]
        lines = [encode_row(row, state.extra.get((self.name, row.id))) for row in rows]
        return b"\n" + SEPARATOR.join(lines)


def _sum_parts(parts: list[_Text], crc: int = 0) -> int:
    for part in parts:
        crc = crc32(part, crc)
    return crc


def _line_start(row: Any) -> bytes:
    """What a row begins with."""
    return b'\n{"id":' + _encoder.encode(row.id) + b","


class _SegmentSection:
    """The encoded form of the table of segments, of which there may be a thousand."""

    def __init__(self, rows: ColdRows) -> None:
        self.table = rows.segments
        self._rows = rows
        self._text = b""
        self._sorted: list[Segment] = []
        self._generation = -1
        """That of the rows when they were sorted."""
        self._lines: dict[str, tuple[SegmentRecord, bytes]] = {}
        """The line of each entry, which is the same as long as the entry is."""

    @property
    def is_needed(self) -> bool:
        """Whether there is something to encode, or to forget."""
        return bool(self.table) or self._rows.is_touched

    def adopt(self, body: bytes, start: int, end: int) -> None:
        """Take the encoded rows, without the table's brackets, from an object just read."""
        self._text = body[start:end]

    def encode(self, state: State, crc: int) -> tuple[list[_Text], int, int]:
        """The parts of the table's text, the checksum up to there, and the length of the parts."""
        if self._rows.is_touched or not self._text:
            self._rows.is_touched = False
            if self._generation != self._rows.generation:
                self._generation = self._rows.generation
                self._sorted = sorted(self.table.values(), key=attrgetter("record.order"))
                self._lines = {
                    each: self._lines[each] for each in self.table if each in self._lines
                }
            lines = [self._line(state, each.entry()) for each in self._sorted]
            self._text = b"\n" + SEPARATOR.join(lines) if lines else b""
        return ([self._text] if self._text else []), crc32(self._text, crc), len(self._text)

    def _line(self, state: State, entry: SegmentRecord) -> bytes:
        known = self._lines.get(entry.id)
        if known is not None and known[0] is entry:
            return known[1]
        line = encode_row(entry, state.extra.get((SEGMENTS, entry.id)))
        self._lines[entry.id] = (entry, line)
        return line

    def rest_on(self, body: memoryview, start: int) -> None:
        """Do nothing: the text is small, and kept as it is."""


class _ChangeSection:
    """The encoded form of the history's rows: large ones, that never change until they leave.

    New ones come behind the others, so that neither the text of those nor its checksum is made
    again, until some are removed.
    """

    def __init__(self, table: Table[ChangeRecord]) -> None:
        self.table = table
        self._first = ""
        """The id of the first row of the text."""
        self._last = 0
        """The version of the last row of the text."""
        self._text: _Text = b""
        self._length = 0
        self._crc = 0

    @property
    def is_needed(self) -> bool:
        """Whether there is something to encode, or to forget."""
        return bool(self.table.by_id or self.table.touched)

    def adopt(self, body: bytes, start: int, end: int) -> None:
        """Do nothing: their parts are kept encoded, and are soon put together."""

    def encode(self, state: State, crc: int) -> tuple[list[_Text], int, int]:
        """The parts of the table's text, the checksum up to there, and the length of the parts."""
        self.table.take_touched()
        first = next(iter(self.table), None)
        if first is None or first.id != self._first:
            self._first, self._last = "" if first is None else first.id, 0
            self._text, self._crc = b"", 0
        new: list[_Text] = []
        for row in self.table.after(self._last):
            line = b"\n" + encode_row(row, state.extra.get((CHANGES, row.id)))
            new += (COMMA, line) if self._last else (line,)
            self._last = row.seq
        self._crc = _sum_parts(new, self._crc)
        parts = [self._text, *new] if self._text else new
        self._length = sum(map(len, parts))
        if self._length <= _CHANGES_BYTES:
            return parts, _sum_parts(parts, crc), self._length
        return parts, combine(crc, self._crc, shift_of(self._length)), self._length

    def rest_on(self, body: memoryview, start: int) -> None:
        """Keep the text as a view of an object that was just encoded, to keep it once only."""
        self._text = body[start : start + self._length]


_AnySection = _Section | _SegmentSection | _ChangeSection


class Document:
    """A state that can be written."""

    def __init__(self, state: State) -> None:
        """Wrap a state of which nothing is encoded yet."""
        self.state = state
        self._sections: dict[str, _AnySection] = {
            "sessions": _Section("sessions", state.sessions.table),
            "keys": _Section("keys", state.keys),
            "tokens": _Section("tokens", state.tokens),
            "consumers": _Section("consumers", state.consumers),
            "writers": _Section("writers", state.writers),
            "schedules": _Section("schedules", state.schedules),
            "limits": _Section("limits", state.limits),
            "buckets": _Section("buckets", state.buckets),
            "batches": _Section("batches", state.batches),
            "audit": _Section("audit", state.audit),
            "workers": _Section("workers", state.workers),
            "results": _Section("results", state.results),
            "reservations": _Section("reservations", state.reservations),
            SEGMENTS: _SegmentSection(state.cold.rows),
            "heads": _Section("heads", state.history.copies),
            CHANGES: _ChangeSection(state.history.changes),
            "jobs": _Section("jobs", state.jobs),
        }

    def adopt(self, body: bytes) -> None:
        """Keep what can be kept of the object that the state was just read from."""
        if not body.endswith(END):
            return
        found: dict[int, str] = {}
        at = 0
        for name, opening in OPENINGS.items():
            # What may be missing is looked for only before the jobs, of which there may be many.
            last = body.find(OPENINGS["jobs"], at) if name in OPTIONAL else len(body)
            place = body.find(opening, at, last)
            if place >= 0:
                found[place], at = name, place
            elif name not in OPTIONAL:
                return
        ends = [*list(found)[1:], len(body) - len(END)]
        for (place, name), end in zip(found.items(), ends, strict=True):
            self._sections[name].adopt(body, place + len(OPENINGS[name]), end)

    def prepare(self, commit: str, at: datetime | None = None) -> Prepared:
        """Encode the state as the next version, and move it there.

        The bytes are frozen: what is applied to the state from now on belongs to the commit
        after this one. ``at`` is the time of the version; only a history needs it.
        """
        state = self.state
        state.version += 1
        state.commits.append(commit)
        state.changes, state.added_bytes = [], 0
        history.seal(state, commit, at)
        if state.extra:
            self._forget_extra()
        head = encode_head(state)
        parts: list[_Text] = [head]
        crc, length = crc32(head), len(head)
        starts: list[tuple[_AnySection, int]] = []
        for name, section in self._sections.items():
            # Most tables are empty, and a section of one costs as much as one with a few rows.
            if name in OPTIONAL and not section.is_needed:
                continue
            opening = OPENINGS[name]
            texts, after, text_length = section.encode(state, crc32(opening, crc))
            if texts or name not in OPTIONAL:
                parts.append(opening)
                parts += texts
                length += len(opening)
                starts.append((section, length))
                crc, length = after, length + text_length
        parts.append(END)
        crc, length = crc32(END, crc), length + len(END)
        number = 2 if state.requires else 1
        first = b'{"format":%d,"checksum":"crc32:%08x","bytes":%d,\n' % (number, crc, length)
        body = b"".join([first, *parts])
        view = memoryview(body)
        for section, start in starts:
            section.rest_on(view, len(first) + start)
        state.size_bytes = len(body)
        return Prepared(body, state.version, commit)

    def _forget_extra(self) -> None:
        """Drop unknown fields of removed rows, so that they do not come back with another row."""
        state = self.state
        broker = "" if state.broker is None else state.broker.id
        gone = [
            (name, row_id)
            for name, row_id in state.extra
            if (name in self._sections and row_id not in self._sections[name].table)
            or (name == "broker" and row_id != broker)
        ]
        for slot in gone:
            del state.extra[slot]


def encode_head(state: State, *, is_inline: bool = False) -> bytes:
    """The fields of the object itself, without the braces around them.

    ``is_inline`` leaves out what only an object with segments or a history has.
    """
    head = Head(
        version=state.version,
        commit=state.commits[-1],
        incarnation=state.incarnation,
        requires=UNSET if is_inline else list(state.requires) or UNSET,
        former=UNSET if is_inline else list(state.former) or UNSET,
        partition=state.partition or UNSET,
        created_at=state.created_at,
        broker=Raw(b"null")
        if state.broker is None
        else Raw(encode_row(state.broker, state.extra.get(("broker", state.broker.id)))),
        settings=Raw(encode_row(state.settings, state.extra.get(("settings", "")))),
        paused=state.paused,
        paused_kinds=list(state.paused_kinds),
        next_seq=state.next_seq,
        horizon=state.sessions.horizon,
        time=UNSET if state.time is None else Raw(_encoder.encode(state.time)),
        since=UNSET if is_inline else state.history.since or UNSET,
        last_served=[(*key, group) for key, group in state.waiting.turns.last_served.items()]
        or UNSET,
        commits=list(state.commits),
    )
    return encode_row(head, state.extra.get(("head", "")))[1:-1]
