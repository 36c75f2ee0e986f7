"""What the clients of a run were promised, compared with what is there in the end."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import bucketq
from bucketq.archive.archive_layout import Layout, hours_between
from bucketq.archive.reader import ArchiveReader
from bucketq.clock import SystemClock
from bucketq.commit.objects.register import Register
from bucketq.store.url import open_store
from tests.chaos.attempts import Attempts
from tests.chaos.casts import Cast
from tests.chaos.diary import read_diary
from tests.chaos.fleet import Fleet
from tests.chaos.world import Events

_LONG_AGO = datetime.now(UTC) - timedelta(hours=3)
"""Before any run of this process."""
_ACKNOWLEDGED = {"pushed", "completed", "given_back"}


@dataclass
class Verdict:
    """The numbers of a run, and everything that is wrong with it."""

    numbers: dict[str, int] = field(default_factory=dict)
    failovers_s: list[float] = field(default_factory=list)
    more: dict[str, str] = field(default_factory=dict)
    """What is told in words."""
    problems: list[str] = field(default_factory=list)

    def table(self) -> str:
        rows = {name: f"{number:,}" for name, number in self.numbers.items()}
        if self.failovers_s:
            rows |= {f"failover {name}": text for name, text in quantiles(self.failovers_s)}
        rows |= self.more
        return "\n".join(f"  {name:<24} {text:>16}" for name, text in rows.items())


def quantiles(times_s: list[float]) -> Iterator[tuple[str, str]]:
    """The middle, the end and the very end of some durations."""
    ordered = sorted(times_s)
    cuts = statistics.quantiles(ordered, n=100, method="inclusive") if len(ordered) > 1 else []
    yield "p50", f"{statistics.median(ordered):.2f} s"
    yield "p99", f"{cuts[98] if cuts else ordered[0]:.2f} s"
    yield "max", f"{ordered[-1]:.2f} s"


@dataclass
class Found:
    """A job that is there in the end."""

    kind: str
    token: str
    status: str
    outcome: str | None
    attempt: int
    failures: int
    lost_leases: int
    worker: str | None
    lease: str
    result: Any

    @classmethod
    def of(cls, job: bucketq.Job[Any]) -> Found:
        return cls(
            job.kind,
            job.payload,
            job.status,
            job.outcome,
            job.attempt,
            job.failures,
            job.lost_leases,
            job.worker,
            job.lease.lease,
            job.result,
        )


@dataclass
class Remains:
    """What a run has left."""

    jobs: dict[str, Found] = field(default_factory=dict)
    """The archived jobs, by id."""
    repeated: int = 0
    """Lines of the archive that say once more what another says: a crash leaves such."""
    epoch: int = 0
    problems: list[str] = field(default_factory=list)


async def find_remains(url: str) -> Remains:
    """Read the queue, which is to be empty, and the archive, which is to hold every job once."""
    remains = Remains()
    say = remains.problems.append
    location = open_store(url)
    state = (await Register(location.store, location.key, url, SystemClock()).load()).state
    remains.epoch = state.epoch
    if state.jobs_count:
        left = list(state.jobs.by_id.values())
        say(f"{state.jobs_count} jobs are still in the queue: {left[:3]}")
    since, until = _LONG_AGO, datetime.now(UTC) + timedelta(hours=1)
    async with bucketq.open_archive(url) as archive:
        async for job in archive.jobs(since, until):
            if job.id in remains.jobs:
                say(f"job {job.id} is archived in two hours")
            remains.jobs[job.id] = Found.of(job)
    reader = ArchiveReader(location.store, Layout.of(location.store.url, location.key))
    lines = 0
    for hour in hours_between(since, until):
        for archive_file in await reader.archive_files(hour):
            for record in await reader.read(archive_file) or ():
                lines += 1
                one = Found.of(bucketq.Job[Any](record, Any))
                if one != remains.jobs.get(record.id):
                    say(f"job {record.id} is archived as {one} and {remains.jobs.get(record.id)}")
    await location.store.close()
    remains.repeated = lines - len(remains.jobs)
    return remains


class Diaries:
    """What all clients wrote down, in all their lives."""

    def __init__(self, lines: dict[str, list[dict[str, Any]]]) -> None:
        self._lines = lines

    @classmethod
    def of_fleet(cls, fleet: Fleet) -> Diaries:
        """Read all of them as they are now."""
        return cls({client.diary.name: read_diary(client.diary) for client in fleet.clients})

    def of(self, *what: str) -> Iterator[dict[str, Any]]:
        for lines in self._lines.values():
            for line in lines:
                if line["what"] in what:
                    yield line

    def each(self) -> Iterable[list[dict[str, Any]]]:
        """The diaries one by one, each in the order in which it was written."""
        return self._lines.values()

    def tokens(self, what: str) -> set[str]:
        return {token for line in self.of(what) for token in line["tokens"]}

    def first_after(self, moment: float, but: str) -> float | None:
        """When the first operation was acknowledged that another client began after a moment."""
        return min(
            (
                line["at"]
                for name, lines in self._lines.items()
                for line in lines
                if name != but and line["what"] in _ACKNOWLEDGED
                if line.get("began", 0.0) >= moment
            ),
            default=None,
        )


async def judge(fleet: Fleet, url: str, cast: Cast, events: Events) -> Verdict:
    """Compare what was promised with what is there."""
    diaries = Diaries.of_fleet(fleet)
    remains = await find_remains(url)
    found, epoch = remains.jobs, remains.epoch
    verdict = Verdict(problems=remains.problems + events.exits)
    say = verdict.problems.append
    if complaints := fleet.complaints():
        say(f"the clients said on stderr: {complaints[:2000]}")
    for line in diaries.of("crashed"):
        say(f"a client crashed: {line['why']}")
    lost, doubled = _judge_pushes(diaries, found, say)
    lost += _judge_completions(diaries, found, say)
    _judge_leases(diaries, say)
    epochs = events.epochs | set(fleet.leaders())
    if epochs != set(range(1, epoch + 1)):
        say(f"the queue is in epoch {epoch}, and there were {sorted(epochs)}")
    for moment, name in events.leader_kills:
        after = diaries.first_after(moment, name)
        if after is not None:
            verdict.failovers_s.append(after - moment)
    verdict.numbers = dict(sorted(events.counts.items())) | {"takeovers": epoch - 1}
    verdict.numbers |= _operations(diaries)
    verdict.numbers |= {"archived": len(found), "archived again": remains.repeated}
    if cast.has_workers:
        verdict.numbers |= Attempts(diaries, found, say).judge()
    verdict.numbers |= {"lost": lost, "doubled": doubled}
    verdict.more["time to empty"] = f"{events.emptied_s:.1f} s"
    verdict.more |= _judge_memory(events, say)
    return verdict


def _operations(diaries: Diaries) -> dict[str, int]:
    acknowledged = sum(1 for _ in diaries.of(*_ACKNOWLEDGED, "claimed"))
    unknown = sum(1 for _ in diaries.of("unknown", "completion_unknown"))
    refused = sum(1 for _ in diaries.of("refused", "completion_refused"))
    return {
        "operations": acknowledged + unknown + refused,
        "acknowledged": acknowledged,
        "refused": refused,
        "unknown": unknown,
        "pushes acknowledged": sum(len(line["jobs"]) for line in diaries.of("pushed")),
    }


def _judge_memory(events: Events, say: Any) -> dict[str, str]:
    """The memory of whoever lived long; of each role, whoever has grown most is shown."""
    rows: dict[str, str] = {}
    for growth in events.memory.growths():
        rows.setdefault(f"memory of {growth.role}", str(growth))
        if growth.is_too_much:
            say(f"the memory of {growth.name} grew in {growth.lived_s:.0f} s: {growth}")
    return rows


def _judge_pushes(diaries: Diaries, found: dict[str, Found], say: Any) -> tuple[int, int]:
    promised = {job: token for line in diaries.of("pushed") for job, token in line["jobs"]}
    lost = [job for job, token in promised.items() if job not in found or found[job].token != token]
    times = Counter(job.token for job in found.values())
    doubled = [token for token, count in times.items() if count > 1]
    if lost:
        say(f"{len(lost)} acknowledged pushes are lost: {lost[:5]}")
    if doubled:
        say(f"{len(doubled)} pushes took effect twice: {doubled[:5]}")
    if strangers := times.keys() - diaries.tokens("intends"):
        say(f"nobody pushed {sorted(strangers)[:5]}")
    if refused := times.keys() & diaries.tokens("refused"):
        say(f"refused, and there all the same: {sorted(refused)[:5]}")
    if undone := [job for job, one in found.items() if one.status != "done"]:
        say(f"{len(undone)} jobs were not done in the end: {undone[:5]}")
    return len(lost), len(doubled)


def _judge_completions(diaries: Diaries, found: dict[str, Found], say: Any) -> int:
    lost = 0
    for line in diaries.of("completed"):
        job = found.get(line["job"])
        if job is None or (job.attempt, job.result) != (line["attempt"], line["result"]):
            lost += 1
            say(f"the completion {line} was acknowledged, and there is {job}")
    for line in diaries.of("completion_refused"):
        job = found.get(line["job"])
        if job is not None and job.result == line["result"]:
            say(f"the completion {line} was refused, and took effect")
    return lost


def _judge_leases(diaries: Diaries, say: Any) -> None:
    claims = Counter((line["job"], line["attempt"]) for line in diaries.of("claimed"))
    for claim, count in claims.items():
        if count > 1:
            say(f"{count} claims got attempt {claim[1]} of job {claim[0]}")
    lost = {(line["job"], line["attempt"]): line for line in diaries.of("told_lost", "given_back")}
    for line in diaries.of("completed"):
        ended = lost.get((line["job"], line["attempt"]))
        if ended is not None and ended["at"] < line["began"]:
            say(f"the completion {line} was acknowledged after {ended}")
