"""The payload type of a handler, if several parameters declare one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from bucketq import Context, InvalidRequestError, Job
from bucketq.worker.handlers import bind


@dataclass
class Email:
    """What a job is about."""


def beside_any(email: Email, job: Job[Any]) -> None: ...
def beside_object(email: Email, job: Job[object], context: Context) -> None: ...
def before_object(job: Job[object], email: Email) -> None: ...
def twice_the_same(job: Job[Email], email: Email) -> None: ...
def in_the_job(job: Job[Email], email) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 - that is the case


@pytest.mark.parametrize(
    "function", [beside_any, beside_object, before_object, twice_the_same, in_the_job]
)
def test_a_job_of_anything_takes_no_type_from_the_payload(function: Callable[..., None]) -> None:
    assert bind("email", function).payload_type is Email


def test_two_types_for_one_payload_are_refused() -> None:
    def confused(number: int, job: Job[str]) -> None: ...

    with pytest.raises(InvalidRequestError, match=r"number, job of .*declare different types"):
        bind("email", confused)


class Letter:
    """A class that msgspec does not support."""

    def __init__(self, to: str) -> None:
        self.to = to


def test_a_payload_that_no_job_can_have_is_refused_with_the_name_of_its_handler() -> None:
    def send(letters: list[Letter]) -> None: ...

    with pytest.raises(
        InvalidRequestError, match=r"send: payload_type .* JSON cannot be decoded as "
    ):
        bind("email", send)
