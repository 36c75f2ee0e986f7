"""``Golden``: one of the objects that are kept here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bucketq.model.state import State


class Golden(NamedTuple):
    """A file, the state that it holds, the commit that wrote it, and its format."""

    build: Callable[[], State]
    commit: str
    format: int = 1
