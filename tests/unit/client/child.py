"""A process that opens a queue and then forks, is starved or loses its rights.

``python -m tests.unit.client.child COMMAND URL MODE`` prints what the command found, a line each.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import bucketq
from bucketq import ClosedError, JobSpec, LeaseRef, StoreRefusedError
from bucketq.client.connect_arguments import Mode

LEASE = LeaseRef("job", "lease")

VERBS: dict[str, Callable[[Any], Any]] = {
    "push": lambda queue: queue.push("mail", 1),
    "push_many": lambda queue: queue.push_many([JobSpec(kind="mail", payload=1)]),
    "push_many of none": lambda queue: queue.push_many([]),
    "claim": lambda queue: queue.claim(wait_s=60),
    "heartbeat": lambda queue: queue.heartbeat(LEASE),
    "heartbeat of none": lambda queue: queue.heartbeat([]),
    "complete": lambda queue: queue.complete(LEASE),
    "fail": lambda queue: queue.fail(LEASE, "x"),
    "release": lambda queue: queue.release(LEASE),
    "cancel": lambda queue: queue.cancel("job"),
    "redrive": lambda queue: queue.redrive(),
    "purge": lambda queue: queue.purge(),
    "pause": lambda queue: queue.pause(),
    "resume": lambda queue: queue.resume(),
    "settings": lambda queue: queue.settings(),
    "create_token": lambda queue: queue.create_token("ci", "push"),
    "tokens": lambda queue: queue.tokens(),
    "revoke_token": lambda queue: queue.revoke_token("00000000"),
    "open_consumer": lambda queue: queue.open_consumer("spark"),
    "claim_batch": lambda queue: queue.claim_batch("spark", 1, 1),
    "read_batch": lambda queue: queue.read_batch("spark", 1),
    "ack_batch": lambda queue: queue.ack_batch("spark", 1, 1),
    "settle_batch": lambda queue: queue.settle_batch("spark", 1, ()),
    "release_batch": lambda queue: queue.release_batch("spark", 1, 1),
    "consumers": lambda queue: queue.consumers(),
    "remove_consumer": lambda queue: queue.remove_consumer("spark"),
    "schedule": lambda queue: queue.schedule("tick", "mail", 1, every_s=60),
    "unschedule": lambda queue: queue.unschedule("tick"),
    "pause_schedule": lambda queue: queue.pause_schedule("tick"),
    "resume_schedule": lambda queue: queue.resume_schedule("tick"),
    "run_schedule": lambda queue: queue.run_schedule("tick"),
    "schedules": lambda queue: queue.schedules(),
    "limit": lambda queue: queue.limit(kind="mail", running=5),
    "unlimit": lambda queue: queue.unlimit(kind="mail"),
    "limits": lambda queue: queue.limits(),
    "open_batch": lambda queue: queue.open_batch(),
    "close_batch": lambda queue: queue.close_batch("b1"),
    "cancel_batch": lambda queue: queue.cancel_batch("b1"),
    "cancel_jobs": lambda queue: queue.cancel_jobs("b1"),
    "get_batch": lambda queue: queue.get_batch("b1"),
    "batches": lambda queue: queue.batches(),
    "set_priority": lambda queue: queue.set_priority("job", 1),
    "workers": lambda queue: queue.workers(),
    "drain": lambda queue: queue.drain("w"),
    "announce": lambda queue: queue.announce("w", run_id="1", host="h", pid=1, version="1", up_s=0),
    "audit": lambda queue: queue.audit(),
    "publish": lambda queue: queue.publish("sink", 1, [JobSpec(kind="mail", payload=1)]),
    "get": lambda queue: queue.get("job"),
    "jobs": lambda queue: queue.jobs(),
    "stats": lambda queue: queue.stats(),
    "snapshot": lambda queue: queue.snapshot(),
    "flush_archive": lambda queue: queue.flush_archive(),
}
"""A call of every verb."""


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def wait_for(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    say("child ended with", os.waitstatus_to_exitcode(status))


async def fork(url: str, mode: Mode) -> None:
    """Use every verb in a child, then go on in the parent."""
    async with bucketq.connect(url, mode=mode) as queue:
        await queue.push("mail", 1)
        pid = os.fork()
        if pid == 0:
            for verb, call in VERBS.items():
                try:
                    await call(queue)
                except ClosedError as error:
                    say(verb if "connect again after a fork" in str(error) else error)
            os._exit(0)
        wait_for(pid)
        await queue.push("mail", 2)
        say("parent sees", (await queue.stats()).total("queued"))


async def fork_and_leave(url: str, mode: Mode) -> None:
    """Leave the block, and the program, in a child while a push of the parent is pending."""
    async with bucketq.connect(url, mode=mode) as queue:
        pushing = asyncio.create_task(queue.push("mail", 1))
        await asyncio.sleep(0)
        pid = os.fork()
        if pid == 0:
            sys.exit(7)
        wait_for(pid)
        await pushing
        say("parent sees", (await queue.stats()).total("queued"))


def fork_blocking(url: str, mode: Mode) -> None:
    """Use every blocking verb in a child, then go on in the parent."""
    with bucketq.connect_sync(url, mode=mode) as queue:
        queue.push("mail", 1)
        pid = os.fork()
        if pid == 0:
            for verb, call in VERBS.items():
                try:
                    call(queue)
                except ClosedError as error:
                    say(verb if "connect again after a fork" in str(error) else error)
            os._exit(0)
        wait_for(pid)
        queue.push("mail", 2)
        say("parent sees", queue.stats().total("queued"))


def fork_and_leave_blocking(url: str, mode: Mode) -> None:
    """Leave the block, and the program, in a child."""
    with bucketq.connect_sync(url, mode=mode) as queue:
        queue.push("mail", 1)
        pid = os.fork()
        if pid == 0:
            sys.exit(7)
        wait_for(pid)
        say("parent sees", queue.stats().total("queued"))


async def fork_and_connect(url: str, mode: Mode) -> None:
    """Open the queue anew in a child."""
    async with bucketq.connect(url, mode=mode) as queue:
        await queue.push("mail", 1)
        pid = os.fork()
        if pid == 0:
            asyncio._set_running_loop(None)
            with bucketq.connect_sync(url, mode=mode) as own:
                own.push("mail", 2)
            os._exit(0)
        wait_for(pid)
        say("parent sees", (await queue.stats()).total("queued"))


async def fill_up(url: str, mode: Mode) -> None:
    """Meet the end of the space, and go on when there is some again."""
    async with bucketq.connect(url, mode=mode) as queue:
        first = await queue.push("mail", "first")
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        try:
            await queue.push("mail", "x" * 30_000)
        except StoreRefusedError as error:
            say(error)
        (job,) = await queue.claim()
        assert job.id == first
        await queue.complete(job)
        second = await queue.push("mail", "second")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        third = await queue.push("mail", "x" * 30_000)
    async with bucketq.connect(url, mode=mode) as queue:
        jobs = (await queue.jobs()).jobs
        assert [job.id for job in jobs] == [first, second, third]
        say(*(job.status for job in jobs))


async def without_rights(url: str, mode: Mode) -> None:
    """Open a queue that may only be read, and one that may not even be read."""
    # What is imported late must be there before the right to read it is gone.
    async with bucketq.connect(f"{url}/readable.json", mode=mode):
        pass
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    async with bucketq.connect(f"{url}/readable.json", mode=mode) as queue:
        say((await queue.stats()).total("queued"))
        try:
            await queue.push("mail", 1)
        except StoreRefusedError as error:
            say(error)
        say((await queue.stats()).total("queued"))
    for name in ("secret.json", "new.json"):
        try:
            async with bucketq.connect(f"{url}/{name}", mode=mode):
                pass
        except StoreRefusedError as error:
            say(error)


COMMANDS: dict[str, Callable[[str, Mode], Awaitable[None] | None]] = {
    command.__name__: command
    for command in (
        fork,
        fork_and_leave,
        fork_blocking,
        fork_and_leave_blocking,
        fork_and_connect,
        fill_up,
        without_rights,
    )
}


async def run(command: str, url: str, mode: str) -> None:
    running = COMMANDS[command](url, cast("Mode", mode))
    if running is not None:
        await running


if __name__ == "__main__":
    if sys.argv[1].endswith("_blocking") or sys.argv[1] == "fork_blocking":
        COMMANDS[sys.argv[1]](sys.argv[2], cast("Mode", sys.argv[3]))
    else:
        asyncio.run(run(*sys.argv[1:]))
