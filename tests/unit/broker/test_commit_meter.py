"""What a leader says about its commits."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from bucketq.broker.commit_meter import CommitMeter
from bucketq.commit.objects.register import Register
from bucketq.commit.partitioned.answer_sums import add_stats
from bucketq.model.queue_stats import CommitStats
from bucketq.store.resolve_write import Verdict
from tests.unit.broker.leaders import Realm
from tests.unit.commit.worlds import KEY, lose_request, virtual


@virtual
async def test_the_stats_of_a_leader_have_its_commits_and_storage_errors() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        realm.store.plan("replace", lose_request)
        await asyncio.gather(*(leader.push("mail", number) for number in range(5)))
        found = (await leader.stats()).commit_stats
    assert isinstance(found, CommitStats)
    assert found.commits == found.measured == 2
    assert (found.conflicts, found.storage_errors) == (0, 1)
    assert found.requests == (1, 5)
    assert 500 < found.size_bytes[0] <= found.size_bytes[1]
    assert 0 <= found.took_s[0] < found.took_s[1], "the second was sent twice"


@virtual
async def test_only_commits_of_the_last_minute_are_measured() -> None:
    realm = Realm()
    meter = CommitMeter(Register(realm.store, KEY, "test://queue", realm.clock))
    meter.wrote(Verdict.LANDED, 9.0, 900, 9)
    await asyncio.sleep(61)
    assert meter.measure() == CommitStats(commits=1, conflicts=0, storage_errors=0)
    meter.wrote(Verdict.LOST, 8.0, 800, 8)
    for each in range(1, 101):
        meter.wrote(Verdict.LANDED, each / 1000, each, each)
    assert meter.measure() == CommitStats(
        commits=101,
        conflicts=1,
        storage_errors=0,
        measured=100,
        took_s=(0.05, 0.099),
        size_bytes=(50, 99),
        requests=(50, 99),
    )


@virtual
async def test_commits_of_partitions_are_added_up_if_all_are_known() -> None:
    realm = Realm()
    async with realm.leader() as leader:
        await leader.push("mail", 1)
        led = await leader.stats()
    assert led.commit_stats is not None
    both = add_stats([led, led]).commit_stats
    assert both is not None
    assert both.commits == 2 * led.commit_stats.commits
    assert both.took_s == led.commit_stats.took_s
    assert add_stats([led, replace(led, commit_stats=None)]).commit_stats is None
