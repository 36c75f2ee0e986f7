"""The text that is recorded of an error: what, where, and never more than is allowed."""

from __future__ import annotations

import pytest

from bucketq.worker.failure import describe
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, UnfitPayload


def deep(levels: int) -> None:
    if levels:
        deeper(levels - 1)
    raise ValueError("at the bottom")


def deeper(levels: int) -> None:
    deep(levels)


def caught(levels: int = 0) -> ValueError:
    try:
        deep(levels)
    except ValueError as error:
        return error
    raise AssertionError


def test_the_error_comes_first_and_then_its_traceback() -> None:
    lines = describe(caught(), 4096).splitlines()
    assert lines[0] == "ValueError: at the bottom"
    assert "in deep" in describe(caught(), 4096)
    assert 'raise ValueError("at the bottom")' in lines[-1] or "raise ValueError" in lines[-2]


def test_an_error_without_a_message_is_recorded_by_its_type() -> None:
    assert describe(ValueError(), 4096) == "ValueError"


@pytest.mark.parametrize("limit", [64, 300, 1000, 4096])
def test_the_text_keeps_to_its_limit_and_the_innermost_calls(limit: int) -> None:
    text = describe(caught(200), limit)
    assert len(text.encode()) <= limit
    assert text.startswith("ValueError: at the bottom")
    assert "[...]" in text
    if limit >= 300:
        assert "raise ValueError" in text


@pytest.mark.parametrize("limit", [10, 99, 4096])
def test_a_message_beyond_the_limit_is_cut_between_two_characters(limit: int) -> None:
    text = describe(ValueError("ü" * 10_000), limit)
    assert len(text.encode()) <= limit
    assert "\N{REPLACEMENT CHARACTER}" not in text


def test_what_json_cannot_encode_is_escaped() -> None:
    text = describe(FileNotFoundError("no file \udcff"), 4096)
    assert "no file \\udcff" in text
    text.encode()


def test_the_cause_of_an_error_is_recorded() -> None:
    try:
        try:
            deep(0)
        except ValueError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        text = describe(error, 4096)
    outer, inner = text.split("\ncaused by ValueError: at the bottom\n")
    assert outer.startswith("RuntimeError: outer\n  File ")
    assert "in deep" in inner, "and where it came from"


def test_the_context_of_an_error_is_recorded_unless_it_is_suppressed() -> None:
    def fail(*, hides: bool) -> None:
        try:
            deep(0)
        except ValueError:
            if hides:
                raise RuntimeError("outer") from None
            raise RuntimeError("outer")  # noqa: B904 - that is the case

    for hides in (False, True):
        with pytest.raises(RuntimeError) as caught:
            fail(hides=hides)
        assert ("caused by ValueError" in describe(caught.value, 4096)) is not hides


def test_a_cycle_of_causes_is_cut_off() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert describe(first, 4096).count("caused by") == 5


@pytest.mark.parametrize("kind", [Retry, GiveUp, UnfitPayload, HandlerFailed])
def test_retry_and_give_up_are_recorded_by_their_reason_alone(kind: type[Exception]) -> None:
    assert describe(kind("the printer is busy"), 4096) == "the printer is busy"


def test_an_error_whose_str_raises_is_recorded_by_its_type() -> None:
    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe(SpeechlessError(), 4096).startswith("SpeechlessError: (its message cannot")
