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
NEVER = {"obstore", "pandas", "pyarrow", "pydantic", "pyspark", "rich"}
"""Packages that the commands of this file never need."""
BROKER = {"bucketq.broker.broker", "bucketq.rpc.grpc.grpc_server"}
"""The modules that only a process with a broker of its own needs."""
ARCHIVE = {"bucketq.archive.reader", "bucketq.archive.compacted", "bucketq.archive.delta"}
GRPC = {"google.protobuf", "grpc", "bucketq.rpc.grpc.grpc_client"}
BULK = {"bucketq.cli.bulk.feeds", "bucketq.commit.bulk_write"}


def loaded(*words: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran
    return set(json.loads(ran.stderr.splitlines()[-1]))


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
        assert found & (NEVER | BROKER | ARCHIVE | GRPC | BULK) == set(), words


async def test_a_push_through_a_broker_loads_no_broker_of_its_own(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/queue.json"
    async with bucketq.connect(url) as queue:
        await queue.push("mail", 1)
        found = await asyncio.to_thread(loaded, "push", url, "mail", "2")
    assert found >= GRPC
    beside = {"grpc_health.v1", "grpc_reflection.v1alpha"}
    assert found & (NEVER | BROKER | ARCHIVE | BULK | beside) == set()
