"""Garbage is looked for rarely, and only while a program has not decided otherwise."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from bucketq import process_memory
from bucketq.process_memory import (
    collect_as_usual,
    collect_rarely,
    collecting_rarely,
    keep_large_blocks,
    skip_last_collection,
)


@pytest.fixture(autouse=True)
def as_python_sets_it() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("default", [(700, 10, 10), (2000, 10, 10)], ids=["3.11", "3.13"])
def test_collections_are_rare_until_the_end_of_the_block(default: tuple[int, int, int]) -> None:
    gc.set_threshold(*default)
    with collecting_rarely(300_000):
        assert gc.get_threshold()[0] == 300_000
    assert gc.get_threshold() == default


def test_this_python_begins_with_thresholds_that_are_known() -> None:
    shown = [sys.executable, "-c", "import gc; print(gc.get_threshold())"]
    asked = subprocess.run(shown, capture_output=True, text=True, check=True, timeout=60)
    assert ast.literal_eval(asked.stdout) in process_memory._PYTHON_THRESHOLDS


def test_a_threshold_of_the_program_stays() -> None:
    gc.set_threshold(5_000, 10, 10)
    with collecting_rarely(300_000):
        assert gc.get_threshold() == (5_000, 10, 10)


def test_a_process_that_is_all_bucketq_sets_its_own() -> None:
    gc.set_threshold(5_000, 10, 10)
    collect_rarely(300_000)
    assert gc.get_threshold()[0] == 300_000
    keep_large_blocks()


def test_what_is_not_bucketq_runs_with_the_thresholds_of_the_program() -> None:
    usual = process_memory._USUAL_THRESHOLDS
    collect_rarely(300_000)
    collect_as_usual()
    assert gc.get_threshold() == usual


def test_what_grpc_leaves_is_collected_when_a_process_exits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen = gc.get_freeze_count()
    monkeypatch.setitem(sys.modules, "grpc", ModuleType("grpc"))
    skip_last_collection()
    assert gc.get_freeze_count() == frozen
