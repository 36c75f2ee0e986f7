"""Payloads: as JSON and back, for any value that JSON has."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from bucketq.errors import InvalidRequestError, PayloadError
from bucketq.model.records import NOTHING
from bucketq.queue import payload
from bucketq.queue.push_options import JobSpec

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_every_json_value_survives(value: object) -> None:
    raw, encoding = payload.encode(value, "payload")
    assert encoding is None
    assert payload.decode(raw, encoding, Any, "payload") == value


@given(json_values)
def test_an_encoded_value_is_one_line_of_valid_utf8(value: object) -> None:
    raw, _ = payload.encode(value, "payload")
    assert "\n" not in bytes(raw).decode()


@given(st.binary())
def test_all_bytes_survive(value: bytes) -> None:
    raw, encoding = payload.encode(value, "payload")
    assert encoding == "base64"
    assert payload.decode(raw, encoding, Any, "payload") == value
    assert payload.decode(raw, encoding, bytes, "payload") == value


@given(
    json_values,
    st.sampled_from([math.nan, math.inf, -math.inf]),
    st.lists(st.sampled_from(["list", "dict"]), max_size=5),
)
def test_nan_and_infinity_are_found_wherever_they_hide(
    beside: object, bad: float, path: list[str]
) -> None:
    value: object = bad
    for step in path:
        value = [beside, value] if step == "list" else {"beside": beside, "bad": value}
    with pytest.raises(PayloadError, match="payload holds NaN or infinity"):
        payload.encode(value, "payload")


@dataclass
class Point:
    x: float
    label: str | None = None


class Model(pydantic.BaseModel):
    x: float
    label: str | None = None


class Record(msgspec.Struct):
    x: float
    label: str | None = None


@pytest.mark.parametrize("make", [Point, Model, Record])
def test_nan_hides_in_no_typed_value(make: Any) -> None:
    with pytest.raises(PayloadError, match="NaN"):
        payload.encode(make(x=math.nan), "result")
    raw, _ = payload.encode(make(x=1.5), "result")
    assert payload.decode(raw, None, make, "result") == make(x=1.5)


@pytest.mark.parametrize("value", [Decimal("NaN"), "NaN", {"nan": "inf"}, [None, "null"]])
def test_what_is_text_or_null_is_not_taken_for_nan(value: object) -> None:
    payload.encode(value, "payload")


class Colour(enum.Enum):
    RED = "red"


class StringColour(enum.StrEnum):
    RED = "red"


@dataclass
class Sealed:
    seal: bytes = b"\x00\xff"


@dataclass(eq=False)
class Uncomparable:
    by_number: dict[int, bytes] = field(default_factory=lambda: {1: b"x"})


class SealedRecord(msgspec.Struct):
    seals: list[bytes]


class SealedModel(pydantic.BaseModel):
    seal: bytes = b"utf-8"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"seal": b"x"}, "bytes inside"),
        ([bytearray(b"x")], "bytes inside"),
        ([("deep", {"er": memoryview(b"x")})], "bytes inside"),
        ({b"x"}, "bytes inside"),
        (Sealed(), "bytes inside"),
        (SealedRecord([b"x"]), "bytes inside"),
        (SealedModel(), "bytes inside"),
        ({1: "a", "1": "b"}, r"key that is not a string, 1 \(int\)"),
        ({"deep": [{2.5: "a"}]}, r"2.5 \(float\)"),
        ({True: 1}, r"True \(bool\)"),
        ({None: 1}, r"None \(NoneType\)"),
        ({Colour.RED: "a", "red": "b"}, "Colour"),
        ({UUID(int=1): "a"}, "UUID"),
        ({math.nan: 1}, "NaN or infinity"),
        ({math.inf: 1}, "NaN or infinity"),
    ],
)
def test_a_value_that_json_would_alter_is_rejected(value: object, reason: str) -> None:
    for what in ("payload", "result"):
        with pytest.raises(PayloadError, match=f"^{what} .*({reason}|cannot be encoded)"):
            payload.encode(value, what)


@pytest.mark.parametrize("value", [{"seal": b"x"}, {1: "a"}, {"deep": {math.nan: 1}}, math.inf])
def test_the_error_of_a_result_does_not_suggest_a_payload_type(value: object) -> None:
    with pytest.raises(PayloadError) as refused:
        payload.encode(value, "result")
    assert not re.search("payload|push", str(refused.value))


def test_the_advice_for_bytes_can_be_followed() -> None:
    advice = r"encode them as text \(base64\) or make them the whole {}"
    for what, more in (("result", "$"), ("payload", ", or connect with a payload_type that")):
        with pytest.raises(PayloadError, match=advice.format(what) + more):
            payload.encode({"seal": b"x"}, what)
        assert payload.encode(b"x", what) == (Raw(b'"eA=="'), "base64")
    payload.encode({"seal": b"x"}, "payload", dict[str, bytes])


@pytest.mark.parametrize(
    ("value", "into"),
    [
        ({"seal": b"x"}, dict[str, bytes]),
        ({1: "a", 2: "b"}, dict[int, str]),
        ({UUID(int=1): b"x"}, dict[UUID, bytes]),
        (Sealed(), Sealed),
        (Uncomparable(), Uncomparable),
        (SealedRecord([b"x"]), SealedRecord),
        (SealedModel(), SealedModel),
    ],
)
def test_a_type_that_restores_bytes_and_keys_makes_them_valid(value: object, into: Any) -> None:
    raw, encoding = payload.encode(value, "payload", into)
    assert vars_of(payload.decode(raw, encoding, into, "payload")) == vars_of(value)


def vars_of(value: Any) -> Any:
    return value.__dict__ if isinstance(value, Uncomparable) else value


@pytest.mark.parametrize(
    ("value", "into"),
    [
        ({"seal": b"x"}, dict[str, Any]),
        ({1: "a"}, dict[str, str]),
        ({1: "a", "1": "b"}, dict[int, str]),
        ({math.nan: 1.0}, dict[float, float]),
        ([math.nan], list[float]),
    ],
    ids=repr,
)
def test_a_type_that_does_not_restore_them_does_not(value: object, into: Any) -> None:
    with pytest.raises(PayloadError):
        payload.encode(value, "payload", into)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ((1, [2, (3,)]), b"[1,[2,[3]]]"),
        ([datetime(2026, 1, 2, tzinfo=UTC)], b'["2026-01-02T00:00:00Z"]'),
        ([UUID(int=1)], b'["00000000-0000-0000-0000-000000000001"]'),
        ([Colour.RED, StringColour.RED], b'["red","red"]'),
        ({StringColour.RED: Decimal("1.50")}, b'{"red":"1.50"}'),
        (Point(1.5), b'{"x":1.5,"label":null}'),
    ],
    ids=repr,
)
def test_values_with_a_json_form_of_their_own_keep_it(value: object, encoded: bytes) -> None:
    assert bytes(payload.encode(value, "payload")[0]) == encoded


def test_a_model_class_in_place_of_its_instance_is_refused() -> None:
    with pytest.raises(PayloadError, match="payload cannot be encoded as JSON"):
        payload.encode(Model, "payload")


class Stubborn(pydantic.BaseModel):
    inner: Any = None


def test_a_model_that_holds_what_json_has_not_is_refused() -> None:
    with pytest.raises(PayloadError):
        payload.encode(Stubborn(inner=object()), "payload")


@pytest.mark.parametrize("into", [5, "str", bytes | str, [int]], ids=repr)
def test_a_type_into_which_nothing_decodes_is_a_payload_error(into: Any) -> None:
    with pytest.raises(PayloadError, match="the payload cannot be decoded as"):
        payload.decode(Raw(b"1"), None, into, "the payload")
    with pytest.raises(PayloadError, match="the payload cannot be decoded as"):
        payload.decode(Raw(b'"AA=="'), "base64", into, "the payload")


@pytest.mark.parametrize("raw", [b"1", b'"%%%"', b'"abc"', b'"\xc3\xa9"', b"null"])
def test_invalid_base64_is_an_error(raw: bytes) -> None:
    with pytest.raises(PayloadError, match="cannot be decoded"):
        payload.decode(Raw(raw), "base64", Any, "payload")


def test_no_result_reads_as_none() -> None:
    assert payload.decode_result(NOTHING, None, "result") is None
    assert payload.decode_result(Raw(b""), None, "result") is None
    assert payload.decode_result(Raw(b"null"), None, "result") is None
    assert payload.decode_result(Raw(b"[1]"), None, "result") == [1]


class Plain:
    def __init__(self, number: int) -> None:
        self.number = number


@dataclass
class Inside:
    plain: Plain


@dataclass
class Optional:
    number: int
    plain: Plain = field(default_factory=lambda: Plain(1))


class Nested(msgspec.Struct):
    number: int
    inner: list[Nested] | None = None


@pytest.mark.parametrize(
    "unread",
    [
        Plain,
        list[Plain],
        dict[str, Plain],
        tuple[int, Plain],
        Plain | None,
        Inside,
        dict[str, list[Inside]],
    ],
)
def test_a_class_that_json_is_never_read_as_is_refused_before_anything_is_read(unread: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"JSON cannot be decoded as Plain; make that a "):
        payload.check_type(unread)


@pytest.mark.parametrize(
    "good",
    [Any, int, object, dict[str, object], Nested, Optional, int | None, Sized, bytes, datetime],
)
def test_a_class_that_json_can_be_read_as_is_taken(good: Any) -> None:
    payload.check_type(good)


@pytest.mark.parametrize(("given", "missing"), [({"kind": "mail"}, "payload"), ({}, "kind")])
def test_a_job_spec_says_what_is_missing(given: Any, missing: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"a JobSpec needs a {missing}"):
        JobSpec(**given)
