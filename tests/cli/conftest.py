"""A console for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.console import Console


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """A console whose processes end with the test, even if it fails."""
    monkeypatch.chdir(tmp_path)
    console = Console(tmp_path)
    yield console
    console.close()


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Leave the process as it was: a command imports a module of its user."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    if "tasks" not in modules:
        sys.modules.pop("tasks", None)
