"""A process's connection to the simulated store, and the packets that travel on it.

A request is a packet: once sent, it arrives whether or not its sender is alive, frozen or still
waiting. If the sender is killed before it arrives, it may not have left the host: whether it
arrives is drawn at random. The fault that it meets is drawn once, when the request is sent.

Answers are delivered as values, and errors are raised in the caller, so that an error for a dead
process is not reported as unhandled.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Literal

from bucketq.errors import UnavailableError
from bucketq.store.base import ObjectInfo, StoredObject, check_range
from bucketq.testing.store_faults import FaultDice

if TYPE_CHECKING:
    from bucketq.testing.simulated_store import SimulatedStore

Direction = Literal["both", "requests", "answers"]
Effect = Callable[[], Any]

LIST_PAGE_SIZE = 1000
"""As S3 has it."""

# Probabilities. A throttled write hardly ever takes effect; all else is as likely as not, so that
# a simulation meets both cases often.
_LANDED_THOUGH_THROTTLED = 0.1
_LANDED_THOUGH_ERROR = 0.5
_LOST_WITH_SENDER = 0.5
_RESET_RATHER_THAN_SILENCE = 0.5


class StoreLink:
    """The ``ObjectStore`` of one process: the simulated store behind a bad connection.

    ``SimulatedStore.connect`` makes it.

    Attributes:
        name: For messages.
        url: Its address, for messages.
        write_interval_s: The pause that the store wants between two writes of one object.
        cut: The direction in which packets are dropped now; set through ``store.partition``.
    """

    def __init__(
        self, store: SimulatedStore, name: str, latency_s: tuple[float, float], timeout_s: float
    ) -> None:
        self.store = store
        self.name = name
        self.url = f"simulated://{name}"
        self.write_interval_s = store.write_interval_s
        self.cut: Direction | None = None
        self.latency_s = latency_s
        self.timeout_s = timeout_s

    async def get(self, key: str) -> StoredObject:
        """Read an object."""
        answer: StoredObject = await self._read(lambda: self.store.get(key))
        return answer

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read an object if its etag differs; return None if it is unchanged."""
        answer: StoredObject | None = await self._read(lambda: self.store.get_if_changed(key, etag))
        return answer

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read a range of an object."""
        check_range(offset, length)
        part: bytes = await self._read(lambda: self.store.get_range(key, offset, length))
        return part

    async def create(self, key: str, body: bytes) -> str:
        """Write an object that must not exist yet."""
        content = bytes(body)
        etag: str = await self._write(lambda writer: self.store.create(key, content, writer))
        return etag

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Write an object that must still have ``etag``."""
        content = bytes(body)
        new: str = await self._write(lambda writer: self.store.replace(key, content, etag, writer))
        return new

    async def put(self, key: str, body: bytes) -> str:
        """Write an object, replacing any that is there."""
        content = bytes(body)
        etag: str = await self._write(lambda writer: self.store.put(key, content, writer))
        return etag

    async def delete(self, key: str) -> None:
        """Remove an object."""
        await self._write(lambda writer: self.store.delete(key, writer))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List objects, a request for every thousand, each of which may fail."""
        after = ""
        while page := await self._read(lambda: self.store.page(prefix, after)):  # noqa: B023
            for info in page:
                yield info
            if len(page) < LIST_PAGE_SIZE:
                return
            after = page[-1].key

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    async def _read(self, effect: Effect) -> Any:
        return await self._request(effect, self.store.read_dice)

    async def _write(self, effect: Callable[[str], Any]) -> Any:
        writer = self.store.loop.current_process().name
        return await self._request(lambda: effect(writer), self.store.write_dice)

    async def _request(self, effect: Effect, dice: FaultDice) -> Any:
        """Send a request and wait for its answer. A dead process sends nothing."""
        request = StoreRequest(self, effect)
        if request.sender.alive:
            request.send(dice.draw(self.store.rng))
        answer = await request.answer
        if isinstance(answer, Exception):
            raise answer
        return answer


class StoreRequest:
    """One request on its way.

    The methods named after faults take the time to the store and back, and schedule the events:
    arrivals at the store, and the answer to the caller.
    """

    __slots__ = ("_deadline_s", "_effect", "_link", "_loop", "_rng", "_store", "answer", "sender")

    def __init__(self, link: StoreLink, effect: Effect) -> None:
        """Make a request of the running process; ``effect`` is called on arrival."""
        self._link = link
        self._store = link.store
        self._loop = link.store.loop
        self._rng = link.store.rng
        self._effect = effect
        self._deadline_s = self._loop.time() + link.timeout_s
        self.sender = self._loop.current_process()
        self.answer: Future[Any] = self._loop.create_future()

    def send(self, fault: str | None) -> None:
        """Send it, with the fault that was drawn."""
        total_s = self._rng.uniform(*self._link.latency_s)
        there_s = total_s * self._rng.random()
        if fault is None:
            self._travel(there_s, total_s - there_s)
        else:
            self._store.count(fault)
            meet: Callable[[float, float], None] = getattr(self, fault)
            meet(there_s, total_s - there_s)

    def lost_request(self, there_s: float, back_s: float) -> None:
        """Nothing arrives."""
        self._lose(there_s + back_s)

    def lost_answer(self, there_s: float, back_s: float) -> None:
        """It arrives, and nothing comes back."""
        self._arrive_after(there_s)
        self._lose(there_s + back_s)

    def throttled(self, there_s: float, back_s: float) -> None:
        """It is throttled, mostly without effect."""
        if self._rng.random() < _LANDED_THOUGH_THROTTLED:
            self._arrive_after(there_s)
        error = UnavailableError(f"{self._link.url} asks to slow down (503)", throttled=True)
        self._loop.call_in_environment(there_s + back_s, self._deliver, error)

    def server_error(self, there_s: float, back_s: float) -> None:
        """The server fails before or after the request took effect."""
        if self._rng.random() < _LANDED_THOUGH_ERROR:
            self._arrive_after(there_s)
        error = UnavailableError(f"{self._link.url} failed (500): the outcome is unknown")
        self._loop.call_in_environment(there_s + back_s, self._deliver, error)

    def slow(self, there_s: float, back_s: float) -> None:
        """The request or the answer takes long."""
        extra_s = self._rng.uniform(*self._store.faults.slow_s)
        if self._rng.random() < 0.5:  # noqa: PLR2004  # one way or the other
            self._travel(there_s + extra_s, back_s)
        else:
            self._travel(there_s, back_s + extra_s)

    def late_landing(self, there_s: float, back_s: float) -> None:
        """The caller gives up, and then it arrives."""
        given_up_s = self._lose(there_s + back_s)
        self._arrive_after(given_up_s + self._late_s(), certain=True)

    def self_conflict(self, there_s: float, back_s: float) -> None:
        """It arrives twice, and the second answer is returned."""
        self._arrive_after(there_s)
        self._travel(there_s + back_s + there_s, back_s)

    def contended(self, there_s: float, back_s: float) -> None:
        """It is rejected because of another request in flight."""
        error = UnavailableError(f"{self._link.url} has another write in flight (409)")
        self._loop.call_in_environment(there_s + back_s, self._deliver, error)

    def duplicated(self, there_s: float, back_s: float) -> None:
        """It arrives twice, and the first answer is returned."""
        self._travel(there_s, back_s)
        self._arrive_after(there_s + self._late_s(), certain=True)

    def _travel(self, there_s: float, back_s: float) -> None:
        """Arrive and be answered, before or after the caller's timeout."""
        self._loop.call_in_environment(there_s, self._arrive, back_s, False)  # noqa: FBT003
        if there_s + back_s >= self._link.timeout_s:
            self._loop.call_in_environment(self._link.timeout_s, self._settle, self._silence())

    def _arrive_after(self, delay_s: float, *, certain: bool = False) -> None:
        """Arrive without an answer; ``certain`` packets arrive even if the sender has died."""
        self._loop.call_in_environment(delay_s, self._arrive, None, certain)

    def _arrive(self, back_s: float | None, certain: bool) -> None:  # noqa: FBT001
        """Take effect, unless it was lost, and send the answer if one is expected."""
        if self._store.severed(self._link, "requests"):
            self._store.count("partition")
            if back_s is not None:
                self._lose(back_s)
            return
        lost = not certain and not self.sender.alive and self._rng.random() < _LOST_WITH_SENDER
        if lost:
            self._store.count("sender_died")
            return
        outcome = self._effect()
        if back_s is not None:
            self._loop.call_in_environment(back_s, self._deliver, outcome)

    def _deliver(self, outcome: object) -> None:
        """Deliver the answer to the caller, unless a partition drops it."""
        if self._store.severed(self._link, "answers"):
            self._store.count("partition")
            self._lose(0.0)
        else:
            self._settle(outcome)

    def _lose(self, delay_s: float) -> float:
        """Fail the call with a reset after ``delay_s``, or with a timeout.

        Returns after how many seconds it fails.
        """
        if self._rng.random() < _RESET_RATHER_THAN_SILENCE:
            error = UnavailableError(
                f"connection to {self._link.url} was reset: the outcome is unknown"
            )
        else:
            delay_s, error = max(0.0, self._deadline_s - self._loop.time()), self._silence()
        self._loop.call_in_environment(delay_s, self._settle, error)
        return delay_s

    def _settle(self, outcome: object) -> None:
        """Answer the caller, once, if it still waits."""
        if not self.answer.done():
            self.answer.set_result(outcome)

    def _late_s(self) -> float:
        """Draw a delay evenly over its orders of magnitude."""
        low_s, high_s = self._store.faults.late_s
        return low_s * float((high_s / low_s) ** self._rng.random())

    def _silence(self) -> UnavailableError:
        """Return the error of a call that timed out."""
        return UnavailableError(
            f"no answer from {self._link.url} within {self._link.timeout_s} s:"
            " the outcome is unknown"
        )
