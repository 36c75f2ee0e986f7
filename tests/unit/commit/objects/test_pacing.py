"""How long a write is held up for those who are about to come, and how writes are kept apart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from bucketq.clock import SystemClock
from bucketq.commit.objects.pacing import BatchDelay, FairnessPause, Pacer
from bucketq.store.backoff import RetryBackoff
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop
from tests.unit.commit.worlds import virtual

WRITE_S, FAST_S = 1.0, 0.002
SHARE, SMALLER_SHARE, LARGEST_SHARE = 0.2, 0.4, 1.0


async def waited(gather: BatchDelay, arrivals: Sequence[float] = ()) -> tuple[float, int]:
    """How long a gather waits while callers arrive at these times, and how many had come."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    began, here = loop.time(), arrivals.count(0.0)

    def arrive() -> None:
        nonlocal here
        here += 1
        news.set()

    timers = [loop.call_at(began + at, arrive) for at in arrivals if at]
    await gather.wait(lambda: here, news)
    for timer in timers:
        timer.cancel()
    return loop.time() - began, here


@virtual
async def test_the_first_write_is_not_delayed() -> None:
    assert await waited(BatchDelay()) == (0, 0)


@pytest.mark.parametrize("answered", [0, 1, 7])
@virtual
async def test_after_a_write_that_answered_few_callers_the_next_is_not_delayed(
    answered: int,
) -> None:
    gather = BatchDelay()
    gather.wrote(WRITE_S, answered)
    assert await waited(gather) == (0, 0)


@virtual
async def test_a_crowd_that_is_back_already_is_not_waited_for() -> None:
    gather = BatchDelay()
    gather.wrote(WRITE_S, 10)
    assert await waited(gather, [0.0] * 10) == (0, 10)


@virtual
async def test_requests_that_came_during_a_write_do_not_replace_those_it_answered() -> None:
    gather = BatchDelay()
    gather.wrote(WRITE_S, 10, waiting=10)
    took_s, came = await waited(gather, [0.0] * 10 + [0.05] * 10)
    assert came == 20
    assert took_s == pytest.approx(0.05)


@virtual
async def test_a_crowd_that_does_not_come_back_costs_a_small_part_of_a_write() -> None:
    gather = BatchDelay()
    gather.wrote(WRITE_S, 10)
    took_s, _ = await waited(gather)
    assert took_s == pytest.approx(SHARE * WRITE_S)


@virtual
async def test_a_crowd_that_comes_back_is_waited_for_and_no_longer() -> None:
    gather = BatchDelay()
    gather.wrote(WRITE_S, 10)
    took_s, came = await waited(gather, [0.01 * number for number in range(1, 11)])
    assert came == 10
    assert took_s == pytest.approx(0.1)


@virtual
async def test_however_they_trickle_in_the_write_is_never_held_up_longer_than_its_share() -> None:
    gather = BatchDelay()
    gather.wrote(WRITE_S, 1000)
    took_s, came = await waited(gather, [0.05 * number for number in range(1000)])
    assert took_s == pytest.approx(LARGEST_SHARE * WRITE_S)
    assert came < 30


@virtual
async def test_where_others_came_during_a_write_the_next_is_not_held_up_for_long() -> None:
    gather = BatchDelay()
    gather.wrote(WRITE_S, 1000, waiting=500)
    took_s, _ = await waited(gather, [0.0] * 500 + [0.01 * number for number in range(1000)])
    assert took_s == pytest.approx(SMALLER_SHARE * WRITE_S)


@virtual
async def test_one_crowd_is_waited_for_once() -> None:
    gather = BatchDelay()
    gather.wrote(WRITE_S, 10)
    await waited(gather)
    assert await waited(gather) == (0, 0)


@virtual
async def test_a_fast_store_is_hardly_waited_for() -> None:
    gather = BatchDelay()
    gather.wrote(FAST_S, 100)
    took_s, _ = await waited(gather)
    assert took_s < 0.001


async def long_waits(gather: BatchDelay, arrivals: Sequence[float], count: int) -> list[bool]:
    """Whether each of some waits, after writes of a fast store, is longer than a write."""
    found = []
    for _ in range(count):
        gather.wrote(FAST_S, 10)
        took_s, _ = await waited(gather, arrivals)
        found.append(took_s > FAST_S)
    return found


@virtual
async def test_a_fast_store_is_waited_for_longer_while_all_callers_come_back_in_that_time() -> None:
    gather = BatchDelay()
    slowly = [0.0035 + 0.0005 * number for number in range(10)]
    assert await long_waits(gather, slowly, 150) == [False] * 50 + [True] * 100
    assert await long_waits(gather, slowly[:-1], 60) == [True] * 60  # Nearly all of them.
    # A single miss changes nothing, but two do, and then it is tried again and again.
    assert await long_waits(gather, [], 1) + await long_waits(gather, slowly, 3) == [True] * 4
    assert await long_waits(gather, [], 104) == [True] * 2 + ([False] * 50 + [True]) * 2
    assert await long_waits(gather, slowly, 60) == [False] * 50 + [True] * 10


@virtual
async def test_a_crowd_that_trickles_in_delays_a_fast_store_by_ten_milliseconds_at_most() -> None:
    gather = BatchDelay()
    trickle = [0.003 * number for number in range(1, 100)]
    took_s = []
    for _ in range(51):
        gather.wrote(FAST_S, 1000)
        took_s.append((await waited(gather, trickle))[0])
    assert max(took_s[:-1]) < 0.001
    assert took_s[-1] == pytest.approx(0.01)


@virtual
async def test_a_slow_store_is_never_waited_for_longer() -> None:
    gather = BatchDelay()
    for _ in range(110):
        gather.wrote(WRITE_S, 10)
        took_s, _ = await waited(gather)
        assert took_s == pytest.approx(SHARE * WRITE_S)


@virtual
async def test_a_throttled_store_is_written_more_slowly_and_then_faster_again() -> None:
    loop = asyncio.get_running_loop()
    pacer = Pacer(0.0)

    async def gap() -> float:
        await pacer.turn()
        began = loop.time()
        await pacer.turn()
        return loop.time() - began

    assert await gap() == 0
    for _ in range(3):
        pacer.was_throttled()
    await gap()
    assert await gap() == pytest.approx(0.4)
    for _ in range(100):
        pacer.went_well()
    await gap()
    assert await gap() == 0


@virtual
async def test_waits_between_tries_are_random_and_bounded_and_the_bound_doubles() -> None:
    loop = asyncio.get_running_loop()
    backoff = RetryBackoff(SimulatedClock(current_loop()), 0.1, 1.0)
    waits = []
    for _ in range(40):
        began = loop.time()
        await backoff.wait()
        waits.append(loop.time() - began)
    assert waits[0] <= 0.1
    assert waits[1] <= 0.2
    assert 0.5 < max(waits) <= 1.0
    assert min(waits[4:]) < 0.5
    assert len(set(waits)) == 40


@virtual
async def test_who_writes_all_the_time_leaves_room_for_others_now_and_then() -> None:
    loop = asyncio.get_running_loop()
    fairness, pauses = FairnessPause(SystemClock()), list[float]()
    for _ in range(1000):
        came = loop.time()
        await fairness.turn()
        pauses.append(loop.time() - came)
        began = loop.time()
        await asyncio.sleep(0.005)
        fairness.wrote(began, was_first=True)
    made = [pause for pause in pauses if pause]
    assert made == pytest.approx([0.1] * len(made))
    assert 2 <= len(made) <= 3, "one for each two seconds of writing"


@virtual
async def test_who_writes_now_and_then_makes_no_pause() -> None:
    loop = asyncio.get_running_loop()
    fairness = FairnessPause(SystemClock())
    for _ in range(50):
        came = loop.time()
        await fairness.turn()
        assert loop.time() == came
        fairness.wrote(loop.time(), was_first=True)
        await asyncio.sleep(0.2)


@virtual
async def test_the_pause_is_longer_where_writes_are_slow() -> None:
    loop = asyncio.get_running_loop()
    fairness, longest = FairnessPause(SystemClock()), 0.0
    for _ in range(30):
        came = loop.time()
        await fairness.turn()
        longest = max(longest, loop.time() - came)
        began = loop.time()
        await asyncio.sleep(0.08)
        fairness.wrote(began, was_first=True)
    assert longest == pytest.approx(0.4)


@virtual
async def test_who_has_just_lost_to_another_has_left_room_enough() -> None:
    loop = asyncio.get_running_loop()
    fairness = FairnessPause(SystemClock())
    for number in range(1000):
        came = loop.time()
        await fairness.turn()
        assert loop.time() - came <= 0.005 / 10
        await asyncio.sleep(0.005)
        fairness.wrote(loop.time() - 0.005, was_first=number % 100 != 0)


@virtual
async def test_those_that_lost_a_race_do_not_try_again_at_the_same_moment() -> None:
    loop, waits = asyncio.get_running_loop(), list[float]()
    for _ in range(20):
        fairness = FairnessPause(SystemClock())
        fairness.wrote(loop.time() - 1.0, was_first=False)
        came = loop.time()
        await fairness.turn()
        waits.append(loop.time() - came)
        await fairness.turn()
        assert loop.time() - came == waits[-1], "only once after each"
    assert len(set(waits)) > 5
    assert max(waits) < 0.1


async def pauses_of(fairness: FairnessPause, writes: int, lost: int = 0) -> list[float]:
    """Write without a rest, losing every so many writes to another; return when it paused."""
    loop = asyncio.get_running_loop()
    began_s, made = loop.time(), list[float]()
    for number in range(1, writes + 1):
        came = loop.time()
        await fairness.turn()
        if loop.time() > came:
            made.append(came - began_s)
        began = loop.time()
        await asyncio.sleep(0.05)
        fairness.wrote(began, was_first=not lost or number % lost != 0)
    return made


@virtual
async def test_unused_pauses_become_rarer_up_to_a_bound() -> None:
    made = await pauses_of(FairnessPause(SystemClock(), 8.0), 1000)
    gaps = [round(after - before) for before, after in pairwise([0.0, *made])]
    assert gaps == [2, 4, 8, 8, 8, 8, 8][: len(gaps)]
    assert len(gaps) >= 6


@virtual
async def test_pauses_are_frequent_again_when_another_has_written() -> None:
    loop = asyncio.get_running_loop()
    fairness = FairnessPause(SystemClock(), 8.0)
    await pauses_of(fairness, 500)
    fairness.wrote(loop.time(), was_first=False)
    assert (await pauses_of(fairness, 60))[0] == pytest.approx(2, abs=0.2)


@virtual
async def test_peers_that_are_all_busy_take_turns_after_a_few_writes() -> None:
    loop = asyncio.get_running_loop()
    fairness = FairnessPause(SystemClock(), 8.0, takes_turns=True)
    fairness.wrote(loop.time(), was_first=False)
    made = await pauses_of(fairness, 100, lost=20)
    assert len(made) > 15
    alone = await pauses_of(FairnessPause(SystemClock(), 8.0, takes_turns=True), 100)
    assert len(alone) <= 2
