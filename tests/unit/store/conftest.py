"""A file store with nothing in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bucketq.store.local import LocalStore
from tests.unit.store.spares import KEY, Versions


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalStore]:
    opened = LocalStore(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[LocalStore]:
    """The same files, as another process would have them."""
    opened = LocalStore(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
def versions(store: LocalStore, tmp_path: Path) -> Versions:
    return Versions(store, tmp_path / KEY)
