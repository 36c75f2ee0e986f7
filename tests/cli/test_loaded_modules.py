"""A command imports only what it uses: a script that pushes one job starts it each time."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

import bucketq
from tests.environ import child_environ

TIMEOUT_S = 120

PROGRAM = """\
import json, sys
from bucketq.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
GARBAGE = """\
import gc
from bucketq.cli import main
def collections():
    return sum(each["collections"] for each in gc.get_stats())
before = collections()
try:
    main()
finally:
    print(collections() - before, gc.get_freeze_count())
"""
NEVER = {"obstore", "pandas", "pyarrow", "pydantic", "pyspark", "rich"}
"""Packages that the commands of this file never need."""
BROKER = {"bucketq.broker.broker", "bucketq.rpc.grpc.grpc_server"}
"""The modules that only a process with a broker of its own needs."""
ARCHIVE = {"bucketq.archive.reader", "bucketq.archive.compacted", "bucketq.archive.delta"}
GRPC = {"google.protobuf", "grpc", "bucketq.rpc.grpc.grpc_client"}
PARTITIONED = "bucketq.commit.partitioned.partitioned_committer"
GROUP = {"bucketq.broker.leader", "bucketq.commit.group_committer", PARTITIONED}
"""What commits for several callers or partitions at once."""
WRITER = {
    *("bucketq.commit.direct_committer", "bucketq.commit.objects.register"),
    *("bucketq.codec.decode", "bucketq.model.state", "bucketq.model.transitions"),
}
"""What a process needs that reads or writes jobs in the object itself."""
SELDOM = {"ctypes", "zoneinfo"}
BULK = {"bucketq.cli.bulk.feeds", "bucketq.commit.bulk_write"}


def ran(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done
    return done


def loaded(*words: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    return set(json.loads(ran(PROGRAM, *words).stderr.splitlines()[-1]))


@pytest.mark.parametrize("words", [("--help",), ("push", "--help")], ids=" ".join)
def test_help_loads_no_queue(words: tuple[str, ...]) -> None:
    found = loaded(*words)
    assert found & (NEVER | BROKER | ARCHIVE | GRPC | BULK) == set()
    assert not found & {"bucketq.model.state", "bucketq.codec", "ssl"}


def test_commands_without_a_broker_load_neither_grpc_nor_the_archive(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/queue.json"
    commands = [
        ("push", url, "mail", "1", "--priority", "3", "--tag", "a=b"),
        ("stats", url),
        ("claim", url, "--json", "--limit", "2"),
        ("config", url),
    ]
    for words in commands:
        found = loaded(*words)
        assert found & (NEVER | BROKER | ARCHIVE | GRPC | GROUP | SELDOM | BULK) == set(), words


async def test_a_push_through_a_broker_loads_no_broker_of_its_own(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/queue.json"
    async with bucketq.connect(url) as queue:
        await queue.push("mail", 1)
        found = await asyncio.to_thread(loaded, "push", url, "mail", "2")
    assert found >= GRPC
    beside = {"grpc_health.v1", "grpc_reflection.v1alpha"}
    assert found & (NEVER | BROKER | ARCHIVE | GROUP | WRITER | SELDOM | BULK | beside) == set()


def test_a_short_command_looks_for_no_garbage(tmp_path: Path) -> None:
    """Neither while it runs, nor when Python exits: what is frozen is not looked at."""
    done = ran(GARBAGE, "push", f"file://{tmp_path}/queue.json", "mail", "1")
    collections, frozen = map(int, done.stdout.splitlines()[-1].split())
    # There were 85, and a few come before the first line of this package decides.
    assert collections < 10
    assert frozen > 10_000
