"""Lets a process kill itself at one of its steps, which are writes to a store."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bucketq.store.cloud import CloudStore
from bucketq.store.local import LocalStore

_Write = Callable[..., Awaitable[str]]


@contextmanager
def mortal(step: int, when: str, done: Path) -> Iterator[None]:
    """Kill this process before or after a step, unless that was done: the file says so."""
    steps = list[int]()

    def may_die(number: int, now: str) -> None:
        if (number, now) == (step, when) and not done.exists():
            done.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(write: _Write) -> _Write:
        async def write_or_die(*args: Any) -> str:
            steps.append(number := len(steps) + 1)
            may_die(number, "before")
            try:
                return await write(*args)
            finally:
                may_die(number, "after")

        return write_or_die

    with pytest.MonkeyPatch.context() as patch:
        for store in (LocalStore, CloudStore):
            patch.setattr(store, "create", counted(store.create))
            patch.setattr(store, "replace", counted(store.replace))
        yield
