"""Heartbeats renew leases until they are dropped; their holders are notified of losses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bucketq.errors import InvalidRequestError, UnavailableError
from bucketq.model.operations import LeaseRef, Pulse
from bucketq.model.settings import Settings
from bucketq.testing.virtual_loop import VirtualLoop, run
from bucketq.worker.lease_renewal import LeaseEvent, LeaseKeeper
from tests.unit.commit.worlds import virtual

FENCE_S = 24.0
"""Four fifths of a lease."""


class Beaten:
    """A queue that records heartbeats, and answers as planned."""

    def __init__(self) -> None:
        self.beats: list[tuple[float, list[str]]] = []
        self.lost: dict[str, None] = {}
        self.cancelled: dict[str, None] = {}
        self.takes_s = 0.1
        self.error: Exception | None = None

    async def heartbeat(self, jobs: list[LeaseRef], /) -> list[Pulse]:
        self.beats.append((asyncio.get_running_loop().time(), [lease.job for lease in jobs]))
        await asyncio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        return [
            Pulse(
                lease.job,
                held=lease.job not in self.lost,
                cancel_requested=lease.job in self.cancelled,
            )
            for lease in jobs
        ]


class Holder:
    """Keeps leases, and records the events of each."""

    def __init__(self, keeper: LeaseKeeper) -> None:
        self.keeper = keeper
        self.events: list[tuple[str, LeaseEvent, float]] = []

    def keep(self, *names: str) -> None:
        loop = asyncio.get_running_loop()
        for name in names:

            def record(news: LeaseEvent, name: str = name) -> None:
                self.events.append((name, news, loop.time()))

            self.keeper.keep(lease(name), loop.time(), record)

    @property
    def news(self) -> list[tuple[str, LeaseEvent]]:
        return [(name, news) for name, news, _ in self.events]


def lease(name: str) -> LeaseRef:
    return LeaseRef(name, f"lease of {name}")


@asynccontextmanager
async def keeping(queue: Beaten, settings: Settings | None = None) -> AsyncIterator[Holder]:
    keeper = LeaseKeeper(queue.heartbeat, settings or Settings())
    running = asyncio.create_task(keeper.run())
    await asyncio.sleep(0)
    yield Holder(keeper)
    assert not running.done(), "it beats until it is cancelled"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@virtual
async def test_a_lease_is_renewed_from_its_claim_until_it_is_dropped() -> None:
    queue = Beaten()
    async with keeping(queue) as holder:
        await asyncio.sleep(100)
        assert not queue.beats, "there was nothing to keep"
        holder.keep("a")
        await asyncio.sleep(60)
        assert 11 <= len(queue.beats) <= 12
        assert all(names == ["a"] for _, names in queue.beats)
        holder.keep("b")
        await asyncio.sleep(6)
        assert queue.beats[-1][1] == ["a", "b"]
        holder.keeper.drop(lease("a"))
        await asyncio.sleep(6)
        assert queue.beats[-1][1] == ["b"]
        holder.keeper.drop(lease("b"))
        count = len(queue.beats)
        await asyncio.sleep(60)
        assert len(queue.beats) <= count + 1
        assert not holder.events


@virtual
async def test_a_lost_lease_is_reported_once_and_only_to_its_holder() -> None:
    queue = Beaten()
    async with keeping(queue) as holder:
        holder.keep("a", "b")
        queue.lost["b"] = None
        await asyncio.sleep(200)
        assert holder.news == [("b", "lost")]


@virtual
async def test_a_cancellation_is_reported_once_and_the_lease_is_still_renewed() -> None:
    queue = Beaten()
    async with keeping(queue) as holder:
        holder.keep("a", "b")
        queue.cancelled["a"] = None
        await asyncio.sleep(60)
        assert holder.news == [("a", "cancel")]
        assert queue.beats[-1][1] == ["a", "b"]


@virtual
async def test_silence_is_reported_before_the_lease_expires() -> None:
    queue = Beaten()
    async with keeping(queue) as holder:
        holder.keep("a")
        await asyncio.sleep(12)
        last_s = queue.beats[-1][0]
        queue.error = UnavailableError("no answer")
        await asyncio.sleep(100)
        ((name, news, at_s),) = holder.events
        assert (name, news) == ("a", "silent")
        assert FENCE_S <= at_s - last_s <= 30


@virtual
async def test_silence_is_reported_in_time_between_heartbeats_and_while_one_hangs() -> None:
    """The last but one fails just before the time is up, and then the next one hangs."""
    queue = Beaten()
    async with keeping(queue) as holder:
        holder.keep("a")
        queue.error = UnavailableError("no answer")
        queue.takes_s = 0.95
        await asyncio.sleep(FENCE_S - 0.1)
        last_s = queue.beats[-1][0]
        assert FENCE_S - 1 < last_s + queue.takes_s < FENCE_S, "it had its answer just now"
        queue.takes_s = 10_000
        await asyncio.sleep(100)
        ((_, news, at_s),) = holder.events
        assert news == "silent"
        assert FENCE_S <= at_s <= FENCE_S + 3


@virtual
async def test_a_heartbeat_that_is_never_answered_is_silence_too() -> None:
    queue = Beaten()
    async with keeping(queue) as holder:
        holder.keep("a")
        await asyncio.sleep(12)
        last_s = queue.beats[-1][0]
        queue.takes_s = 10_000
        await asyncio.sleep(100)
        ((_, news, at_s),) = holder.events
        assert news == "silent"
        assert FENCE_S <= at_s - last_s <= 30


@virtual
async def test_what_proves_a_lease_is_when_the_heartbeat_was_sent_and_not_its_answer() -> None:
    """The queue may have received it at once, and its lease counts from then."""
    queue = Beaten()
    async with keeping(queue) as holder:
        holder.keep("a")
        queue.takes_s = 20
        await asyncio.sleep(26)
        assert not holder.events
        queue.takes_s = 10_000
        await asyncio.sleep(100)
        ((_, _, at_s),) = holder.events
        first_s = queue.beats[0][0]
        assert FENCE_S <= at_s - first_s <= 30


@virtual
async def test_a_queue_that_refuses_heartbeats_for_a_while_ends_no_keeper() -> None:
    queue = Beaten()
    async with keeping(queue) as holder:
        holder.keep("a")
        queue.error = InvalidRequestError("too many")
        await asyncio.sleep(12)
        queue.error = None
        await asyncio.sleep(100)
        assert not holder.events


@virtual
async def test_silence_that_ends_in_time_is_not_reported() -> None:
    queue = Beaten()
    async with keeping(queue) as holder:
        holder.keep("a")
        queue.error = UnavailableError("no answer")
        await asyncio.sleep(18)
        queue.error = None
        await asyncio.sleep(100)
        assert not holder.events


@virtual
async def test_many_leases_go_in_batches_that_the_queue_takes() -> None:
    queue = Beaten()
    async with keeping(queue, Settings(max_batch_jobs=100)) as holder:
        holder.keep(*[f"job-{number}" for number in range(250)])
        queue.lost["job-249"] = None
        await asyncio.sleep(6)
        assert [len(names) for _, names in queue.beats] == [100, 100, 50]
        assert holder.news == [("job-249", "lost")]


@virtual
async def test_two_attempts_at_one_job_are_distinguished() -> None:
    queue = Beaten()
    async with keeping(queue) as holder:
        first, second = LeaseRef("a", "first"), LeaseRef("a", "second")
        events: list[str] = []
        holder.keeper.keep(first, 0.0, lambda news: events.append(f"first {news}"))
        holder.keeper.keep(second, 0.0, lambda news: events.append(f"second {news}"))
        holder.keeper.drop(first)
        queue.lost["a"] = None
        await asyncio.sleep(6)
        assert events == ["second lost"]


def test_a_suspended_process_gives_up_no_lease_that_the_queue_still_holds() -> None:
    """A laptop was closed, or a machine moved. It asks first, also if it stopped while asking."""

    async def main(loop: VirtualLoop) -> None:
        for frozen_at_s in (2.0, 5.05, 6.0, 10.05):
            queue = Beaten()
            events: list[tuple[str, LeaseEvent]] = []

            async def hold(
                queue: Beaten = queue, events: list[tuple[str, LeaseEvent]] = events
            ) -> None:
                async with keeping(queue) as holder:
                    holder.keep("a")
                    await asyncio.sleep(200)
                    events.extend(holder.news)

            process = loop.spawn("worker", hold)
            await asyncio.sleep(frozen_at_s)
            process.freeze(60)
            await process.wait()
            assert not events, f"frozen after {frozen_at_s} s"

    run(main)


def test_the_queue_reports_the_lost_leases_of_a_suspended_process() -> None:
    async def main(loop: VirtualLoop) -> None:
        queue = Beaten()
        events: list[tuple[str, LeaseEvent]] = []

        async def hold() -> None:
            async with keeping(queue) as holder:
                holder.keep("a")
                await asyncio.sleep(100)
                events.extend(holder.news)

        process = loop.spawn("worker", hold)
        await asyncio.sleep(6)
        process.freeze(60)
        queue.lost["a"] = None
        await process.wait()
        assert events == [("a", "lost")]

    run(main)


def test_silence_keeps_counting_while_a_process_is_suspended_now_and_then() -> None:
    async def main(loop: VirtualLoop) -> None:
        queue = Beaten()
        events: list[tuple[str, LeaseEvent]] = []

        async def hold() -> None:
            async with keeping(queue) as holder:
                holder.keep("a")
                await asyncio.sleep(90)
                events.extend(holder.news)

        process = loop.spawn("worker", hold)
        await asyncio.sleep(6)
        queue.takes_s = 10_000
        process.freeze(30)
        await process.wait()
        assert events == [("a", "silent")]

    run(main)


class HalfStuck(Beaten):
    """A queue with partitions, the second of which does not answer."""

    async def heartbeat(self, jobs: list[LeaseRef], /) -> list[Pulse]:
        if any(lease.lease.endswith(".1") for lease in jobs):
            await asyncio.sleep(60)
            raise UnavailableError("no answer")
        return await super().heartbeat(jobs)


@virtual
async def test_a_partition_that_does_not_answer_ends_no_lease_of_another() -> None:
    events: list[tuple[str, LeaseEvent]] = []
    queue = HalfStuck()
    keeper = LeaseKeeper(queue.heartbeat, Settings())
    running = asyncio.create_task(keeper.run())
    for partition in ("0", "1"):
        held = LeaseRef(f"job {partition}", f"lease.{partition}")

        def record(event: LeaseEvent, job: str = held.job) -> None:
            events.append((job, event))

        keeper.keep(held, asyncio.get_running_loop().time(), record)
    await asyncio.sleep(200)
    assert events == [("job 1", "silent")]
    assert len(queue.beats) >= 15
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
