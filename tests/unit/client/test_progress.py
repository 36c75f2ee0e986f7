"""Progress through a broker: without a commit of its own, and kept through a failover."""

from __future__ import annotations

import asyncio

from bucketq import Progress
from tests.unit.broker.land import until
from tests.unit.client.clients import Realm
from tests.unit.commit.worlds import start, virtual


@virtual
async def test_progress_costs_no_commit_and_is_written_down_with_the_silence_of_workers() -> None:
    realm = Realm()
    async with realm.serving("host1"), realm.client() as queue:
        job_id = await queue.push("render", 1)
        (job,) = await queue.claim()
        writes = realm.store.count("replace")
        for done in range(50):
            await queue.heartbeat(job, progress={job_id: Progress(done, 50)})
            assert (await queue.get(job_id)).progress == Progress(done, 50)
        assert realm.store.count("replace") == writes
        await asyncio.sleep(11)
        (stored,) = (await realm.state()).jobs
        assert stored.progress == Progress(49, 50)
        assert realm.store.count("replace") == writes + 1


@virtual
async def test_progress_survives_the_death_of_its_broker_within_a_heartbeat() -> None:
    realm = Realm()
    first = realm.spawn("host1")
    await realm.until_led_by("host1")
    seen: list[Progress] = []
    async with realm.serving("host2", healthy=True), realm.client() as queue:
        job_id = await queue.push("render", 1)
        waiting = start(queue.wait(job_id, timeout_s=120, on_progress=seen.append))
        (job,) = await queue.claim()
        await queue.heartbeat(job, progress={job_id: Progress(1, 2)})
        await until(lambda: seen == [Progress(1, 2)])
        first.kill()
        await realm.until_led_by("host2")
        await queue.heartbeat(job, progress={job_id: Progress(1, 2)})
        assert (await queue.get(job_id)).progress == Progress(1, 2)
        await queue.heartbeat(job, progress={job_id: Progress(2, 2)})
        await until(lambda: seen[-1] == Progress(2, 2))
        await queue.complete(job, "ready")
        assert await waiting == "ready"
    assert seen == [Progress(1, 2), Progress(2, 2)]
