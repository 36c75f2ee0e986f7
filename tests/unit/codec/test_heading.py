"""Who serves a queue, read from the first lines of its object alone."""

from __future__ import annotations

import json

import pytest

from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.codec.heading import Heading, read_heading
from bucketq.errors import CorruptStateError, NewerFormatError
from bucketq.model.operations import Lead, Retire
from tests.unit.model.driver import Driver

WHERE = "test://queue"


def body_of(driver: Driver) -> bytes:
    return Document(driver.state).prepare("commit").body


@pytest.fixture
def driver() -> Driver:
    served = Driver()
    served.push_many(*(f"job-{number}" for number in range(3)))
    served.ok(Lead(id="ada", address="host1:4001", host="host1", after=0))
    return served


def test_the_heading_equals_that_of_a_whole_read(driver: Driver) -> None:
    body = body_of(driver)
    state = decode(body, WHERE).state
    assert read_heading(body, WHERE) == Heading(state.incarnation, state.version, state.broker)
    assert state.broker is not None
    assert state.broker.address == "host1:4001"


def test_a_queue_that_was_never_served_has_no_broker() -> None:
    assert read_heading(body_of(Driver()), WHERE).broker is None


def test_a_broker_that_has_retired_leaves_its_epoch(driver: Driver) -> None:
    driver.ok(Retire(id="ada", epoch=1))
    broker = read_heading(body_of(driver), WHERE).broker
    assert broker is not None
    assert (broker.address, broker.epoch) == ("", 1)


def test_the_rows_are_not_read(driver: Driver) -> None:
    body = body_of(driver)
    first, second, _ = body.split(b"\n", 2)
    heading = read_heading(b"\n".join([first, second, b"not JSON at all"]), WHERE)
    assert heading == read_heading(body, WHERE)


def test_fields_of_a_newer_bucketq_are_skipped(driver: Driver) -> None:
    body = body_of(driver)
    first, second, rest = body.split(b"\n", 2)
    head = json.loads(b"{" + second.rstrip(b",") + b"}")
    head["shards"] = {"count": 3}
    head["broker"]["zone"] = "eu-1"
    newer = json.dumps(head, separators=(",", ":"))[1:-1].encode() + b","
    heading = read_heading(b"\n".join([first[:-1] + b',"more":1,', newer, rest]), WHERE)
    assert heading == read_heading(body, WHERE)


@pytest.mark.parametrize("change", ["whole", "first line"])
def test_a_newer_format_is_refused_as_such(driver: Driver, change: str) -> None:
    body = body_of(driver).replace(b'"format":1', b'"format":3', 1)
    with pytest.raises(NewerFormatError, match="upgrade bucketq"):
        read_heading(body if change == "whole" else b'{"format":3}\n', WHERE)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        b"\n\n\n",
        b"{}\n",
        b"other notes\n" * 10,
        b"\x00\xff" * 100,
        b'{"format":1}',
        b'{"format":1,\n"version":1,\n',
        b'{"format":1,\n"version":"one","incarnation":"i","broker":null,\n"jobs":[]}',
        b'{"format":1,\n"version":1,"incarnation":"i","broker":{"address":"x"},\n"jobs":[]}',
        b'{"format":0,\n"version":1,"incarnation":"i","broker":null,\n"jobs":[]}',
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:30]),
)
def test_an_object_that_is_not_a_queue_is_refused_with_its_place(body: bytes) -> None:
    with pytest.raises(CorruptStateError, match=WHERE):
        read_heading(body, WHERE)


@pytest.mark.parametrize(
    "field",
    [
        '"epoch":"one"',
        '"epoch":1.5',
        '"address":null',
        '"since":"yesterday"',
        '"id":5',
        '"host":[]',
    ],
)
def test_an_invalid_broker_record_is_refused(driver: Driver, field: str) -> None:
    name = field.split(":", maxsplit=1)[0]
    first, second, rest = body_of(driver).split(b"\n", 2)
    head = json.loads(b"{" + second.rstrip(b",") + b"}")
    head["broker"][name.strip('"')] = json.loads("{" + field + "}")[name.strip('"')]
    broken = json.dumps(head, separators=(",", ":"))[1:-1].encode() + b","
    with pytest.raises(CorruptStateError):
        read_heading(b"\n".join([first, broken, rest]), WHERE)


def test_every_truncation_is_refused_or_reads_the_same(driver: Driver) -> None:
    body = body_of(driver)
    whole = read_heading(body, WHERE)
    for length in range(0, len(body), 7):
        try:
            assert read_heading(body[:length], WHERE) == whole
        except CorruptStateError:
            continue
