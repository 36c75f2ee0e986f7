"""Three-way merge: the changes of an edit, made to an object that others changed meanwhile.

It works on the JSON and knows nothing about what a table holds. So it covers every table and every
field, also those that are added later or that this code does not know. Whatever the edit changed is
either in the result or a conflict; nothing is dropped.

A row is compared as a whole, byte for byte but for blanks between values. So are the fields of the
head, apart from the settings, which are compared one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct

from bucketq.codec.layout import HISTORY, SEGMENTS, TABLES

BOOKKEEPING = (
    *("requires", "former", "partition", SEGMENTS, *HISTORY, "since"),
    *("format", "checksum", "bytes", "version", "commit", "incarnation", "commits"),
)
"""Fields of the head that no edit may change: a merge takes them from the newest object."""

_SETTINGS = "settings"
_Name = tuple[str, ...]
"""The name of a field of the head, or ``settings`` and the name of one."""


K = TypeVar("K")


class EditConflictError(Exception):
    """The edit changed something that another process changed too."""


class _Row(Struct):
    id: str
    seq: int


class _Entry(Struct):
    """A segment: the numbers of its rows."""

    id: str
    cls: str = msgspec.field(name="class")
    seq: int
    last: int


class _EditableObject(NamedTuple):
    """An object in comparable parts, without blanks between values."""

    bookkeeping: dict[str, Raw]
    head: dict[_Name, bytes]
    tables: dict[str, dict[str, bytes]]
    """The rows of each table, by their ids and in their order."""
    segments: dict[str, _Entry]
    next_seq: int


def changes(base: bytes, edited: bytes) -> dict[str, int]:
    """Count what an edit changed: the rows of each table, and the fields of the head by name."""
    old, new = _parse(base), _parse(edited)
    found = {table: len(_differences(old.tables[table], new.tables[table])) for table in TABLES}
    for name in _differences(old.head, new.head):
        found[name[0]] = found.get(name[0], 0) + 1
    return {name: count for name, count in found.items() if count}


def merge(base: bytes, edited: bytes, newest: bytes) -> bytes:
    """Make the changes from ``base`` to ``edited`` to ``newest``; return JSON to be decoded.

    All three must be objects of the same queue that were checked before, at least with ``accept``.

    Raises:
        EditConflictError: Another process changed one of the same rows or fields.
    """
    old, new, there = _parse(base), _parse(edited), _parse(newest)
    head = _merge(old.head, new.head, there.head, ".".join)
    if new.next_seq < old.next_seq:
        raise EditConflictError("next_seq cannot be lowered while others push")
    next_seq = max(new.next_seq, there.next_seq)
    tables: dict[str, list[Raw]] = {}
    for table in TABLES:
        rows, next_seq = _merge_rows(table, old, new, there, next_seq)
        tables[table] = [*map(Raw, rows)]
    fields = {name[0]: Raw(value) for name, value in head.items() if name[0] != _SETTINGS}
    settings = {name[1]: Raw(value) for name, value in head.items() if name[0] == _SETTINGS}
    counted = {_SETTINGS: settings, "next_seq": next_seq}
    return msgspec.json.encode({**there.bookkeeping, **fields, **counted, **tables})


def _merge_rows(
    table: str, old: _EditableObject, new: _EditableObject, there: _EditableObject, next_seq: int
) -> tuple[list[bytes], int]:
    """Merge one table; rows that the edit added get numbers of their own, behind all others."""
    before, edited, newest = old.tables[table], new.tables[table], there.tables[table]
    _check_moved(table, old, new, there)
    merged = _merge(before, edited, newest, lambda row_id: f"{table.removesuffix('s')} {row_id}")
    for row_id in _differences(before, edited):
        if row_id in before and row_id in edited and _seq(before[row_id]) != _seq(edited[row_id]):
            raise EditConflictError(
                f"the seq of {table.removesuffix('s')} {row_id} cannot be edited meanwhile"
            )
    is_counted = table == "jobs"
    number = next_seq if is_counted else _first_free(table, there)
    for row_id, row in merged.items():
        if row_id not in newest:
            fields = msgspec.json.decode(row, type=dict[str, Raw])
            merged[row_id] = msgspec.json.encode(fields | {"seq": number})
            number += 1
    return list(merged.values()), number if is_counted else next_seq


def _check_moved(
    table: str, old: _EditableObject, new: _EditableObject, there: _EditableObject
) -> None:
    """Refuse a change of a row that may have moved to a segment, where no edit changes it."""
    before, edited, newest = old.tables[table], new.tables[table], there.tables[table]
    added = [each for name, each in there.segments.items() if name not in old.segments]
    spans = [(each.seq, each.last) for each in added if _table_of(each) == table]
    for row_id, row in before.items():
        if row_id in newest or edited.get(row_id) == row:
            continue
        if any(first <= _seq(row) <= last for first, last in spans):
            action = "changed" if row_id in edited else "removed"
            raise EditConflictError(
                f"{table.removesuffix('s')} {row_id}, which you {action}, may be in a segment now"
            )


def _first_free(table: str, there: _EditableObject) -> int:
    """A number that no row of a table has, in the object or in a segment."""
    used = [*map(_seq, there.tables[table].values())]
    used += [each.last for each in there.segments.values() if _table_of(each) == table]
    return max(used, default=0) + 1


def _table_of(entry: _Entry) -> str:
    return "keys" if entry.cls == "keys" else "jobs"


def _merge(
    old: Mapping[K, bytes],
    new: Mapping[K, bytes],
    there: Mapping[K, bytes],
    describe: Callable[[K], str],
) -> dict[K, bytes]:
    merged = dict(there)
    for name in _differences(old, new):
        wanted, found = new.get(name), there.get(name)
        if found == wanted:
            continue  # Another process has made the same change.
        if found != old.get(name):
            raise EditConflictError(f"{describe(name)} was changed by another process too")
        if wanted is None:
            del merged[name]
        else:
            merged[name] = wanted
    return merged


def _differences(old: Mapping[K, bytes], new: Mapping[K, bytes]) -> list[K]:
    names = [*old, *(name for name in new if name not in old)]
    return [name for name in names if old.get(name) != new.get(name)]


def _parse(body: bytes) -> _EditableObject:
    fields = msgspec.json.decode(msgspec.json.format(body, indent=-1), type=dict[str, Raw])
    tables = {
        table: {
            msgspec.json.decode(row, type=_Row).id: bytes(row)
            for row in msgspec.json.decode(fields.pop(table, b"[]"), type=list[Raw])
        }
        for table in TABLES
    }
    bookkeeping = {name: fields.pop(name) for name in BOOKKEEPING if name in fields}
    entries = msgspec.json.decode(bookkeeping.get(SEGMENTS, b"[]"), type=list[_Entry])
    next_seq = msgspec.json.decode(fields.pop("next_seq"), type=int)
    settings = msgspec.json.decode(fields.pop(_SETTINGS), type=dict[str, Raw])
    head: dict[_Name, bytes] = {(name,): bytes(value) for name, value in fields.items()}
    head |= {(_SETTINGS, name): bytes(value) for name, value in settings.items()}
    segments = {entry.id: entry for entry in entries}
    return _EditableObject(bookkeeping, head, tables, segments, next_seq)


def _seq(row: bytes) -> int:
    return msgspec.json.decode(row, type=_Row).seq
