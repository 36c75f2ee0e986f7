"""The queues that the contract tests run on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bucketq import Queue
from tests.contract.places import PLACES, Place


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a queue is that nobody has used yet."""
    return PLACES[request.param](tmp_path)


@pytest.fixture
async def queue(place: Place) -> AsyncIterator[Queue[Any]]:
    """A new queue, open."""
    async with place.connect() as opened:
        yield opened
