"""Jobs without options are encoded in fewer steps, and come out the same."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from bucketq import BucketQError, JobSpec
from bucketq.queue.push_options import new_job, plain_job


def outcome(make: Any, *arguments: Any) -> Any:
    try:
        return make(*arguments)
    except BucketQError as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", ["mail", "a/b:c", "", "two words", 7, None])
@pytest.mark.parametrize(
    ("payload", "payload_type"),
    [
        ({"to": "ada"}, Any),
        (None, Any),
        (b"\x00raw", Any),
        (BytesIO(b"a file"), Any),
        ({1, 2}, Any),
        (float("nan"), Any),
        ({"to": 1}, dict[str, str]),
        ([1, 2], list[int]),
    ],
)
def test_a_job_without_options_is_the_same_either_way(
    kind: Any, payload: Any, payload_type: Any
) -> None:
    def in_full(job_id: str) -> Any:
        spec = JobSpec(kind=kind, payload=payload)
        return new_job(spec, job_id, payload_type, takes_files=True)

    assert outcome(plain_job, kind, payload, "j1", payload_type) == outcome(in_full, "j1")
    assert outcome(plain_job, kind, payload, "", payload_type) == outcome(in_full, "")
