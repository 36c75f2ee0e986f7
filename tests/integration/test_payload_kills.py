"""Processes with large payloads in a file, and killed between any two of their steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.payload_lives import PayloadLives


@pytest.mark.parametrize(
    ("pairs", "seed"), [(6, 7), *(pytest.param(25, n, marks=pytest.mark.full) for n in range(3))]
)
async def test_kills_between_any_two_steps_lose_no_payload_and_leave_none_behind(
    tmp_path: Path, pairs: int, seed: int
) -> None:
    lives = PayloadLives((tmp_path / "queue.json").as_uri(), tmp_path, seed)
    await lives.run(pairs)
    await lives.judge()
