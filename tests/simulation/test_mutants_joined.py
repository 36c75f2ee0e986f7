"""The promises of calls that are joined: take the reason away, and the simulator finds out."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from msgspec.structs import replace

from bucketq.errors import BucketQError
from bucketq.model.operations import Request
from bucketq.model.requests import repeats
from bucketq.queue import joined_calls
from simulator.simulation import simulate
from tests.simulation.test_mutants import expect

Patch = pytest.MonkeyPatch
_RECORDS = repeats._joined_records


@pytest.mark.parametrize(
    ("seed", "deep"),
    [(1, True), *(pytest.param(n, n % 2 == 0, marks=pytest.mark.full) for n in range(8))],
)
def test_crowds_hold_under_every_fault(seed: int, deep: bool, monkeypatch: Patch) -> None:
    joined = list[Request]()
    find_joined = repeats._find_joined

    def note(state: Any, request: Request, session: Any) -> object:
        joined.append(request)
        return find_joined(state, request, session)

    monkeypatch.setattr(repeats, "_find_joined", note)
    simulate(seed, scenario="crowds", deep=deep)
    assert joined
    assert any(request.counts for request in joined)
    if (seed, deep) == (1, True):
        assert any(request.since is not None for request in joined)


def test_remembering_only_the_first_of_joined_requests_is_noticed(monkeypatch: Patch) -> None:
    def first(request: Request, answer: Any) -> list[tuple[int, object, str]]:
        return _RECORDS(request, answer)[:1]

    monkeypatch.setattr(repeats, "_joined_records", first)
    # A push or a completion of the others may take effect twice, perhaps after the job has left.
    twice = "nothing refused takes effect", "done is final", "a job that has left stays away"
    expect(*twice, scenario="crowds", first=5)


def test_ids_that_are_given_to_another_caller_are_noticed(monkeypatch: Patch) -> None:
    counts = joined_calls._counts

    def turned(calls: Any) -> tuple[int, ...]:
        return counts(calls)[::-1]

    monkeypatch.setattr(joined_calls, "_counts", turned)
    expect("acknowledged means durable", scenario="crowds")


def test_jobs_of_a_batch_that_are_remembered_for_another_are_noticed(monkeypatch: Patch) -> None:
    def turned(request: Request, answer: Any) -> list[tuple[int, object, str]]:
        return _RECORDS(replace(request, counts=request.counts[::-1]), answer)

    monkeypatch.setattr(repeats, "_joined_records", turned)
    expect("nothing refused takes effect", scenario="crowds", first=5)


def test_a_token_that_all_callers_share_is_noticed(monkeypatch: Patch) -> None:
    def shared(error: BucketQError, _request: Request, _call: Any) -> BucketQError:
        return copy(error)

    monkeypatch.setattr(joined_calls, "_own_error", shared)
    expect("one owner for an attempt", "nothing refused takes effect", scenario="crowds", first=4)
