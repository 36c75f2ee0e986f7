"""What queues and stores guarantee if a server's answers are lost.

The server is a real one; between it and the queue stands ``FaultProxy``. Each test is run on
each server, by ``clouds.contract``.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

import bucketq
from bucketq import Queue
from bucketq.archive.archive_layout import Layout
from bucketq.archive.reader import ArchiveReader
from bucketq.client.connect_arguments import Mode
from bucketq.errors import StoreRefusedError, SupersededError, UnavailableError
from bucketq.store.base import ObjectMissingError, PreconditionFailedError
from bucketq.store.cloud import open_cloud
from bucketq.store.url import open_store
from tests.servers import proxy
from tests.servers.proxy import Fault, FaultProxy
from tests.servers.server import BUCKET, Server
from tests.servers.wire import Message

# After each of these the write has landed, has not, or will; the client cannot know.
UNKNOWN: list[Fault] = [
    proxy.closed,
    proxy.reset,
    proxy.cut,
    proxy.landed_500,
    proxy.landed_502,
    proxy.landed_503,
    proxy.landed_429,
    proxy.landed_409,
    proxy.mute,
    proxy.lost,
    proxy.late,
    proxy.late_504,
    proxy.unheard_409,
    proxy.unheard_500,
    proxy.unheard_503,
]
# These are wrong: what they say of the object is not so. A retry below us can make them.
MISLEADING: list[Fault] = [proxy.landed_412, proxy.unheard_412, proxy.unheard_404]

ANSWER_S = 0.4
PATIENCE_S = 120.0
"""How long a queue may try again: on a busy machine many answers take longer than ``ANSWER_S``."""
MODES: list[Mode] = ["direct", "embedded"]


def _names(faults: list[Fault]) -> list[str]:
    return [fault.__name__ for fault in faults]


each_mode = pytest.mark.parametrize("mode", MODES)
each_fault = pytest.mark.parametrize(
    "fault", UNKNOWN + MISLEADING, ids=_names(UNKNOWN + MISLEADING)
)
each_fault_and_mode = pytest.mark.parametrize(
    ("fault", "mode"),
    [
        # What a lost answer means depends on the server and the fault, or on the fault and the
        # mode: in ordinary runs each fault strikes one mode on each server.
        pytest.param(
            fault,
            mode,
            marks=[] if number % len(MODES) == MODES.index(mode) else pytest.mark.full,
            id=f"{fault.__name__}-{mode}",
        )
        for number, fault in enumerate(UNKNOWN + MISLEADING)
        for mode in MODES
    ],
)
# Without the 404: to a creation it says that there is no bucket, which is final.
each_unknown = pytest.mark.parametrize("fault", UNKNOWN, ids=_names(UNKNOWN))


def now_and_then(seed: int, share: float) -> Iterator[Fault | None]:
    """A fault of some kind for a share of the writes."""
    chance = random.Random(seed)
    while True:
        yield chance.choice(UNKNOWN + MISLEADING) if chance.random() < share else None


def through(faults: FaultProxy, server: Server, url: str) -> str:
    """The address of the same object through the proxy."""
    url = url.replace(f"%3A{server.port}", f"%3A{faults.port}")
    return f"{url}&timeout_s={ANSWER_S}"


@each_fault_and_mode
async def a_push_whose_answer_is_lost_is_there_once(
    server: Server, fault: Fault, mode: Mode
) -> None:
    url = server.url()
    # The first write creates the queue, the second shows that the store heeds conditions.
    plan = itertools.chain([None, None, fault])
    with FaultProxy(server.port, plan) as faults:
        async with bucketq.connect(
            through(faults, server, url), mode=mode, timeout_s=PATIENCE_S
        ) as queue:
            first = await queue.push("mail", "one")
            second = await queue.push("mail", "two")
            assert faults.struck == {fault.__name__: 1}
    async with bucketq.connect(url) as queue:
        found = [(job.id, job.payload) for job in (await queue.jobs()).jobs]
        assert found == [(first, "one"), (second, "two")]


@each_unknown
async def a_queue_whose_creation_has_no_answer_is_created_once(
    server: Server, fault: Fault
) -> None:
    url = server.url()
    with FaultProxy(server.port, iter([fault])) as faults:
        async with bucketq.connect(through(faults, server, url), timeout_s=PATIENCE_S) as queue:
            assert faults.struck == {fault.__name__: 1}
            await queue.push("mail", "one")
            async with bucketq.connect(url) as other:
                await other.push("mail", "two")
            assert [job.payload for job in (await queue.jobs()).jobs] == ["one", "two"]


@each_mode
async def no_operation_is_lost_or_doubled_if_a_quarter_of_the_answers_are_lost(
    server: Server, mode: Mode
) -> None:
    url, tokens = server.url(), [f"token-{number}" for number in range(40)]
    with FaultProxy(server.port, now_and_then(7, 0.25)) as faults:
        async with bucketq.connect(
            through(faults, server, url), mode=mode, timeout_s=PATIENCE_S
        ) as queue:
            pushed = await asyncio.gather(*(_push(queue, tokens[n::4]) for n in range(4)))
            ids = {token: job_id for some in pushed for token, job_id in some.items()}
            claimed = await asyncio.gather(*(_work(queue) for _ in range(4)))
            stats = await queue.stats()
            assert (stats.total("done"), stats.total("queued")) == (40, 0)
            await queue.flush_archive()
        assert sum(faults.struck.values()) >= 5, faults.struck
    handed_out = Counter(job_id for jobs in claimed for job_id in jobs)
    assert handed_out == dict.fromkeys(ids.values(), 1)
    assert await _archived(url) == {
        ids[token]: (f'"{token}"', 1, f'"did {token}"') for token in tokens
    }


async def _push(queue: Queue[Any], tokens: list[str]) -> dict[str, str]:
    return {token: await queue.push("mail", token) for token in tokens}


async def _work(queue: Queue[Any]) -> list[str]:
    """Claim and complete until nothing is left; return what was claimed."""
    claimed = []
    while jobs := await queue.claim(limit=3):
        for job in jobs:
            claimed.append(job.id)
            await queue.complete(job, f"did {job.payload}")
    return claimed


async def _archived(url: str) -> dict[str, tuple[str, int, str]]:
    """Payload, attempts and result of each job in the archive, which has each of them once."""
    location = open_store(url)
    reader = ArchiveReader(location.store, Layout.of(location.store.url, location.key))
    now = datetime.now(UTC)
    jobs = [job async for job in reader.jobs(now - timedelta(hours=1), now + timedelta(hours=1))]
    await location.store.close()
    assert len({job.id for job in jobs}) == len(jobs)
    return {
        job.id: (bytes(job.payload).decode(), job.attempt, bytes(job.result or b"").decode())
        for job in jobs
    }


@each_fault
async def a_store_reports_what_it_knows_and_makes_one_request(server: Server, fault: Fault) -> None:
    """One call, one request: were it sent again below us, it would conflict with itself."""
    requests: list[str] = []

    def strikes(request: Message) -> bool:
        requests.append(request.method)
        return request.method == "PUT"

    url = server.url()
    # Not through the proxy, which a store waits for only so long: the machine may be busy.
    creator, key, _ = open_cloud(urlsplit(url))
    etag = await creator.create(key, b"one")
    await creator.close()
    with FaultProxy(server.port, iter([fault]), strikes) as faults:
        store, key, _ = open_cloud(urlsplit(through(faults, server, url)))
        with pytest.raises(_expected(fault)) as caught:
            await store.replace(key, b"two", etag)
        assert requests.count("PUT") == 1
        if isinstance(caught.value, UnavailableError):
            assert caught.value.throttled == (fault in {proxy.landed_429, proxy.unheard_503})
            assert requests == ["PUT"]
        await store.close()


def _expected(fault: Fault) -> type[Exception]:
    if fault is proxy.unheard_404:
        return ObjectMissingError
    return PreconditionFailedError if fault in MISLEADING else UnavailableError


async def a_store_makes_of_a_cut_answer_no_short_one(server: Server) -> None:
    url = server.url()
    with FaultProxy(
        server.port, itertools.repeat(proxy.cut), lambda request: request.method == "GET"
    ) as faults:
        store, key, _ = open_cloud(urlsplit(through(faults, server, url)))
        await store.put(key, b"one" * 5000)
        with pytest.raises(UnavailableError):
            [info async for info in store.list("")]
        with pytest.raises(UnavailableError):
            await store.get(key)
        with pytest.raises(UnavailableError):
            await store.get_range(key, 0, 10_000)
        await store.close()


@each_mode
async def a_queue_that_is_deleted_while_in_use_is_not_created_again(
    server: Server, mode: Mode
) -> None:
    url = server.url()
    location = open_store(url)
    async with bucketq.connect(url, mode=mode) as queue:
        await queue.push("mail", "one")
        await location.store.delete(location.key)
        with pytest.raises(SupersededError, match="deleted"):
            await queue.push("mail", "two")
        with pytest.raises(ObjectMissingError):
            await location.store.get(location.key)
    await location.store.close()


async def a_missing_bucket_is_named_in_the_error(server: Server) -> None:
    url = server.url().replace(BUCKET, "no-such-bucket")
    with pytest.raises(StoreRefusedError, match="no bucket or container no-such-bucket"):
        async with bucketq.connect(url):
            pass


async def wrong_credentials_are_reported_as_such(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url()
    async with bucketq.connect(url) as queue:
        await queue.push("mail", "one")
    wrong = "aHVudGVyMg=="
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", wrong)
    with pytest.raises(StoreRefusedError, match=r"it answered 403.*credentials") as no:
        async with bucketq.connect(url):
            pass
    assert wrong not in str(no.value)


TESTS = (
    a_push_whose_answer_is_lost_is_there_once,
    a_queue_whose_creation_has_no_answer_is_created_once,
    no_operation_is_lost_or_doubled_if_a_quarter_of_the_answers_are_lost,
    a_store_reports_what_it_knows_and_makes_one_request,
    a_store_makes_of_a_cut_answer_no_short_one,
    a_queue_that_is_deleted_while_in_use_is_not_created_again,
    a_missing_bucket_is_named_in_the_error,
    wrong_credentials_are_reported_as_such,
)
