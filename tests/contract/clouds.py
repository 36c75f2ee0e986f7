"""The contracts of stores and queues, to be held on a server that runs on this machine.

The contract of stores, ``faults``, ``smoke``, ``segments`` and ``deep_queues`` are held on each
server in every test run. What queues mean does not depend on the server, so the rest is left to
full runs (``--full``).

There is one test file for each server, so that it runs in one process of a test run only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import FunctionType
from typing import Any
from urllib.parse import urlsplit

import pytest

from bucketq.errors import UnavailableError
from bucketq.store.base import ObjectMissingError, ObjectStore, PreconditionFailedError
from bucketq.store.cloud import CloudStore, open_cloud
from tests.contract import (
    deep_queues,
    faults,
    segments,
    smoke,
    test_queue_blocking,
    test_queue_claim,
    test_queue_leases,
    test_queue_operators,
    test_queue_payloads,
    test_queue_push,
    test_store,
)
from tests.contract.faults import MODES
from tests.contract.places import Place
from tests.servers.running import running
from tests.servers.server import ENVIRON, Server

_SUITES = (
    test_store,
    test_queue_blocking,
    test_queue_claim,
    test_queue_leases,
    test_queue_operators,
    test_queue_payloads,
    test_queue_push,
)
# Said again below, with fewer writes and from connections of their own.
_SAID_AGAIN = {
    "test_etags_do_not_repeat_over_rapid_writes_of_one_size",
    "test_etags_do_not_repeat_when_an_object_is_deleted_and_made_again",
    "test_many_writers_that_compare_and_set_lose_no_update",
    "test_of_many_that_create_at_once_one_wins",
}
# They hold a queue to fractions of a second, which are the server's here.
_ON_TIME = {
    "test_a_failed_job_waits_and_is_tried_again",
    "test_a_job_released_with_a_delay_comes_back_then",
    "test_a_delayed_job_is_claimed_on_time_without_a_write",
    "test_a_waiting_claim_is_woken_by_a_push_to_the_same_queue",
    "test_an_empty_claim_answers_at_once_and_writes_nothing",
    "test_several_waiting_claims_share_what_comes",
    "test_the_jobs_of_a_cancelled_claim_are_given_back",
}
# They never reach a store.
_ELSEWHERE = {
    "test_every_verb_of_a_queue_has_a_blocking_form_with_its_name_and_words",
    "test_a_queue_that_was_not_opened_says_how",
}
# S3 names a version by a hash of its content; every commit has content of its own.
_NOT_ON_S3 = {"test_replacing_bytes_by_the_same_bytes_still_gives_a_new_etag"}
_S3_SERVERS = {"seaweedfs", "ministack"}
# A page of Azure has five thousand entries. Azurite answers a range of an empty object with 206 and
# the range "0--1", which is refused as the answer of something that is not a store.
_NOT_ON_AZURE = {
    "test_a_listing_of_more_than_a_page_is_whole",
    "test_an_empty_object_has_no_range",
}

# What processes do to one another, and to many faults at random, is tried on one server in ordinary
# runs: each single fault is tried on all of them.
_ON_ONE = {
    "test_a_deep_queue_loses_and_doubles_nothing_if_answers_are_lost",
    "test_kills_between_any_two_steps_on_a_deep_queue_lose_and_double_nothing",
    "test_kills_between_any_two_steps_lose_no_large_payload_and_leave_none_behind",
    "test_no_operation_is_lost_or_doubled_if_a_quarter_of_the_answers_are_lost",
}
_THE_ONE = "seaweedfs"

# Those that do not check credentials.
_OPEN_SERVERS = {"fakegcs", "ministack"}
_NOT_ON_OPEN = {"test_wrong_credentials_are_reported_as_such"}


def contract(name: str) -> dict[str, Any]:
    """All tests of the contracts, and the fixtures that run them on one server."""
    left_out = _SAID_AGAIN | _ON_TIME | _ELSEWHERE
    left_out |= _NOT_ON_S3 if name in _S3_SERVERS else set()
    left_out |= _NOT_ON_AZURE if name == "azurite" else set()
    left_out |= _NOT_ON_OPEN if name in _OPEN_SERVERS else set()
    tests = {
        test: _for_full_runs(code) if test in _ON_ONE and name != _THE_ONE else code
        for names in (*map(vars, _SUITES), _tests_of_servers())
        for test, code in names.items()
        if test.startswith("test_") and test not in left_out
    }
    return {**tests, **_fixtures(name), "pytestmark": pytest.mark.servers}


def _for_full_runs(test: Any) -> Any:
    """The same test, marked; the function itself is shared by all servers."""
    copy = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__)
    copy.__dict__.update(test.__dict__)
    copy.__annotations__, copy.__kwdefaults__ = test.__annotations__, test.__kwdefaults__
    return pytest.mark.full(copy)


def _fixtures(name: str) -> dict[str, Any]:
    @pytest.fixture
    def server(monkeypatch: pytest.MonkeyPatch) -> Server:
        """The server, and its credentials in the environment."""
        for variable, value in ENVIRON.items():
            monkeypatch.setenv(variable, value)
        return running(name)

    @pytest.fixture
    async def store(server: Server) -> AsyncIterator[ObjectStore]:
        """A store with nothing in it."""
        opened, _, _ = open_cloud(urlsplit(server.url()))
        yield opened
        await opened.close()

    @pytest.fixture(params=[pytest.param(mode, marks=pytest.mark.full) for mode in MODES])
    def place(request: pytest.FixtureRequest, server: Server) -> Place:
        """The address of a queue that does not exist yet."""
        return Place(server.url(), request.param)

    return {"server": server, "store": store, "place": place}


def _tests_of_servers() -> dict[str, Any]:
    tests = (
        of_sixteen_clients_that_create_at_once_one_wins,
        sixteen_clients_that_compare_and_set_lose_no_update,
        etags_do_not_repeat,
        a_deleted_object_is_missing_to_a_writer_that_would_replace_it,
        a_listing_of_more_than_a_page_is_whole,
        *faults.TESTS,
        *smoke.TESTS,
        *segments.TESTS,
        *deep_queues.TESTS,
    )
    return {f"test_{test.__name__}": test for test in tests}


async def of_sixteen_clients_that_create_at_once_one_wins(store: CloudStore) -> None:
    clients = [CloudStore(store._address) for _ in range(16)]
    outcomes = await asyncio.gather(
        *(client.create("race", b"%d" % number) for number, client in enumerate(clients)),
        return_exceptions=True,
    )
    winners = [number for number, etag in enumerate(outcomes) if isinstance(etag, str)]
    losers = [error for error in outcomes if isinstance(error, PreconditionFailedError)]
    # A busy server may not answer one of them in time; that one may have won.
    unknown = [n for n, error in enumerate(outcomes) if isinstance(error, UnavailableError)]
    assert len(winners) + len(losers) + len(unknown) == 16
    assert len(losers) >= 12
    assert len(winners) == 1 or (not winners and unknown)
    found = int((await store.get("race")).body)
    assert found in (winners or unknown)


async def sixteen_clients_that_compare_and_set_lose_no_update(store: CloudStore) -> None:
    async def increment(client: CloudStore, times: int) -> None:
        while times:
            stored = await client.get("counter")
            with contextlib.suppress(PreconditionFailedError):
                await client.replace("counter", b"%d" % (int(stored.body) + 1), stored.etag)
                times -= 1

    await store.create("counter", b"0")
    await asyncio.gather(*(increment(CloudStore(store._address), 2) for _ in range(16)))
    assert (await store.get("counter")).body == b"32"


async def etags_do_not_repeat(store: CloudStore) -> None:
    etags = [await store.create("key", b"%04d" % 0)]
    for number in range(1, 40):
        etags.append(await store.replace("key", b"%04d" % number, etags[-1]))
    for number in range(40, 50):
        await store.delete("key")
        etags.append(await store.create("key", b"%04d" % number))
    assert len(set(etags)) == len(etags)


async def a_deleted_object_is_missing_to_a_writer_that_would_replace_it(store: CloudStore) -> None:
    etag = await store.create("key", b"one")
    await store.delete("key")
    with pytest.raises(ObjectMissingError):
        await store.replace("key", b"two", etag)
    with pytest.raises(ObjectMissingError):
        await store.get("key")


async def a_listing_of_more_than_a_page_is_whole(store: CloudStore) -> None:
    written = [f"archive/{number:04}" for number in range(1010)]
    for start in range(0, len(written), 50):
        await asyncio.gather(*(store.put(key, b"") for key in written[start : start + 50]))
    assert [info.key async for info in store.list("archive/")] == written
    assert [info.key async for info in store.list("archive/100")] == written[1000:]
