"""A refusal is an answer: keeping it keeps nothing else alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from bucketq.errors import BucketQError
from bucketq.model.operations import AnyOperation, Configure, Push, Request
from bucketq.model.state import State
from bucketq.model.transitions import apply
from tests.unit.model.driver import START, new_job


@pytest.fixture
def without_collector() -> Iterator[None]:
    """What is not freed at once stays for ever."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Owner:
    """A caller of ``apply``: the frames of a refusal refer to it."""

    def refuse(self, operation: AnyOperation) -> BucketQError:
        state = State(incarnation="test", created_at=START)
        applied = apply(state, Request(operation), START)
        assert applied.error is not None
        return applied.error


@pytest.mark.parametrize(
    "operation",
    [
        Push(jobs=(new_job("one"), new_job("one"))),
        # One error because of another.
        Configure(changes={"lease_s": "long"}),
    ],
    ids=["push", "configure"],
)
def test_a_refusal_keeps_no_caller_alive(without_collector: None, operation: AnyOperation) -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    error = owner.refuse(operation)
    del owner
    assert gone() is None
    assert str(error)
