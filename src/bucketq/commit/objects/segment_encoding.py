"""Encodes segments while other tasks have their turns.

A segment of eight megabytes takes a fifth of a second of Python's time. Meanwhile a broker has to
answer pings and to commit what its callers ask for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from itertools import islice
from typing import TypeVar, cast

from bucketq.codec.segment_file import EncodedSegment, SegmentRow, encode_in_steps, sort_rows
from bucketq.model.segments import SegmentClass

T = TypeVar("T")

_LONGEST_PAUSE_S = 0.1
"""A process may have been stopped within a step."""

ROWS_A_TURN = 512
"""To make so many rows takes about a millisecond, as a step of the encoder does."""


async def encode_in_turns(cls: SegmentClass, rows: Iterable[SegmentRow]) -> EncodedSegment:
    """Sort and encode rows, at least one, of which some are made in each turn."""
    made, making = list[SegmentRow](), iter(rows)
    while some := list(islice(making, ROWS_A_TURN)):
        made += some
        await asyncio.sleep(0)
    return await run_in_turns(encode_in_steps(cls, sort_rows(cls, made)))


async def run_in_turns(steps: Generator[None, None, T], pause: float = 0) -> T:
    """Take all steps, with a turn for other tasks after each; return what they return.

    After each step it waits ``pause`` times as long as the step took, unless that is long.
    """
    time_s = asyncio.get_running_loop().time
    while True:
        began_s = time_s()
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
        await asyncio.sleep(min(pause * (time_s() - began_s), _LONGEST_PAUSE_S))
