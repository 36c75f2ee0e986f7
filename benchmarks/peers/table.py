"""The table: a row for each queue, a column for each cell, and which of them are measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

ServerName = Literal["files", "broker", "bare", "redis", "postgres"]

MANY = 100
"""How many jobs a call takes in bulk."""
DEPTHS = {"depth-0": 0, "depth-10k": 10_000, "depth-100k": 100_000, "depth-1m": 1_000_000}


@dataclass(frozen=True, eq=False)
class Peer:
    """A queue that is measured."""

    name: str
    """What it is called on the command line."""
    title: str
    adapter: str
    """``module:Class`` in this folder."""
    server: ServerName
    distributions: tuple[str, ...]
    """The packages whose versions are reported."""
    note: str = ""
    environment: str = ""
    """The virtual environment that has it, if it is not the one that has all others."""
    needs: str = ""
    """What to say if that environment is missing."""
    absent: dict[str, str] = field(default_factory=dict)
    """Cells that are not measured, with the reason."""

    @property
    def is_ours(self) -> bool:
        """Whether it is bucketq."""
        return self.name.startswith("bucketq")


@dataclass(frozen=True)
class Burst:
    """A cell in which callers push for a while, and then claim and complete."""

    title: str
    callers: int = 64
    """In all, spread evenly over the processes."""
    processes: int = 1
    per_call: int = 1


BURSTS = {
    "1": Burst("1 caller", callers=1),
    "64": Burst("64 callers in one process"),
    "64x4": Burst("64 callers in 4 processes", processes=4),
    "1000": Burst("1,000 callers", callers=1000),
    "1000x2": Burst("1,000 callers in 2 processes", callers=1000, processes=2),
    "bulk": Burst("bulk of 100", per_call=MANY),
}
SUSTAINED = {"sustained-64": "64", "sustained-64x4": "64x4", "sustained-bulk": "bulk"}
"""Two minutes of cycles with the callers of a burst, for cells that have an aim."""
COMPARED = ("bucketq", "redis", "postgres")
"""The rows that aims compare."""
_SUSTAINED_PEERS = {
    "sustained-64": COMPARED,
    "sustained-64x4": ("bucketq",),
    "sustained-bulk": ("bucketq", "postgres"),
}
"""The aim in four processes is bucketq's own burst, and in bulk PostgreSQL."""
OTHERS = ("failover", "start", "cost")
CELLS = (*BURSTS, *DEPTHS, *SUSTAINED, *OTHERS)

_NO_BULK = "it has no call for many jobs"
_ALL_TURNS = "its calls block, so callers of a process take turns: the same as 64 callers"
_ONE_BROKER = "one process commits for its own callers"
_ONLY_COMPARED = "only for bucketq and the bounds"
_IN_MEMORY = "it has its jobs in memory alone"
_SLOW_DEEP = "filling it would take minutes: each write is the whole queue"

PEERS = (
    Peer(
        "bucketq",
        "bucketq, broker in another process",
        "bucketq_queue:BucketqBroker",
        "broker",
        ("bucketq", "grpcio", "msgspec"),
    ),
    Peer(
        "bucketq-embedded",
        "bucketq embedded",
        "bucketq_queue:BucketqEmbedded",
        "files",
        ("bucketq", "msgspec"),
        absent={"64x4": _ONE_BROKER, "1000x2": _ONE_BROKER, "failover": "no server"},
    ),
    Peer(
        "bare",
        "bare gRPC and a synced log, in Python (bound)",
        "bare_broker:BareBroker",
        "bare",
        ("grpcio", "msgspec"),
        "no leases, retries or results, and it does not read its log",
        absent=dict.fromkeys((*DEPTHS, "failover"), _IN_MEMORY) | {"start": "it has no command"},
    ),
    Peer(
        "redis",
        "bare Redis lists (bound)",
        "redis_lists:RedisLists",
        "redis",
        ("redis", "hiredis"),
        "no leases, retries or results",
    ),
    Peer(
        "postgres",
        "bare asyncpg SKIP LOCKED (bound)",
        "skip_locked:SkipLocked",
        "postgres",
        ("asyncpg",),
        "no leases, retries or results",
    ),
    Peer(
        "saq",
        "SAQ on Redis",
        "saq_queue:SaqQueue",
        "redis",
        ("saq", "redis", "hiredis"),
        absent={"bulk": _NO_BULK, "depth-1m": _ONLY_COMPARED},
    ),
    Peer(
        "pgqueuer",
        "PgQueuer",
        "pgqueuer_queue:PgqueuerQueue",
        "postgres",
        ("pgqueuer", "asyncpg"),
        absent={"depth-1m": _ONLY_COMPARED},
    ),
    Peer(
        "procrastinate",
        "Procrastinate",
        "procrastinate_queue:ProcrastinateQueue",
        "postgres",
        ("procrastinate", "psycopg", "psycopg-binary"),
        "in bulk it only pushes; jobs are claimed one by one",
        absent={"depth-1m": _ONLY_COMPARED},
    ),
    Peer(
        "litequeue",
        "litequeue, SQLite FULL",
        "litequeue_file:LitequeueFile",
        "files",
        ("litequeue",),
        "in bulk it only pushes; jobs are claimed one by one",
        absent={"1000": _ALL_TURNS, "depth-1m": _ONLY_COMPARED, "failover": "no server"},
    ),
    Peer(
        "jqueue",
        "jqueue on a file (no fsync)",
        "jqueue_file:JqueueFile",
        "files",
        ("jqueue",),
        "not durable: its file is not synced",
        environment="jqueue",
        needs="it needs Python 3.12 or newer, and no environment with that could be made",
        absent={
            "64x4": _ONE_BROKER,
            "1000x2": _ONE_BROKER,
            "bulk": _NO_BULK,
            "depth-100k": _SLOW_DEEP,
            "depth-1m": _SLOW_DEEP,
            "failover": "no server",
        },
    ),
)


def reason_absent(peer: Peer, cell: str) -> str | None:
    """Return why a cell of a row is not measured, or None if it is."""
    if cell in SUSTAINED and peer.name not in _SUSTAINED_PEERS[cell]:
        return "no aim compares it"
    if cell == "1000x2" and peer.name not in {*COMPARED, "bare"}:
        return peer.absent.get(cell, _ONLY_COMPARED)
    if cell == "failover" and peer.name not in COMPARED:
        return peer.absent.get(cell, "the same as that of its server")
    if cell == "cost" and peer.name not in {"bucketq-embedded", "jqueue"}:
        return "its requests have no price"
    return peer.absent.get(cell)


def title_of(cell: str) -> str:
    """What a cell is called in words."""
    if cell in DEPTHS:
        return f"{DEPTHS[cell]:,} waiting"
    return BURSTS[cell].title if cell in BURSTS else cell


def measured(peers: list[Peer], cells: list[str]) -> Iterator[tuple[str, Peer]]:
    """All that is to be measured, cell by cell, so that the rows of a cell alternate."""
    for cell in cells:
        for peer in peers:
            if reason_absent(peer, cell) is None:
                yield cell, peer
