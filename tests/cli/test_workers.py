"""``bucketq workers``, ``drain`` and ``audit``: output and exit codes."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest

import bucketq
from bucketq.cli.commands import module_of
from bucketq.cli.commands.monitoring.audit import COMMANDS
from bucketq.cli.terminal import exit_codes
from bucketq.model.oversight.audit_notes import DESCRIBED
from tests.cli.console import Console


@pytest.fixture
def queue(console: Console) -> Console:
    console.ok("create", "URL")
    return console


def announce(url: str, name: str, *, draining: bool = False) -> None:
    async def main() -> None:
        async with bucketq.connect(url, mode="direct") as queue:
            await queue.announce(
                name,
                run_id=f"run of {name}",
                host="web",
                pid=4711,
                version="1.2",
                up_s=5,
                kinds=("mail", "sms"),
                concurrency=3,
                draining=draining,
            )

    asyncio.run(main())


def test_workers_are_listed(queue: Console) -> None:
    announce(queue.url, "web-1")
    announce(queue.url, "web-2", draining=True)
    header, first, second = queue.ok("workers", "URL").out.splitlines()
    assert header.split() == [
        *("NAME", "HOST", "PID", "VERSION", "RUNNING", "SINCE", "HEARTBEAT", "STATUS", "KINDS")
    ]
    assert first.split()[:5] == ["web-1", "web", "4711", "1.2", "0/3"]
    assert first.split()[-3:] == ["idle", "mail,", "sms"]
    assert "draining" in second
    rows = queue.ok("workers", "URL", "--json").lines
    assert [row["name"] for row in rows] == ["web-1", "web-2"]
    assert rows[0]["kinds"] == ["mail", "sms"]
    assert rows[1]["draining"] is True


def test_a_worker_is_asked_to_finish(queue: Console) -> None:
    announce(queue.url, "web-1")
    assert "asked 1 worker to finish" in queue.ok("drain", "URL", "web-1").out
    [row] = queue.ok("workers", "URL", "--json").lines
    assert row["draining"] is True
    assert queue.ok("drain", "URL", "web-1", "--json").json == {"worker": "web-1", "asked": 1}


def test_an_unknown_worker_is_an_error_that_names_the_others(queue: Console) -> None:
    announce(queue.url, "web-1")
    failed = queue.run("drain", "URL", "web-9")
    assert failed.code == exit_codes.NOTHING
    assert "web-1" in failed.err


def test_what_operators_did_is_listed(queue: Console) -> None:
    queue.ok("pause", "URL", "mail")
    queue.ok("config", "URL", "max_attempts=7")
    header, first, second = queue.ok("audit", "URL").out.splitlines()
    assert header.split() == ["AT", "ACTION", "BY", "COUNT", "ABOUT"]
    assert first.split()[1] == "pause"
    assert first.endswith("kind mail")
    assert second.endswith("max_attempts=7")
    [row] = queue.ok("audit", "URL", "-n", "1", "--json").lines
    assert (row["action"], row["about"]) == ("configure", ["max_attempts=7"])
    assert (row["command"], second.split()[1]) == ("config", "config")


def test_actions_are_named_after_commands_that_exist() -> None:
    actions = [str(operation.__struct_config__.tag) for operation in DESCRIBED]
    for action in [*actions, *COMMANDS]:
        words = COMMANDS.get(action, action).split()
        assert find_spec(module_of(*(word for word in words if not word.startswith("-"))))
