"""Handlers: the arguments of their signatures, and what is rejected before any job is claimed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pydantic
import pytest
from msgspec import Struct

from bucketq.errors import InvalidRequestError
from bucketq.model.records import Backoff
from bucketq.queue.job import Job
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import UnfitPayload
from bucketq.worker.handlers import Handlers, bind, check_place
from tests.unit.worker import process_handlers
from tests.unit.worker.engine_harness import claimed_job


class Letter(Struct):
    to: str


@dataclass
class Card:
    to: str


class Parcel(pydantic.BaseModel):
    to: str
    weight: float = pydantic.Field(gt=0)


def given(function: Callable[..., Any], payload: Any = None) -> dict[str, Any]:
    """What a function is called with for a job."""
    return bind("mail", function).arguments(Context(claimed_job(payload)))


def by_annotation(j: Job[Any], p: Letter, c: Context) -> None: ...


def by_name(context, payload, job) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001 - so are many


def typed_by_the_job(job: Job[Letter]) -> None: ...


def by_keyword(*, letter: Letter, context: Context) -> None: ...


def with_default(letter: Letter, retries: int = 3, *rest: Any, **more: Any) -> None: ...


def with_nothing() -> None: ...


def test_parameters_are_given_in_any_order_by_annotation_or_by_name() -> None:
    for function in (by_annotation, by_name):
        arguments = given(function, {"to": "Ann"})
        kinds = {type(value) for value in arguments.values()}
        assert {Job, Context} <= kinds
    assert given(by_annotation, {"to": "Ann"})["p"] == Letter("Ann")
    assert given(by_name, {"to": "Ann"})["payload"] == {"to": "Ann"}
    assert given(by_keyword, {"to": "Ann"})["letter"] == Letter("Ann")
    assert given(with_default, {"to": "Ann"}) == {"letter": Letter("Ann")}
    assert given(with_nothing, "whatever") == {}


def test_the_annotation_of_a_job_declares_the_payload_type() -> None:
    arguments = given(typed_by_the_job, {"to": "Ann"})
    assert arguments["job"].payload == Letter("Ann")
    with pytest.raises(UnfitPayload, match="cannot be decoded as Letter"):
        given(typed_by_the_job, {"to": 7})


def test_a_context_knows_the_job_as_its_handler_reads_it() -> None:
    arguments = given(by_annotation, {"to": "Ann"})
    assert arguments["c"].job is arguments["j"]
    assert arguments["j"].payload == Letter("Ann")


@pytest.mark.parametrize(
    ("wanted", "payload", "value"),
    [
        (Letter, {"to": "Ann"}, Letter("Ann")),
        (Card, {"to": "Ann"}, Card("Ann")),
        (Parcel, {"to": "Ann", "weight": 2}, Parcel(to="Ann", weight=2)),
        (bytes, b"\x00\xff", b"\x00\xff"),
        (list[int], [1, 2], [1, 2]),
        (int | None, None, None),
        (Any, {"any": "thing"}, {"any": "thing"}),
    ],
)
def test_a_payload_is_read_as_its_annotated_type(wanted: Any, payload: Any, value: Any) -> None:
    def work(payload: Any) -> None: ...

    work.__annotations__["payload"] = wanted
    assert given(work, payload) == {"payload": value}


@pytest.mark.parametrize(
    ("wanted", "payload"),
    [(Letter, {}), (Card, []), (Parcel, {"to": "Ann", "weight": 0}), (int, b"\x00"), (int, "1")],
)
def test_a_payload_of_the_wrong_type_is_rejected_with_the_reason(wanted: Any, payload: Any) -> None:
    def work(payload: Any) -> None: ...

    work.__annotations__["payload"] = wanted
    with pytest.raises(UnfitPayload, match=f"^the payload cannot be decoded as {wanted.__name__}"):
        given(work, payload)


def two_payloads(one: Letter, other: Card) -> None: ...


def positional(letter: Letter, /) -> None: ...


def unknown(letter: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821 - on purpose


def generator(letter: Letter) -> Iterator[int]:
    yield 1


async def async_generator(letter: Letter) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (two_payloads, "has a parameter 'other' besides the payload"),
        (positional, "must not be positional-only"),
        (unknown, "cannot be read: name 'Nowhere'"),
        (generator, "is a generator"),
        (async_generator, "is a generator"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_work_is_refused_when_it_is_bound(
    function: Callable[..., Any], reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        bind("mail", function)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0},
        {"timeout_s": -1.0},
        {"timeout_s": timedelta(0)},
        {"timeout_s": float("nan")},
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"backoff": Backoff(base_s=-1, factor=1, max_s=1)},
        {"backoff": 5},
        {"run_in": "basement"},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        bind("mail", with_nothing, **options)


def test_a_kind_has_one_handler() -> None:
    handlers = Handlers()
    handlers.add(bind("mail", with_nothing))
    with pytest.raises(InvalidRequestError, match="has a handler already, with_nothing"):
        handlers.add(bind("mail", by_keyword))
    assert list(handlers) == ["mail"]


async def work_async() -> None: ...


def test_async_functions_run_on_the_loop_and_others_in_threads_by_default() -> None:
    assert bind("a", work_async).place == "loop"
    assert bind("a", with_nothing).place == "thread"
    assert bind("a", partial(work_async)).place == "loop"
    assert bind("a", with_nothing, run_in="loop").place == "loop"
    assert bind("a", process_handlers.widen_soon, run_in="process").place == "process"
    with pytest.raises(InvalidRequestError, match="is async and runs on the event loop"):
        bind("a", work_async, run_in="thread")


def test_a_function_that_another_process_cannot_find_is_refused() -> None:
    def inside() -> None: ...

    with pytest.raises(InvalidRequestError, match="is defined inside a function"):
        bind("a", inside, run_in="process")
    with pytest.raises(InvalidRequestError, match="has no name"):
        bind("a", partial(process_handlers.who), run_in="process")
    check_place(bind("a", process_handlers.who, run_in="process"))


def test_a_function_hidden_by_another_decorator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bind("a", process_handlers.who, run_in="process")
    monkeypatch.setattr(process_handlers, "who", lambda: None)
    with pytest.raises(InvalidRequestError, match="but that is another object"):
        check_place(bound)
