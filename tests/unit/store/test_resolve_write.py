"""The loop that resolves the outcome of a conditional write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bucketq.errors import StoreRefusedError, UnavailableError
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import ObjectMissingError, PreconditionFailedError
from bucketq.store.resolve_write import Verdict, WriteOutcome, write_until_certain
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop, run

UNANSWERED = UnavailableError("no answer")
CONFLICT = PreconditionFailedError("412")
GONE = ObjectMissingError("404")
REFUSED = StoreRefusedError("403")


class Script:
    """Writes and reads that end as listed, one after the other."""

    def __init__(self, writes: list[Exception | None], reads: list[Verdict | Exception]) -> None:
        self.writes: Iterator[Exception | None] = iter(writes)
        self.reads: Iterator[Verdict | Exception] = iter(reads)

    async def send(self) -> None:
        if (error := next(self.writes)) is not None:
            raise error

    async def read_back(self) -> Verdict:
        found = next(self.reads)
        if isinstance(found, Exception):
            raise found
        return found

    def play(self) -> WriteOutcome[Verdict]:
        async def main(_: Any) -> WriteOutcome[Verdict]:
            clock = SimulatedClock(current_loop())
            return await write_until_certain(
                self.send,
                self.read_back,
                lambda found: found,
                lambda: RetryBackoff(clock, 0.05, 3.0),
            )

        return run(main)

    def is_over(self) -> bool:
        return next(self.writes, UNANSWERED) is UNANSWERED and next(self.reads, None) is None


def test_a_write_that_is_answered_is_not_read_back() -> None:
    script = Script([None], [])
    assert script.play() == WriteOutcome(Verdict.LANDED, None)
    assert script.is_over()


@pytest.mark.parametrize("answer", [UNANSWERED, CONFLICT, GONE])
@pytest.mark.parametrize("verdict", [Verdict.LANDED, Verdict.LOST, Verdict.FORGOTTEN])
def test_any_other_answer_is_judged_by_what_is_read_back(
    answer: Exception, verdict: Verdict
) -> None:
    script = Script([answer], [verdict])
    assert script.play() == WriteOutcome(verdict, verdict)
    assert script.is_over()


@pytest.mark.parametrize("answer", [UNANSWERED, CONFLICT, GONE])
def test_while_the_outcome_is_open_the_write_is_sent_again(answer: Exception) -> None:
    script = Script([answer, answer, None], [Verdict.OPEN, Verdict.OPEN])
    assert script.play() == WriteOutcome(Verdict.LANDED, None)
    assert script.is_over()


def test_a_refusal_of_the_first_try_is_final() -> None:
    with pytest.raises(StoreRefusedError):
        Script([REFUSED], []).play()


@pytest.mark.parametrize("answer", [UNANSWERED, CONFLICT, GONE])
def test_a_refusal_after_an_earlier_try_decides_nothing(answer: Exception) -> None:
    script = Script([answer, REFUSED, REFUSED], [Verdict.OPEN, Verdict.OPEN, Verdict.LANDED])
    assert script.play().verdict is Verdict.LANDED
    assert script.is_over()


@pytest.mark.parametrize("trouble", [UNANSWERED, REFUSED])
def test_reading_back_is_retried_until_there_is_an_answer(trouble: Exception) -> None:
    script = Script([UNANSWERED], [trouble, trouble, Verdict.LOST])
    assert script.play().verdict is Verdict.LOST
    assert script.is_over()


@pytest.mark.parametrize("part", ["read_back", "judge"])
def test_what_else_reading_and_judging_raise_ends_it(part: str) -> None:
    async def read_back() -> None:
        if part == "read_back":
            raise KeyError(part)

    def judge(_: None) -> Verdict:
        raise KeyError(part)

    async def main(_: Any) -> None:
        script = Script([UNANSWERED], [])
        clock = SimulatedClock(current_loop())
        await write_until_certain(
            script.send, read_back, judge, lambda: RetryBackoff(clock, 0.05, 3.0)
        )

    with pytest.raises(KeyError, match=part):
        run(main)
