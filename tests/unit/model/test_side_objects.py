"""What a job says of its payload without reading it."""

from __future__ import annotations

import base64

import msgspec
import pytest
from msgspec import Raw

from bucketq.model.records import Encoding, JobRecord
from bucketq.model.side_objects import SideRef, object_name, payload_size, write_ref
from tests.unit.model.driver import START

REF = write_ref(SideRef(object_name("q", 7, "0a" * 16, "1b" * 8), 5 << 20, "0a" * 16))


def coded(data: bytes) -> Raw:
    return Raw(msgspec.json.encode(base64.b64encode(data).decode()))


@pytest.mark.parametrize(
    ("payload", "encoding", "size"),
    [
        (Raw(b'{"a":1}'), None, 7),
        (Raw(b'"\xc3\xa9"'), None, 4),
        *((coded(b"x" * size), "base64", size) for size in (0, 1, 2, 3, 4, 100)),
        (REF, "object", 5 << 20),
        (REF, "object-bytes", 5 << 20),
        (Raw(b'"damaged"'), "object", 9),
    ],
)
def test_the_size_of_a_payload_is_that_of_its_content(
    payload: Raw, encoding: Encoding | None, size: int
) -> None:
    job = JobRecord(
        id="1",
        kind="x",
        status="queued",
        seq=1,
        payload=payload,
        payload_encoding=encoding,
        pushed_at=START,
    )
    assert payload_size(job) == size
