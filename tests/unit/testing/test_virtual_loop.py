"""The virtual loop: time that jumps, seeds that replay, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

from bucketq.testing.simulated_process import SimulationError
from bucketq.testing.virtual_loop import (
    DeadlockError,
    LivelockError,
    VirtualLoop,
    current_loop,
    run,
)


def test_time_jumps_instead_of_passing() -> None:
    async def main(loop: VirtualLoop) -> float:
        await asyncio.sleep(5 * 24 * 3600)
        return loop.time()

    assert run(main) == 5 * 24 * 3600


def test_timers_fire_in_the_order_of_their_times_and_then_of_their_making() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        fired: list[str] = []
        for name, delay_s in [("c", 2.0), ("a", 1.0), ("d", 2.0), ("b", 1.0), ("now", 0.0)]:
            loop.call_later(delay_s, fired.append, name)
        loop.call_later(1.5, fired.append, "cancelled").cancel()
        await asyncio.sleep(3)
        return fired

    assert run(main) == ["now", "a", "b", "c", "d"]


def test_cancelled_timers_do_not_pile_up() -> None:
    async def main(loop: VirtualLoop) -> int:
        for _ in range(10_000):
            async with asyncio.timeout(3600):
                await asyncio.sleep(0.001)
        return len(loop._timers)

    assert run(main) < 500


def test_callbacks_of_one_process_run_first_in_first_out() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        seen: list[int] = []

        async def noise() -> None:
            for _ in range(200):
                await asyncio.sleep(0)

        loop.spawn("noise", noise)
        for number in range(100):
            loop.call_soon(seen.append, number)
        await asyncio.sleep(1)
        return seen

    for seed in range(5):
        assert run(main, seed=seed) == list(range(100))


# Names run together on purpose: one letter for each process, in the order they ran.
async def _interleaved(loop: VirtualLoop) -> str:
    trace: list[str] = []

    async def steps() -> None:
        for _ in range(8):
            trace.append(loop.current_process().name)
            await asyncio.sleep(0)

    processes = [loop.spawn(name, steps) for name in "abc"]
    for process in processes:
        await process.wait()
    return "".join(trace)


def test_the_same_seed_gives_the_same_interleaving_and_others_differ() -> None:
    traces = [run(_interleaved, seed=seed) for seed in range(20)]
    assert traces == [run(_interleaved, seed=seed) for seed in range(20)]
    assert len(set(traces)) == 20


_REPLAY = """
import asyncio, sys
from bucketq.errors import BucketQError
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.store_faults import Faults
from bucketq.testing.virtual_loop import run
from bucketq.testing.simulated_store import SimulatedStore

async def main(loop):
    trace = []
    store = SimulatedStore(loop, Faults.harsh())
    garbage = [object() for _ in range(int(sys.argv[1]))]  # moves what is allocated next

    async def member(name):
        try:
            await asyncio.sleep(1000)
        finally:
            trace.append(f"{name} cancelled")

    async def group():
        try:
            async with asyncio.timeout(0.5), asyncio.TaskGroup() as tasks:
                for number in range(12):
                    tasks.create_task(member(number))
        except TimeoutError:
            trace.append("timeout")
        done, _ = await asyncio.wait([asyncio.create_task(asyncio.sleep(0, n)) for n in range(9)])
        trace.extend(task.result() for task in done)

    async def client():
        me, link = loop.current_process().name, store.connect()
        clock = SimulatedClock(loop)
        while True:
            try:
                await group()
                stored = await link.get("queue")
                await link.replace("queue", stored.body[:60] + clock.entropy(4), stored.etag)
            except BucketQError as error:
                trace.append(f"{me} {loop.time()} {error}")
                try:
                    await link.create("queue", b"new")
                except BucketQError as error:
                    trace.append(f"{me} {error}")

    for round in range(10):
        processes = [loop.spawn(f"p{number}", client) for number in range(4)]
        processes[0].kill_after(round * 7)
        processes[1].freeze_after(round * 5, for_s=3.0)
        await asyncio.sleep(20)
        for process in processes:
            process.kill()
    trace.extend((c.time_s, c.writer, c.body) for c in store.commits)
    return repr(trace), loop.fingerprint, loop.steps, store.injected

print(run(main, seed=sys.argv[2]))
"""


def _replay_hash(hash_seed: int, garbage: int, seed: int) -> str:
    environment = os.environ | {
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", _REPLAY, str(garbage), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stderr == b""
    assert len(done.stdout) > 10_000
    return hashlib.sha256(done.stdout).hexdigest()


def test_a_seed_replays_to_the_letter_under_any_hash_seed_and_memory_layout() -> None:
    first = _replay_hash(1, 0, seed=5)
    assert _replay_hash(2, 777, seed=5) == first
    assert _replay_hash(1, 0, seed=6) != first


def test_streams_of_random_numbers_are_all_different_and_come_from_the_seed() -> None:
    def draw(seed: int) -> list[float]:
        loop = VirtualLoop(seed)
        numbers = [loop.stream("a").random(), loop.stream("a").random(), loop.stream("b").random()]
        loop.close()
        return numbers

    assert draw(1) == draw(1)
    assert len({*draw(1), *draw(2)}) == 6


def test_a_deadlock_names_the_tasks_that_wait() -> None:
    async def main(loop: VirtualLoop) -> None:
        async def stuck() -> None:
            await asyncio.Event().wait()

        loop.spawn("stuck-one", stuck)
        frozen = loop.spawn("frozen-one", stuck)
        frozen.freeze()
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError) as caught:
        run(main, seed=42)
    message = str(caught.value)
    assert "driver: task main" in message
    assert "stuck-one: task stuck-one" in message
    assert "frozen-one (frozen)" in message
    assert "seed: 42" in caught.value.__notes__[0]


def test_a_program_that_never_waits_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketq.testing.virtual_loop._STEPS_PER_INSTANT_MAX", 1000)

    async def spin(_loop: VirtualLoop) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(LivelockError, match="time stood still"):
        run(spin)


def test_a_program_that_waits_for_ever_is_stopped() -> None:
    async def tick(_loop: VirtualLoop) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    with pytest.raises(LivelockError, match="past its limit"):
        run(tick, limit_s=100)


def test_an_error_carries_the_seed() -> None:
    async def main(_loop: VirtualLoop) -> None:
        raise ValueError("found one")

    with pytest.raises(ValueError, match="found one") as caught:
        run(main, seed=1234)
    assert "1234" in caught.value.__notes__[0]


def test_timeouts_strike_on_virtual_time() -> None:
    async def main(loop: VirtualLoop) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(31)
        assert loop.time() == 30
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        assert loop.time() == 35
        assert await asyncio.wait_for(asyncio.sleep(1, "in time"), 5) == "in time"

    run(main)


def test_the_primitives_of_asyncio_work() -> None:
    async def main(loop: VirtualLoop) -> None:
        event, lock = asyncio.Event(), asyncio.Lock()
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        inside = 0

        async def locked() -> None:
            nonlocal inside
            async with lock:
                inside += 1
                assert inside == 1
                await asyncio.sleep(1)
                inside -= 1

        async def produce() -> None:
            await event.wait()
            for number in range(10):
                await queue.put(number)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce())
            for _ in range(3):
                tasks.create_task(locked())
            loop.call_later(5, event.set)
            assert [await queue.get() for _ in range(10)] == list(range(10))
        assert loop.time() == 5
        gathered = await asyncio.gather(*[asyncio.sleep(delay_s, delay_s) for delay_s in (2, 1)])
        assert gathered == [2, 1]
        with pytest.raises(ExceptionGroup):
            await _failing_group()
        done, pending = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(delay_s)) for delay_s in (1, 9)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert (len(done), len(pending)) == (1, 1)

    run(main)


async def _failing_group() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.sleep(100))
        tasks.create_task(fail())


def _to_thread() -> Awaitable[object]:
    return asyncio.to_thread(int)


def _connect() -> Awaitable[object]:
    return asyncio.open_connection("localhost", 80)


@pytest.mark.parametrize("forbidden", [_to_thread, _connect])
def test_threads_and_sockets_are_refused(forbidden: Callable[[], Awaitable[object]]) -> None:
    async def main(_loop: VirtualLoop) -> None:
        with pytest.raises(SimulationError, match="threads are not simulated"):
            await forbidden()

    run(main)


def test_another_thread_may_not_call_into_the_loop() -> None:
    async def main(loop: VirtualLoop) -> None:
        errors: list[BaseException] = []

        def intrude() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except SimulationError as error:
                errors.append(error)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        assert len(errors) == 1

    run(main)


def test_the_driver_cannot_be_killed_and_makes_the_tasks_itself() -> None:
    async def main(loop: VirtualLoop) -> None:
        with pytest.raises(SimulationError):
            loop.driver.kill()
        with pytest.raises(SimulationError):
            loop.set_task_factory(lambda *_: None)

    run(main)


def test_outside_a_simulation_there_is_no_current_loop() -> None:
    async def main() -> None:
        with pytest.raises(SimulationError):
            current_loop()

    asyncio.run(main())


def test_the_drivers_own_tasks_are_cancelled_at_the_end() -> None:
    log: list[str] = []

    async def main(_loop: VirtualLoop) -> None:
        async def background() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                log.append("cancelled")

        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        assert not task.done()

    run(main)
    assert log == ["cancelled"]


def test_the_garbage_collector_is_left_as_it_was_found() -> None:
    async def main(_loop: VirtualLoop) -> bool:
        return gc.isenabled()

    assert run(main) is False
    assert gc.isenabled()


def test_it_serves_as_the_loop_of_an_asyncio_runner() -> None:
    async def main() -> float:
        await asyncio.sleep(100)
        return current_loop().time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == 100
