"""Garbage is looked for rarely, and only while a program has not decided otherwise."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bucketq.process_memory import collect_rarely, collecting_rarely, keep_large_blocks


@pytest.fixture(autouse=True)
def as_python_sets_it() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_collections_are_rare_until_the_end_of_the_block() -> None:
    with collecting_rarely(300_000):
        assert gc.get_threshold()[0] == 300_000
    assert gc.get_threshold() == (700, 10, 10)


def test_a_threshold_of_the_program_stays() -> None:
    gc.set_threshold(5_000, 10, 10)
    with collecting_rarely(300_000):
        assert gc.get_threshold() == (5_000, 10, 10)
    collect_rarely(300_000)
    assert gc.get_threshold() == (5_000, 10, 10)
    keep_large_blocks()
