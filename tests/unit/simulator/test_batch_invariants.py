"""The checks of batches name the promise that was broken, whichever sign comes first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest

from bucketq.model.numbered_batches import BatchState, ConsumerRecord
from simulator.call_log import CallLog, RecordedCall
from simulator.invariants.batch_invariants import ConsumerTracker

START = datetime(2026, 1, 1, tzinfo=UTC)
NO_HISTORY = cast("CallLog", None)


def consumer(epoch: int, batch: int = 0, *jobs: str) -> ConsumerRecord:
    return ConsumerRecord(id="spark", seq=1, epoch=epoch, at=START, batch=batch, jobs=jobs)


def claim_of(epoch: int, batch: int, count: int, version: int) -> RecordedCall:
    detail = {"consumer": "spark", "epoch": epoch, "batch": batch}
    answer = BatchState(batch, count)
    return RecordedCall(0, "driver", "claim_batch", detail, 0.0, 1, 1.0, version, answer)


@pytest.mark.parametrize(
    ("rows", "breach"),
    [
        ([(2, consumer(1)), (3, consumer(1, 1, "a")), (4, consumer(2, 1, "a"))], None),
        (
            [(2, consumer(1)), (3, consumer(2)), (4, consumer(2, 1, "a"))],
            "an older driver is fenced",
        ),
        ([(2, consumer(1)), (9, consumer(1, 1, "a"))], "no answer before its commit"),
    ],
    ids=["its own batch", "the batch of a later driver", "a batch that is not committed yet"],
)
def test_a_driver_may_only_be_given_a_batch_that_was_open_for_it(
    rows: list[tuple[int, ConsumerRecord]], breach: str | None
) -> None:
    tracker = ConsumerTracker(sets={("spark", 1): [("a",)]}, rows={"spark": rows})
    found = tracker.check_call(NO_HISTORY, claim_of(1, 1, 1, version=5), 1)
    assert (found and found[0]) == breach
