"""Processes that work on a deep queue in a file, and are killed between any two of their steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.deep_lives import DeepLives


@pytest.mark.parametrize(
    ("pairs", "seed"), [(4, 7), *(pytest.param(25, n, marks=pytest.mark.full) for n in range(3))]
)
async def test_kills_between_any_two_steps_lose_and_double_nothing(
    tmp_path: Path, pairs: int, seed: int
) -> None:
    lives = DeepLives((tmp_path / "queue.json").as_uri(), tmp_path, seed)
    await lives.run(pairs)
    await lives.judge()
