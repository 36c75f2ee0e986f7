"""Where a run has its queue, and how the way to it is cut."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.contract.faults import MISLEADING, UNKNOWN
from tests.servers.proxy import Fault, FaultProxy, ProxyThread
from tests.servers.server import Server
from tests.servers.wire import Message

ANSWER_S = 1.0
"""How long brokers and clients wait for the storage behind a proxy."""
_SHARE = 0.06


class CutProxy(FaultProxy):
    """The way of one process to its storage: it loses some answers, and can be cut."""

    def __init__(self, target_port: int, seed: str) -> None:
        super().__init__(target_port, now_and_then(seed))
        self.is_cut = False
        self.is_silent = False
        self.delay_s = 0.0
        """How long every request is on its way."""
        self.is_calm = False
        """Whether all faults are over."""
        self._ambush: Callable[[], None] | None = None
        self._lands = False

    def cut(self, *, silent: bool) -> None:
        """Let nothing through: connections end at once, or nobody ever answers on them."""
        self.is_silent = silent
        self.is_cut = True

    def slow(self, delay_s: float) -> None:
        """Let everything through, late."""
        self.delay_s = delay_s

    def lie_in_wait(self, strike: Callable[[], None], *, lands: bool) -> None:
        """Strike when the next archive file comes by; it lands before that, or never."""
        self._lands = lands
        self._ambush = strike

    def heal(self) -> None:
        self.is_cut = False
        self.delay_s = 0.0

    async def handle(self, request: Message, writer: asyncio.StreamWriter) -> None:
        if self.is_calm:
            await ProxyThread.handle(self, request, writer)
        elif self._ambush is not None and _is_archive_file(request):
            strike, self._ambush = self._ambush, None
            if self._lands:
                await self.upstream.forward(request)
            strike()
            writer.close()
        elif not self.is_cut:
            await asyncio.sleep(self.delay_s)
            await super().handle(request, writer)
        elif self.is_silent:
            await asyncio.Event().wait()
        else:
            writer.close()


def _is_archive_file(request: Message) -> bool:
    return request.method == "PUT" and "/archive/" in request.target


def now_and_then(seed: str) -> Iterator[Fault | None]:
    """A fault of some kind for a share of the writes."""
    chance = random.Random(seed)
    while True:
        yield chance.choice(UNKNOWN + MISLEADING) if chance.random() < _SHARE else None


class Place:
    """A queue, and the addresses by which those who take part see it."""

    def __init__(
        self, url: str, broker_urls: list[str], client_url: str, ways: list[CutProxy]
    ) -> None:
        self.url = url
        """The address for whoever is only to see what is there: no fault is on this way."""
        self.broker_urls = broker_urls
        self.client_url = client_url
        self._ways = ways

    @property
    def broker_ways(self) -> list[CutProxy]:
        """The ways of the brokers, where they can be cut."""
        return self._ways[: len(self.broker_urls)]

    def calm(self) -> None:
        """Let no more faults happen."""
        for way in self._ways:
            way.is_calm = True


@contextmanager
def on_a_file(folder: Path, brokers: int) -> Iterator[Place]:
    """A queue in a local file."""
    url = (folder / "queue.json").as_uri()
    yield Place(url, [url] * brokers, url, [])


@contextmanager
def on_a_server(server: Server, brokers: int, seed: int) -> Iterator[Place]:
    """A queue on an object store, with a proxy before each broker and one before the clients."""
    url = server.url()
    with ExitStack() as stack:
        ways = [
            stack.enter_context(CutProxy(server.port, f"{seed}/way/{number}"))
            for number in range(brokers + 1)
        ]
        urls = [
            url.replace(f"%3A{server.port}", f"%3A{way.port}") + f"&timeout_s={ANSWER_S}"
            for way in ways
        ]
        yield Place(url, urls[:-1], urls[-1], ways)
