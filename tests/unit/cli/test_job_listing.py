"""How a listing shows payloads and results that are not in their jobs."""

from __future__ import annotations

import pytest
from msgspec import Raw

from bucketq.cli.job_listing import describe_body


@pytest.mark.parametrize("raw", [b'"text"', b"null", b'{"object":"../../etc","bytes":5}'])
def test_a_reference_that_was_damaged_by_hand_does_not_end_a_listing(raw: bytes) -> None:
    shown = describe_body(Raw(raw), "object")
    assert shown is not None
    assert "is not a reference to a side object" in shown
