"""What every queue promises about what jobs carry: what goes in comes out, or does not go in."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from bucketq import InvalidRequestError, PayloadError, Queue
from tests.contract.places import Place


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: int
    lines: list[Line] = field(default_factory=list)
    at: datetime | None = None
    seal: bytes = b""


class StructOrder(msgspec.Struct):
    id: int
    lines: list[Line] = []


class ModelOrder(pydantic.BaseModel):
    id: int
    lines: list[Line] = []
    note: str | None = None


@pydantic.dataclasses.dataclass
class CheckedOrder:
    id: int
    lines: list[Line] = field(default_factory=list)


TYPED = [
    Order(1, [Line("a"), Line("b", 2)], datetime(2026, 1, 2, tzinfo=UTC), b"\x00\xff"),
    StructOrder(1, [Line("a")]),
    ModelOrder(id=1, lines=[Line("a")]),
    CheckedOrder(1, [Line("a")]),
]


@pytest.mark.parametrize("order", TYPED, ids=lambda order: type(order).__name__)
async def test_a_typed_payload_comes_out_as_it_went_in(place: Place, order: Any) -> None:
    async with place.connect(payload_type=type(order)) as queue:
        job_id = await queue.push("order", order)
        assert (await queue.get(job_id)).payload == order
        (job,) = await queue.claim()
        assert job.payload == order
        assert isinstance(job.payload, type(order))
        assert job.payload is job.payload
    async with place.connect() as untyped:
        payload = (await untyped.get(job_id)).payload
        assert payload["id"] == 1
        assert payload["lines"][0] == {"sku": "a", "count": 1}


@pytest.mark.parametrize("into", [Order, StructOrder, ModelOrder, CheckedOrder, bytes, list[int]])
async def test_a_payload_of_another_type_fails_only_when_it_is_read(
    place: Place, into: Any
) -> None:
    async with place.connect() as producer:
        await producer.push_many([])
        bad = await producer.push("order", {"id": "not a number"})
    async with place.connect(payload_type=into) as queue:
        (job,) = await queue.claim()
        assert (job.id, job.kind) == (bad, "order")
        for _ in range(2):
            with pytest.raises(PayloadError, match=f"payload of job {bad} cannot be decoded as"):
                _ = job.payload
        assert len((await queue.jobs()).jobs) == 1
        assert await queue.fail(job, "unreadable", retry=False) == "dead"


@pytest.mark.parametrize("into", [Order, StructOrder, ModelOrder, CheckedOrder, str, dict])
async def test_bytes_are_not_taken_for_another_type(place: Place, into: Any) -> None:
    async with place.connect() as producer:
        await producer.push("order", b"just bytes")
    async with place.connect(payload_type=into) as queue:
        (job,) = await queue.claim()
        with pytest.raises(PayloadError, match="cannot be decoded as"):
            _ = job.payload


@pytest.mark.parametrize("kind_of_bytes", [bytes, bytearray, memoryview])
async def test_bytes_come_out_as_bytes(place: Place, kind_of_bytes: Any) -> None:
    every_byte = bytes(range(256))
    async with place.connect(payload_type=bytes) as queue:
        job_id = await queue.push("blob", kind_of_bytes(every_byte))
        assert (await queue.get(job_id)).payload == every_byte
    async with place.connect() as untyped:
        assert (await untyped.get(job_id)).payload == every_byte


@pytest.mark.parametrize(
    "payload",
    [
        None,
        False,
        0,
        -0.0,
        1e308,
        5e-324,
        2**53 + 1,
        2**64,
        -(10**300),
        "",
        "null",
        "snow\u2603 \U0001f600 \x00\x1f\x7f\u2028",
        '"],"jobs":[\n]}\n',
        [],
        {},
        {"": [None, [None]], "a\nb": {"c": None}},
        [[[[1]]]],
    ],
    # pytest-xdist compares ids between processes, and one with a backslash changes on the way.
    ids=lambda value: re.sub(r"\W+", " ", ascii(value)),
)
async def test_any_json_value_comes_out_as_it_went_in(place: Place, payload: object) -> None:
    async with place.connect() as queue:
        job_id = await queue.push("value", payload)
    async with place.connect() as queue:
        found = (await queue.get(job_id)).payload
        assert found == payload
        assert repr(found) == repr(payload)
        await queue.push("value", payload)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (math.nan, "NaN"),
        ([1, {"deep": math.inf}], "NaN or infinity"),
        (Order(1, [Line("a", -math.inf)]), "NaN or infinity"),  # type: ignore[arg-type]
        ("lone \ud800 surrogate", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        (object(), "object"),
        (print, "builtin"),
        ({(1, 2): 3}, "key"),
        ({1: "a", "1": "b"}, "key that is not a string"),
        ({"seal": b"x"}, "bytes inside"),
        (Order(1, [], None, b"x"), "bytes inside"),
        (10**5000, "digits"),
        (msgspec.Raw(b"{not json"), "valid JSON"),
        (msgspec.Raw(b'{"a":\n1}'), "line breaks"),
    ],
    # Workers of pytest-xdist escape a surrogate in different ways.
    ids=lambda value: value.replace("\ud800", "") if isinstance(value, str) else "",
)
async def test_a_payload_that_would_not_come_out_is_refused(
    place: Place, queue: Queue[Any], payload: object, reason: str
) -> None:
    before = await place.stored()
    with pytest.raises(PayloadError, match=reason):
        await queue.push("value", payload)
    assert await place.stored() == before
    job_id = await queue.push("value", "fine")
    (job,) = await queue.claim()
    with pytest.raises(PayloadError):
        await queue.complete(job, payload)
    await queue.complete(job, "fine")
    assert (await queue.get(job_id)).result == "fine"


async def test_a_payload_nested_too_deep_is_refused(place: Place, queue: Queue[Any]) -> None:
    before = await place.stored()
    for depth in (101, 5000, 200_000):
        payload: Any = 0
        for _ in range(depth):
            payload = [payload]
        with pytest.raises(InvalidRequestError, match="nested"):
            await queue.push("value", payload)
    payload = []
    payload.append(payload)
    with pytest.raises(PayloadError):
        await queue.push("value", payload)
    assert await place.stored() == before


async def test_encoded_json_goes_in_as_it_is(queue: Queue[Any]) -> None:
    for raw in (b'{"a":[null,1.50]}', b"null"):
        job_id = await queue.push("value", msgspec.Raw(raw))
        assert bytes((await queue.get(job_id)).record.payload) == raw


async def test_a_job_does_not_show_its_payload_by_accident(queue: Queue[Any]) -> None:
    job = await queue.get(await queue.push("value", {"password": "hunter2"}))
    assert "hunter2" not in f"{job!r} {job}"
    assert f"{job!r}" == f"<Job {job.id} value queued attempt 0>"


@pytest.mark.parametrize("wrong", [{"nope": 1}, Line("a"), Order(id="x")], ids=str)  # type: ignore[arg-type]
async def test_what_would_not_come_out_as_the_type_of_the_queue_does_not_go_in(
    place: Place, wrong: Any
) -> None:
    async with place.connect(payload_type=Order) as queue:
        with pytest.raises(PayloadError, match="Order"):
            await queue.push("order", wrong)
        assert (await queue.stats()).counts == {}
