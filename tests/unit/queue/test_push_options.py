"""Jobs without options are encoded in fewer steps, and come out the same."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from msgspec import Raw, structs

from bucketq import BucketQError, JobSpec
from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model.settings import MIB
from bucketq.queue import push_options
from bucketq.queue.payload import encode_plain
from bucketq.queue.push_options import new_job


def outcome(make: Any, *arguments: Any) -> Any:
    try:
        return make(*arguments)
    except BucketQError as error:
        return type(error), str(error)


def nested(depth: int) -> Any:
    value: Any = "x" * 200  # Short JSON is never too deep.
    for _ in range(depth):
        value = [value]
    return value


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
        ("\ud800", Any),
        (nested(101), Any),
        ({"to": 1}, dict[str, str]),
        ([1, 2], list[int]),
    ],
)
def test_a_job_without_options_is_the_same_either_way(
    kind: Any, payload: Any, payload_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> Any:
        spec = JobSpec(kind=kind, payload=payload)
        return new_job(spec, "j1", payload_type, takes_files=True)

    in_few_steps = outcome(made)
    monkeypatch.setattr(push_options, "_is_plain", lambda _: False)
    assert in_few_steps == outcome(made)


def test_a_value_that_only_looks_like_a_default_is_checked() -> None:
    kind, error = outcome(new_job, JobSpec(kind="mail", payload=1, priority=False), "j1", Any)
    assert kind is InvalidRequestError
    assert "priority must be a whole number" in error


@pytest.mark.parametrize(
    ("payload", "is_encoded"),
    [
        ({"to": "ada", "n": [1, 2.5, None, True, 2**80]}, True),
        ("a line\nand another", True),
        ([[]] * 200, True),
        ("\ud800", False),
        ((1, 2), False),
        ({1: 2}, False),
        (b"bytes", False),
        ([float("inf")], False),
        (nested(99), True),
        (nested(101), False),
        (nested(100_000), False),
    ],
)
def test_what_is_encoded_in_few_steps_passes_the_check(payload: Any, is_encoded: bool) -> None:
    body = encode_plain(payload)
    assert (body is not None) == is_encoded
    if body is not None:
        assert check.body(Raw(body), "payload", "max_payload_bytes", MIB) == len(body)


@pytest.mark.parametrize(
    "name", [each for each in JobSpec.__struct_fields__ if each not in ("kind", "payload")]
)
def test_a_job_with_an_option_is_not_plain(name: str) -> None:
    spec: JobSpec[Any] = JobSpec(kind="mail", payload=1)
    assert push_options._is_plain(spec)
    assert not push_options._is_plain(structs.replace(spec, **{name: object()}))
