"""What the cloud store makes of answers to reads of ranges that are not what was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from bucketq.errors import StoreRefusedError, UnavailableError
from bucketq.store.base import ObjectTooShortError
from tests.servers.server import ENVIRON
from tests.servers.wire import Message, answer
from tests.unit.store.test_cloud import DATE, SCHEMES, answering, failure, outcome

each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)


def part(body: bytes, content_range: str | None = "bytes 2-4/10", status: int = 206) -> Message:
    """An answer to a read of three bytes from the second on."""
    headers: dict[str, Any] = {"etag": '"abc"', "last_modified": DATE, "x_goog_generation": "7"}
    if content_range is not None:
        headers["content_range"] = content_range
    return answer(status, body, **headers)


@each_scheme
async def test_a_range_is_one_request_for_these_bytes(scheme: str) -> None:
    with answering(part(b"cde"), scheme) as (store, server):
        assert await outcome(store, "range") == b"cde"
        (asked,) = server.asked
        assert (asked.method, asked.headers["range"]) == ("GET", "bytes=2-4")


@each_scheme
@pytest.mark.parametrize("body", [b"", b"c", b"cd", b"cdef"])
async def test_an_answer_with_fewer_or_more_bytes_than_it_says_is_asked_for_again(
    scheme: str, body: bytes
) -> None:
    with answering(part(body), scheme) as (store, _):
        error = await outcome(store, "range")
        assert type(error) is UnavailableError
        assert f"{len(body)} of 3 bytes came" in str(error)


@each_scheme
@pytest.mark.parametrize(
    "given",
    [
        part(b"abcdefghij", None, 200),
        part(b"cde", None, 200),
        part(b"cde", None),
        part(b"cde", "bytes 0-2/10"),
        part(b"cdef", "bytes 2-5/10"),
        part(b"cd", "bytes 2-3/10"),
        part(b"cde", "bytes 2-4/*"),
        part(b"cde", "lines 2-4/10"),
        answer(206, b"cde", content_range="bytes 2-4/10", last_modified=DATE),
    ],
    ids=lambda given: given.headers.get("content-range", str(given.status)),
)
async def test_an_answer_that_is_not_that_range_is_not_from_a_store(
    scheme: str, given: Message
) -> None:
    with answering(given, scheme) as (store, _):
        error = await outcome(store, "range")
        assert type(error) is StoreRefusedError, error
        assert "check the endpoint" in str(error)


@each_scheme
@pytest.mark.parametrize(
    "given",
    [
        part(b"cd", "bytes 2-3/4"),
        part(b"c", "bytes 2-2/3"),
        part(b"", "bytes 2-1/2"),
        answer(416, failure("InvalidRange")),
        answer(416, b"", content_range="bytes */2"),
    ],
)
async def test_an_object_that_ends_too_early_is_reported_as_such(
    scheme: str, given: Message
) -> None:
    with answering(given, scheme) as (store, _):
        error = await outcome(store, "range")
        assert type(error) is ObjectTooShortError, error
        assert "queue.json in" in str(error)
        assert "ends before byte 5" in str(error)
        assert "StringToSign" not in str(error)


@each_scheme
async def test_a_page_about_ranges_is_still_a_page(scheme: str) -> None:
    with answering(answer(416, b"<html></html>"), scheme) as (store, _):
        assert type(await outcome(store, "range")) is StoreRefusedError
