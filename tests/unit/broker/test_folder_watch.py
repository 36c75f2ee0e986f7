"""Servers of a folder: new queues, bad queues, queues that go, and an even share of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from urllib.parse import unquote

import pytest

from bucketq.broker import folder_watch
from bucketq.broker.broker import Broker
from bucketq.broker.folder_watch import SCAN_S, FolderWatch
from bucketq.broker.server import Server
from bucketq.commit.objects.register import Register
from bucketq.errors import RejectedError
from bucketq.store import queue_search
from bucketq.store.memory import MemoryStore
from bucketq.store.queue_search import QueueFolder
from bucketq.store.url import Location
from tests.unit.broker.land import Land, until
from tests.unit.commit.worlds import virtual

FOLDER = "file:///jobs/"


@pytest.fixture(autouse=True)
def shelf(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The store of the folder."""
    store = MemoryStore()

    def opened(url: str) -> Location:
        return Location(store, unquote(url.removeprefix(FOLDER)), url)

    monkeypatch.setattr(queue_search, "open_store", opened)
    monkeypatch.setattr(folder_watch, "open_store", opened)
    return store


class Street(Land):
    """Servers of one folder on several hosts."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.shelf = store
        self.refused = set[str]()

    async def create(self, *names: str) -> None:
        for name in names:
            await Register(self.shelf, f"{name}.json", name, self.clock).open(create=True)

    def watch(self, host: str, **options: Any) -> tuple[Server, FolderWatch]:
        server = Server(self.network.host(host), self.clock, host)
        server.share()

        async def make(location: Location) -> list[Broker]:
            if location.key in self.refused:
                raise RejectedError(f"{location.url} is refused")
            register = Register(location.store, location.key, location.url, self.clock)
            broker = Broker(
                register,
                self.clock,
                self.network.host(host),
                archive=None,
                create=False,
                count_led=server.count_led,
                **options,
            )
            return [broker]

        return server, FolderWatch(QueueFolder(FOLDER), server, make, self.clock)

    async def start(self, host: str) -> tuple[Server, asyncio.Task[None]]:
        server, watch = self.watch(host)
        await watch.scan()
        await server.start(f"{host}:0")
        return server, asyncio.get_running_loop().create_task(watch.run())


@virtual
async def test_new_queues_are_served_and_those_that_are_gone_are_not(shelf: MemoryStore) -> None:
    street = Street(shelf)
    await street.create("a", "mail/eu")
    server, watching = await street.start("host1")
    await until(lambda: server.count_led() == 2)
    assert sorted(server.brokers) == ["a", "mail.eu"]
    await street.create("later", "Ä b")
    await asyncio.sleep(SCAN_S + 1)
    names = sorted(server.brokers)
    assert [*names[:1], *names[2:]] == ["a", "later", "mail.eu"]
    assert names[1].startswith("b-")
    await until(lambda: server.count_led() == 4)
    await shelf.delete("a.json")
    await asyncio.sleep(SCAN_S + 1)
    assert "a" not in server.brokers
    await street.create("a")
    await asyncio.sleep(SCAN_S + 1)
    await until(lambda: server.brokers["a"].leader is not None)
    watching.cancel()
    await server.stop()


@virtual
async def test_a_bad_queue_does_not_affect_others_and_is_tried_when_it_changes(
    shelf: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    street = Street(shelf)
    await shelf.put("bad.json", b'{"format":1,"is":"damaged"}')
    await street.create("good", "closed")
    street.refused.add("closed.json")
    server, watching = await street.start("host1")
    await server.until_open(5.0)
    await until(lambda: server.brokers["good"].leader is not None)
    await asyncio.sleep(5 * SCAN_S)
    assert sorted(server.brokers) == ["good"]
    for text in ("bad.json is not a queue", "closed.json is refused"):
        assert sum(text in record.message for record in caplog.records) == 1, text
    street.refused.clear()
    await shelf.delete("bad.json")
    await shelf.delete("closed.json")
    await street.create("bad", "closed")
    await asyncio.sleep(SCAN_S + 1)
    await until(lambda: server.count_led() == 3)
    watching.cancel()
    await server.stop()


@virtual
async def test_servers_share_queues_evenly_and_never_take_one(shelf: MemoryStore) -> None:
    street = Street(shelf)
    names = [f"q{number}" for number in range(9)]
    await street.create(*names)
    servers = list[Server]()
    for number in range(3):
        server, watching = await street.start(f"host{number}")
        servers.append(server)
        await asyncio.sleep(40)
        watching.cancel()
    assert [server.count_led() for server in servers] == [3, 3, 3]
    epochs = {
        name: broker.leader.epoch
        for s in servers
        for name, broker in s.brokers.items()
        if broker.leader is not None
    }
    await asyncio.sleep(120)
    assert epochs == {
        name: broker.leader.epoch
        for s in servers
        for name, broker in s.brokers.items()
        if broker.leader is not None
    }, "queues go to and fro"
    await servers[0].stop()
    await until(lambda: servers[1].count_led() + servers[2].count_led() == 9)
    await asyncio.sleep(20)
    assert abs(servers[1].count_led() - servers[2].count_led()) <= 1
    led = Counter(
        name for s in servers[1:] for name, broker in s.brokers.items() if broker.leader is not None
    )
    assert led == Counter(names)
    for server in servers[1:]:
        await server.stop()
