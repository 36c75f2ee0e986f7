"""Large ``bytes`` as payloads: they are sent as they are, like files."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import msgspec
import pytest

import bucketq
from bucketq import JobSpec, PayloadError
from bucketq.model.side_objects import PART_BYTES

LARGE = bytes(PART_BYTES + 1)


async def test_large_bytes_are_not_encoded_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    encode, encoded = base64.b64encode, list[int]()

    def note(data: bytes, *options: Any) -> bytes:
        encoded.append(len(data))
        return encode(data, *options)

    monkeypatch.setattr(base64, "b64encode", note)
    async with bucketq.connect("memory://large-bytes") as queue:
        await queue.push("film", LARGE)
        await queue.push_many([JobSpec(kind="film", payload=bytearray(LARGE))])
        assert max(encoded) == 0
        assert [job.payload for job in await queue.claim(limit=2)] == [LARGE] * 2


async def test_large_bytes_are_checked_by_the_type_of_the_payload() -> None:
    short: Any = Annotated[bytes, msgspec.Meta(max_length=1000)]
    async with bucketq.connect("memory://short-bytes", payload_type=short) as queue:
        with pytest.raises(PayloadError, match="<= 1000"):
            await queue.push("film", LARGE)
