"""The simulated store: each fault occurs and does what its name says, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from bucketq.errors import BucketQError, InvalidRequestError, UnavailableError
from bucketq.store.base import (
    ObjectMissingError,
    ObjectStore,
    ObjectTooShortError,
    PreconditionFailedError,
)
from bucketq.testing.simulated_clock import EPOCH
from bucketq.testing.simulated_store import SimulatedStore, StoreLink
from bucketq.testing.store_faults import READ_FAULTS, WRITE_FAULTS, Faults
from bucketq.testing.virtual_loop import VirtualLoop, run

T = TypeVar("T")

KEY = "queue.json"
SEEDS = range(40)


def simulate(
    scenario: Callable[[SimulatedStore, StoreLink], Coroutine[Any, Any, T]],
    faults: Faults | None = None,
    seed: int = 0,
    *,
    content_etags: bool = False,
) -> T:
    """Run a scenario on a store that already holds ``b"base"`` under ``KEY``."""

    async def main(loop: VirtualLoop) -> T:
        store = SimulatedStore(loop, faults, content_etags=content_etags)
        store.overwrite(KEY, b"base")
        return await scenario(store, store.connect("link"))

    return run(main, seed=seed)


def etag_of(store: SimulatedStore, key: str = KEY) -> str:
    stored = store.peek(key)
    assert stored is not None
    return stored.etag


def body_of(store: SimulatedStore, key: str = KEY) -> bytes | None:
    stored = store.peek(key)
    return None if stored is None else stored.body


def test_without_faults_it_is_an_object_store() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        seam: ObjectStore = link
        base = await seam.get(KEY)
        assert base.body == b"base"
        assert await seam.get_if_changed(KEY, base.etag) is None
        etag = await seam.replace(KEY, b"two", base.etag)
        changed = await seam.get_if_changed(KEY, base.etag)
        assert changed is not None
        assert (changed.body, changed.etag) == (b"two", etag)
        with pytest.raises(PreconditionFailedError):
            await seam.replace(KEY, b"three", base.etag)
        with pytest.raises(PreconditionFailedError):
            await seam.create(KEY, b"three")
        with pytest.raises(ObjectMissingError):
            await seam.replace("absent", b"three", etag)
        for read in (
            seam.get("absent"),
            seam.get_if_changed("absent", etag),
            seam.get_range("absent", 0, 1),
        ):
            with pytest.raises(ObjectMissingError):
                await read
        assert await seam.get_range(KEY, 1, 2) == b"wo"
        with pytest.raises(ObjectTooShortError):
            await seam.get_range(KEY, 1, 3)
        with pytest.raises(InvalidRequestError):
            await seam.get_range(KEY, 1, 0)
        await seam.create("a/2", b"7 bytes")
        await seam.put("a/1", b"1")
        await seam.put("a/1", b"11")
        infos = [info async for info in seam.list("a/")]
        assert [(info.key, info.size_bytes) for info in infos] == [("a/1", 2), ("a/2", 7)]
        assert infos[0].modified_at > infos[1].modified_at > EPOCH
        await seam.delete("a/1")
        await seam.delete("a/1")
        assert store.keys("a/") == ["a/2"]
        assert body_of(store) == b"two"
        assert store.injected == {}
        assert seam.url == "simulated://link"
        assert seam.write_interval_s == 0
        await seam.close()
        await seam.close()

    simulate(scenario)


def test_a_listing_goes_over_pages() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        for number in range(2500):
            store.overwrite(f"many/{number:05}", b"")
        started_s = store.loop.time()
        keys = [info.key async for info in link.list("many/")]
        assert keys == [f"many/{number:05}" for number in range(2500)]
        assert store.loop.time() - started_s > 3 * store.latency_s[0]

    simulate(scenario)


def test_etags_are_unique_or_follow_the_content_as_on_s3() -> None:
    async def scenario(_store: SimulatedStore, link: StoreLink) -> list[str]:
        return [await link.put("key", body) for body in (b"a", b"b", b"a")]

    assert len(set(simulate(scenario))) == 3
    first, second, third = simulate(scenario, content_etags=True)
    assert first == third != second


def test_only_one_of_many_racing_writers_wins() -> None:
    async def scenario(store: SimulatedStore, _link: StoreLink) -> None:
        async def increment() -> None:
            link = store.connect()
            for _ in range(10):
                while True:
                    stored = await link.get("counter")
                    try:
                        await link.replace(
                            "counter", str(int(stored.body) + 1).encode(), stored.etag
                        )
                    except PreconditionFailedError:
                        continue
                    break

        store.overwrite("counter", b"0")
        for process in [store.loop.spawn(f"p{number}", increment) for number in range(5)]:
            await process.wait()
        assert body_of(store, "counter") == b"50"

    simulate(scenario)


def test_the_history_holds_every_write_that_took_effect_and_its_sender() -> None:
    async def scenario(store: SimulatedStore, _link: StoreLink) -> None:
        async def write() -> None:
            link = store.connect()
            etag = await link.replace(KEY, b"first", etag_of(store))
            with pytest.raises(PreconditionFailedError):
                await link.replace(KEY, b"never", "stale")
            await link.replace(KEY, b"second", etag)
            await link.delete(KEY)

        await store.loop.spawn("writer", write).wait()
        chain = store.history(KEY)
        assert [(commit.operation, commit.body, commit.writer) for commit in chain] == [
            ("put", b"base", "driver"),
            ("replace", b"first", "writer"),
            ("replace", b"second", "writer"),
            ("delete", None, "writer"),
        ]
        times_s = [commit.time_s for commit in chain]
        assert times_s == sorted(set(times_s))
        assert [commit.number for commit in store.commits] == [1, 2, 3, 4]
        assert store.history("absent") == []

    simulate(scenario)


async def _attempt(link: StoreLink, store: SimulatedStore) -> BaseException | str:
    """Try one replacement, and return what came back."""
    try:
        return await link.replace(KEY, b"mine", etag_of(store))
    except BucketQError as error:
        return error


Seen = tuple[BaseException | str, bool, float, bool]


def attempts(faults: Faults) -> list[Seen]:
    """Replace once for every seed: the answer, whether it had landed by then, when, and ever."""

    async def scenario(store: SimulatedStore, link: StoreLink) -> Seen:
        answer = await _attempt(link, store)
        landed, answered_s = body_of(store) == b"mine", store.loop.time()
        await asyncio.sleep(200)
        assert sum(store.injected.values()) == 1
        return answer, landed, answered_s, body_of(store) == b"mine"

    return [simulate(scenario, faults, seed) for seed in SEEDS]


def test_a_lost_request_never_lands() -> None:
    seen = attempts(Faults(lost_request=1))
    assert all(isinstance(answer, UnavailableError) for answer, *_ in seen)
    assert not any(ever for *_, ever in seen)


def test_a_lost_answer_follows_a_write_that_landed() -> None:
    seen = attempts(Faults(lost_answer=1))
    assert all(isinstance(answer, UnavailableError) for answer, *_ in seen)
    assert all(landed for _, landed, *_ in seen)
    times_s = [answered_s for _, _, answered_s, _ in seen]
    assert min(times_s) < 1  # a reset
    assert max(times_s) == 10  # silence


def test_a_late_landing_follows_the_error() -> None:
    seen = attempts(Faults(late_landing=1))
    assert all(isinstance(answer, UnavailableError) for answer, *_ in seen)
    assert not any(landed for _, landed, *_ in seen)
    assert all(ever for *_, ever in seen)


def test_a_self_inflicted_conflict_is_a_write_that_landed() -> None:
    seen = attempts(Faults(self_conflict=1))
    assert all(isinstance(answer, PreconditionFailedError) for answer, *_ in seen)
    assert all(landed for _, landed, *_ in seen)


def test_contention_has_no_effect_and_proves_nothing() -> None:
    seen = attempts(Faults(contended=1))
    assert all(isinstance(answer, UnavailableError) for answer, *_ in seen)
    assert not any(ever for *_, ever in seen)


def test_throttling_says_so_and_seldom_lands() -> None:
    seen = attempts(Faults(throttled=1))
    assert all(isinstance(answer, UnavailableError) and answer.throttled for answer, *_ in seen)
    assert 0 < sum(ever for *_, ever in seen) < len(seen) / 2


def test_a_server_error_lands_or_not() -> None:
    seen = attempts(Faults(server_error=1))
    assert all(isinstance(answer, UnavailableError) for answer, *_ in seen)
    assert not any(answer.throttled for answer, *_ in seen if isinstance(answer, UnavailableError))
    assert 0 < sum(ever for *_, ever in seen) < len(seen)


def test_a_slow_request_lands_and_may_outlast_the_callers_patience() -> None:
    seen = attempts(Faults(slow=1))
    assert all(ever for *_, ever in seen)
    patient = [answer for answer, *_ in seen if isinstance(answer, str)]
    impatient = [seen for seen in seen if isinstance(seen[0], UnavailableError)]
    assert patient
    assert {answered_s for _, _, answered_s, _ in impatient} == {10.0}
    assert {landed for _, landed, _, _ in impatient} == {False, True}


def test_a_duplicated_write_lands_once_and_conflicts_in_silence() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        etag = await link.replace(KEY, b"mine", etag_of(store))
        assert etag == etag_of(store)
        await asyncio.sleep(200)
        assert len(store.history(KEY)) == 2
        # An unconditional write does land twice, even over a deletion in between.
        await link.put("segment", b"body")
        store.remove("segment")
        await asyncio.sleep(200)
        operations = [commit.operation for commit in store.history("segment")]
        assert operations == ["put", "delete", "put"]

    # The deletion follows the answer at once, the duplicate never comes so early.
    simulate(scenario, Faults(duplicated=1, late_s=(1.0, 60.0)))


def test_a_late_landing_arrives_though_its_sender_is_dead() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        process = store.loop.spawn("sender", lambda: _attempt(link, store))
        await process.wait()
        assert not process.alive
        victim = store.loop.spawn("victim", lambda: _attempt(link, store))
        await asyncio.sleep(0.001)
        victim.kill()
        assert body_of(store) == b"base"
        await asyncio.sleep(200)
        # Both had seen the same etag, so that one of them found the object changed.
        assert [commit.body for commit in store.history(KEY)] == [b"base", b"mine"]
        assert "sender_died" not in store.injected

    for seed in SEEDS:
        simulate(scenario, Faults(late_landing=1, late_s=(20.0, 60.0)), seed)


def test_a_late_landing_on_a_changed_object_has_no_effect() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        assert isinstance(await _attempt(link, store), UnavailableError)
        store.set_faults(Faults.none())
        await link.replace(KEY, b"other", etag_of(store))
        await asyncio.sleep(200)
        assert body_of(store) == b"other"
        assert len(store.history(KEY)) == 2

    simulate(scenario, Faults(late_landing=1, late_s=(5.0, 60.0)))


def test_a_request_of_a_killed_process_lands_or_not() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> bool:
        process = store.loop.spawn("victim", lambda: _attempt(link, store))
        process.kill_after(1)
        await process.wait()
        assert body_of(store) == b"base"
        await asyncio.sleep(10)
        landed = body_of(store) == b"mine"
        assert store.injected == ({} if landed else {"sender_died": 1})
        return landed

    assert {simulate(scenario, seed=seed) for seed in SEEDS} == {False, True}


def test_a_request_of_a_frozen_process_lands_and_is_answered_after_the_thaw() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        process = store.loop.spawn("sleeper", lambda: _attempt(link, store))
        process.freeze_after(1, for_s=60)
        await asyncio.sleep(1)
        assert body_of(store) == b"mine"
        assert await process.wait() == etag_of(store)
        assert store.loop.time() == 60

    simulate(scenario)


def test_a_cancelled_request_still_lands() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_attempt(link, store), 0.001)
        await asyncio.sleep(1)
        assert body_of(store) == b"mine"

    simulate(scenario)


def test_a_partition_cuts_one_link_until_it_heals() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        other = store.connect("other")
        store.partition(link)
        for _ in range(10):
            assert isinstance(await _attempt(link, store), UnavailableError)
            await other.get(KEY)
        assert body_of(store) == b"base"
        assert store.injected == {"partition": 10}
        store.heal(link)
        assert isinstance(await _attempt(link, store), str)

    simulate(scenario)


def test_a_partition_of_the_store_cuts_all_links() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        store.partition()
        for each in (link, store.connect("other")):
            started_s = store.loop.time()
            with pytest.raises(UnavailableError):
                await each.get(KEY)
            assert store.loop.time() - started_s <= store.timeout_s
        store.heal()
        await link.get(KEY)

    for seed in SEEDS:
        simulate(scenario, seed=seed)


def test_a_partition_of_answers_lets_writes_land() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        store.partition(link, "answers")
        assert isinstance(await _attempt(link, store), UnavailableError)
        assert body_of(store) == b"mine"

    simulate(scenario)


def test_reads_suffer_what_a_read_can() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> dict[str, int]:
        failed = 0
        for _ in range(2000):
            try:
                assert (await link.get(KEY)).body == b"base"
            except UnavailableError:
                failed += 1
        assert 0 < failed < 1000
        return store.injected

    assert set(simulate(scenario, Faults.harsh())) == set(READ_FAULTS)


def test_the_harsh_preset_injects_every_fault_and_calm_ends_them() -> None:
    async def scenario(store: SimulatedStore, link: StoreLink) -> None:
        for _ in range(2000):
            await _attempt(link, store)
        assert set(store.injected) == set(WRITE_FAULTS)
        store.partition(link)
        store.end_faults()
        before = sum(store.injected.values())
        await asyncio.sleep(200)
        for _ in range(500):
            assert isinstance(await _attempt(link, store), str)
        assert sum(store.injected.values()) == before

    simulate(scenario, Faults.harsh())


def test_rates_must_be_probabilities() -> None:
    with pytest.raises(ValueError, match="fault rates"):
        Faults(slow=-0.1)
    with pytest.raises(ValueError, match="fault rates"):
        replace(Faults.harsh(), contended=0.9)
