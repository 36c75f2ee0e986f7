"""The outcome of a handler in another process is returned or raised here."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from bucketq.worker.failure import name_of
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, Snooze, UnfitPayload
from bucketq.worker.runners.reply import (
    ENDED,
    Reply,
    how_it_ended,
    reply_done,
    reply_failed,
    value_of,
)


def sent(reply: Reply) -> Any:
    return value_of(msgspec.json.decode(msgspec.json.encode(reply), type=Reply))


@pytest.mark.parametrize("value", [None, 0, "ü", [1, {"a": None}], b"\x00\xff", b""])
def test_a_result_arrives_as_it_was_returned(value: Any) -> None:
    assert sent(reply_done(value)) == value


def test_a_result_that_cannot_be_encoded_as_json_is_a_failure() -> None:
    with pytest.raises(HandlerFailed, match="NaN or infinity"):
        sent(reply_done(float("nan")))


@pytest.mark.parametrize(
    "verdict",
    [GiveUp("never"), UnfitPayload("no"), Retry("later", delay_s=5), Snooze(5, "not yet")],
)
def test_retry_and_give_up_are_raised_again(verdict: Exception) -> None:
    with pytest.raises(type(verdict), match=str(verdict)) as caught:
        sent(reply_failed(verdict))
    assert getattr(caught.value, "delay_s", None) == getattr(verdict, "delay_s", None)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), asyncio.CancelledError()])
def test_any_other_error_arrives_as_text(error: BaseException) -> None:
    with pytest.raises(HandlerFailed, match=type(error).__name__):
        sent(reply_failed(error))


def test_the_end_of_a_process_is_described_by_its_signal_or_exit_code() -> None:
    assert how_it_ended(-11) == f"{ENDED} was ended by SIGSEGV"
    assert how_it_ended(3) == f"{ENDED} ended with exit code 3"


def test_an_error_keeps_its_name_on_the_way() -> None:
    with pytest.raises(HandlerFailed) as caught:
        sent(reply_failed(KeyError("to")))
    assert name_of(caught.value) == "KeyError"
    assert name_of(ValueError()) == "ValueError"
