"""Encodes structs as protobuf messages that have the same fields, and decodes them.

What has to be decided for each field is decided once for each type of struct, so this takes about
as long as code that names every field.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bucketq.rpc.protobuf.item_codec import ITEM_BYTES, ITEMS, NAMES, Reader, Writer
from bucketq.rpc.protobuf.json_documents import DOCUMENTS

S = TypeVar("S")


class StructCodec(Generic[S]):
    """Encodes and decodes one type of struct."""

    def __init__(self, kind: type[S], shape: type[Message]) -> None:
        """Pair a struct with a message; fields of the struct that are not in it are left out."""
        self._kind = kind
        self._shape = shape
        self._plain: list[str] = []
        self._optional: list[str] = []
        self._repeated: list[tuple[str, Writer, Reader]] = []
        for field in shape.DESCRIPTOR.fields:
            if field.is_repeated:
                self._repeated.append((field.name, *_codec_of(field)))
            else:
                (self._optional if field.has_presence else self._plain).append(field.name)

    def encode(self, value: S) -> Any:
        """Return a new message."""
        sent = self._shape()
        self.write(sent, value)
        return sent

    def write(self, sent: Any, value: S) -> int:
        """Fill an empty message, and return its approximate size."""
        sent.SetInParent()
        size = ITEM_BYTES
        for name in self._plain:
            setattr(sent, name, getattr(value, name))
        for name in self._optional:
            if (given := getattr(value, name)) is not None:
                setattr(sent, name, given)
        for name, write, _ in self._repeated:
            size += write(getattr(sent, name), getattr(value, name))
        return size

    def read(self, sent: Any) -> S:
        """Decode a message; a field that is optional and not set becomes None."""
        values = {name: getattr(sent, name) for name in self._plain}
        for name in self._optional:
            values[name] = getattr(sent, name) if sent.HasField(name) else None
        for name, _, read in self._repeated:
            values[name] = read(getattr(sent, name))
        return self._kind(**values)


def _codec_of(field: Any) -> tuple[Writer, Reader]:
    if field.message_type is not None:
        return ITEMS[field.message_type.name]
    return DOCUMENTS if field.type == FieldDescriptor.TYPE_BYTES else NAMES
