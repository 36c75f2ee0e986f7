"""A state together with its encoded form, so that a commit encodes only what has changed.

The rows of a table are encoded block by block, and a block that nobody touched is taken from
the commit before, with its checksum. The checksums of blocks are kept in groups as well, so
that the checksum of the whole costs a few operations, not one a block.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from bucketq.codec.crc import combine, drop_first_byte
from bucketq.codec.layout import END, FORMAT, OPENINGS, SEPARATOR, Head
from bucketq.model.state import State
from bucketq.model.table import Table

_GROUP_BITS = 6

_encoder = msgspec.json.Encoder()


class Prepared(NamedTuple):
    """The bytes of one commit, frozen, and what names them."""

    body: bytes
    version: int
    commit: str


class _Piece:
    """The encoded rows of one block, each preceded by a separator."""

    __slots__ = ("_crc", "text")

    def __init__(self, text: bytes | memoryview) -> None:
        self.text = text
        self._crc: int | None = None

    @property
    def crc(self) -> int:
        if self._crc is None:
            self._crc = crc32(self.text)
        return self._crc


class _Section:
    """The encoded form of one table."""

    def __init__(self, name: str, table: Table[Any]) -> None:
        self.name = name
        self.table = table
        self._pieces: dict[int, _Piece] = {}
        self._groups: dict[int, tuple[int, int]] = {}

    def adopt(self, body: bytes, start: int, end: int) -> None:
        """Take the encoded rows, without the table's brackets, from an object just read.

        They are only taken where every block begins with a line, as this code writes it: then
        what stands between the beginnings of two blocks are the rows of the first.
        """
        openings = [_line_start(rows[0]) for rows in self.table.blocks.values()]
        if not openings or not body.startswith(openings[0][1:], start):
            return
        starts = [start]
        for opening in openings[1:]:
            starts.append(body.find(opening, starts[-1] + 1, end))
            if starts[-1] < 0:
                return
        view, ends = memoryview(body), [*starts[1:], end]
        for number, begin, stop in zip(self.table.blocks, starts, ends, strict=True):
            self._pieces[number] = _Piece(view[begin:stop])
        first = next(iter(self.table.blocks))
        self._pieces[first] = _Piece(SEPARATOR[:1] + body[start : ends[0]])

    def encode(self, state: State) -> tuple[list[bytes | memoryview], int, int]:
        """The parts of the table's text, their checksum and their length."""
        for number in self.table.take_touched():
            self._groups.pop(number >> _GROUP_BITS, None)
            rows = self.table.blocks.get(number)
            if rows is None:
                self._pieces.pop(number, None)
            else:
                self._pieces[number] = _Piece(self._encode_rows(state, rows))
        for number in self.table.blocks.keys() - self._pieces.keys():
            rows = self.table.blocks[number]
            self._pieces[number] = _Piece(self._encode_rows(state, rows))
        parts, crc, length = self._join()
        if parts:
            crc = drop_first_byte(crc, length, SEPARATOR[:1])
            length -= 1
            parts[0] = memoryview(parts[0])[1:]
        return parts, crc, length

    def _join(self) -> tuple[list[bytes | memoryview], int, int]:
        parts: list[bytes | memoryview] = []
        crc = length = 0
        by_group: dict[int, list[_Piece]] = {}
        for number in self.table.blocks:
            piece = self._pieces[number]
            parts.append(piece.text)
            by_group.setdefault(number >> _GROUP_BITS, []).append(piece)
        groups = {}
        for group, pieces in by_group.items():
            summed = self._groups.get(group) or _sum(pieces)
            groups[group] = summed
            crc = combine(crc, *summed)
            length += summed[1]
        self._groups = groups
        return parts, crc, length

    def _encode_rows(self, state: State, rows: list[Any]) -> bytes:
        if not state.extra:
            text = _encoder.encode_lines(rows)
            if text.count(b"\n") == len(rows):
                return SEPARATOR + text[:-1].replace(b"\n", SEPARATOR)
        lines = [_with_extra(row, state.extra.get((self.name, row.id))) for row in rows]
        return SEPARATOR + SEPARATOR.join(lines)


def _sum(pieces: list[_Piece]) -> tuple[int, int]:
    crc = length = 0
    for piece in pieces:
        crc = combine(crc, piece.crc, len(piece.text))
        length += len(piece.text)
    return crc, length


def _line_start(row: Any) -> bytes:
    """What the line of a row that is not the first begins with."""
    return SEPARATOR + b'{"id":' + _encoder.encode(row.id) + b","


def _with_extra(row: Struct, extra: dict[str, Raw] | None) -> bytes:
    """Encode a row with the fields that this code does not know, on one line."""
    text = _encoder.encode(row)
    if b"\n" in text:  # A payload came with line breaks between its values.
        text = msgspec.json.format(text, indent=-1)
    if not extra:
        return text
    return text[:-1] + (b"," if len(text) > 2 else b"") + _encoder.encode(extra)[1:]  # noqa: PLR2004


class Document:
    """A state that can be written."""

    def __init__(self, state: State) -> None:
        """Wrap a state of which nothing is encoded yet."""
        self.state = state
        self._sections = {
            "sessions": _Section("sessions", state.sessions.table),
            "keys": _Section("keys", state.keys),
            "jobs": _Section("jobs", state.jobs),
        }

    def adopt(self, body: bytes) -> None:
        """Keep what can be kept of the object that the state was just read from."""
        if self.state.extra or not body.endswith(END):
            return
        found = [0]
        for opening in OPENINGS.values():
            found.append(body.find(opening, found[-1]))
            if found[-1] < 0:
                return
        ends = [*found[2:], len(body) - len(END)]
        for (name, opening), at, end in zip(OPENINGS.items(), found[1:], ends, strict=True):
            self._sections[name].adopt(body, at + len(opening), end)

    def prepare(self, commit: str) -> Prepared:
        """Encode the state as the next version, and move it there.

        The bytes are frozen: what is applied to the state from now on belongs to the commit
        after this one.
        """
        state = self.state
        state.version += 1
        state.commits.append(commit)
        state.changes, state.added_bytes = [], 0
        self._forget_extra()
        parts: list[bytes | memoryview] = []
        crc = length = 0

        def add(texts: list[bytes | memoryview], text_crc: int, text_length: int) -> None:
            nonlocal crc, length
            parts.extend(texts)
            crc = combine(crc, text_crc, text_length)
            length += text_length

        def add_text(text: bytes) -> None:
            add([text], crc32(text), len(text))

        add_text(_encode_head(state))
        for name, opening in OPENINGS.items():
            add_text(opening)
            add(*self._sections[name].encode(state))
        add_text(END)
        first = b'{"format":%d,"checksum":"crc32:%08x","bytes":%d,\n' % (FORMAT, crc, length)
        body = b"".join([first, *parts])
        state.size_bytes = len(body)
        return Prepared(body, state.version, commit)

    def _forget_extra(self) -> None:
        """Drop unknown fields of rows that have left, lest they come back with another row."""
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


def _encode_head(state: State) -> bytes:
    """The fields of the object itself, without the braces around them."""
    head = Head(
        version=state.version,
        commit=state.commits[-1],
        incarnation=state.incarnation,
        created_at=state.created_at,
        broker=Raw(b"null")
        if state.broker is None
        else Raw(_with_extra(state.broker, state.extra.get(("broker", state.broker.id)))),
        settings=Raw(_with_extra(state.settings, state.extra.get(("settings", "")))),
        paused=state.paused,
        paused_kinds=list(state.paused_kinds),
        next_seq=state.next_seq,
        horizon=state.sessions.horizon,
        commits=list(state.commits),
    )
    return _with_extra(head, state.extra.get(("head", "")))[1:-1]
