"""A console for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.console import Console


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Console:
    monkeypatch.chdir(tmp_path)
    return Console(tmp_path)
