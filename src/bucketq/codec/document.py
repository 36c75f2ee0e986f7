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
from bucketq.codec.layout import FORMAT, SEPARATOR, TABLES, Head
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

    def adopt(self, body: bytes, start: int) -> bool:
        """Take the encoded rows from an object that was just read; ``start`` is where they begin.

        They are only taken where each row has a line of its own, as this code writes them.
        """
        view, at = memoryview(body), start
        pieces: dict[int, _Piece] = {}
        for number, rows in self.table.blocks.items():
            begin = at
            for _ in rows:
                at = body.find(b"\n", at + 2)
                if at < 0:
                    return False
            # A line's end is that of its separator's first byte, but for the last.
            end = at - 1 if body[at - 1] == SEPARATOR[0] else at
            text: bytes | memoryview = view[begin:end]
            if begin == start:
                text = SEPARATOR[:1] + bytes(text)
            pieces[number] = _Piece(text)
            at = end
        if not body.startswith(b"\n]", at):
            return False
        self._pieces = pieces
        return True

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
        if state.extra:
            lines = [_with_extra(row, state.extra.get((self.name, row.id))) for row in rows]
            return SEPARATOR + SEPARATOR.join(lines)
        lines_text = _encoder.encode_lines(rows)
        return SEPARATOR + lines_text[:-1].replace(b"\n", SEPARATOR)


def _sum(pieces: list[_Piece]) -> tuple[int, int]:
    crc = length = 0
    for piece in pieces:
        crc = combine(crc, piece.crc, len(piece.text))
        length += len(piece.text)
    return crc, length


def _with_extra(row: Struct, extra: dict[str, Raw] | None) -> bytes:
    text = _encoder.encode(row)
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
        if self.state.extra:
            return
        for name in TABLES:
            marker = b'"%b":[' % name.encode()
            start = body.find(b"\n" + marker) if name == TABLES[0] else body.find(b"\n]," + marker)
            if start >= 0:
                self._sections[name].adopt(body, body.index(b"[", start) + 1)

    def prepare(self, commit: str) -> Prepared:
        """Encode the state as the next version, and move it there.

        The bytes are frozen: what is applied to the state from now on belongs to the commit
        after this one.
        """
        state = self.state
        state.version += 1
        state.commits.append(commit)
        state.changes, state.added_bytes = [], 0
        parts: list[bytes | memoryview] = []
        crc = length = 0

        def add(texts: list[bytes | memoryview], text_crc: int, text_length: int) -> None:
            nonlocal crc, length
            parts.extend(texts)
            crc = combine(crc, text_crc, text_length)
            length += text_length

        def add_text(text: bytes) -> None:
            add([text], crc32(text), len(text))

        add_text(_encode_head(state) + b',\n"sessions":[')
        add(*self._sections["sessions"].encode(state))
        add_text(b'\n],"keys":[')
        add(*self._sections["keys"].encode(state))
        add_text(b'\n],"jobs":[')
        add(*self._sections["jobs"].encode(state))
        add_text(b"\n]}\n")
        first = b'{"format":%d,"checksum":"crc32:%08x","bytes":%d,\n' % (FORMAT, crc, length)
        body = b"".join([first, *parts])
        state.size_bytes = len(body)
        return Prepared(body, state.version, commit)


def _encode_head(state: State) -> bytes:
    """The fields of the object itself, without the braces around them."""
    head = Head(
        version=state.version,
        commit=state.commits[-1],
        incarnation=state.incarnation,
        created_at=state.created_at,
        broker=Raw(b"null")
        if state.broker is None
        else Raw(_with_extra(state.broker, state.extra.get(("broker", "")))),
        settings=Raw(_with_extra(state.settings, state.extra.get(("settings", "")))),
        paused=state.paused,
        paused_kinds=list(state.paused_kinds),
        next_seq=state.next_seq,
        horizon=state.sessions.horizon,
        commits=list(state.commits),
    )
    return _with_extra(head, state.extra.get(("head", "")))[1:-1]
