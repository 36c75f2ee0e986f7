"""When a process imports the cloud client, and how such a process exits."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.servers.server import ENVIRON
from tests.servers.wire import answer
from tests.unit.store.scripted import Scripted

KEY = "queue.json"


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, **ENVIRON, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )


def test_the_client_is_not_imported_before_a_cloud_address_is_opened() -> None:
    done = run_python(
        "import sys, bucketq; bucketq.connect('memory://'); assert 'obstore' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_without_the_client_an_error_says_how_to_install_it() -> None:
    done = run_python(
        "import sys; sys.modules['obstore'] = None\n"
        "import bucketq\n"
        "try: bucketq.connect('s3://bucket/queue.json')\n"
        "except bucketq.InvalidRequestError as error: print(error)\n"
    )
    assert 'pip install "bucketq[cloud]"' in done.stdout, done.stderr


BUSY = """
import asyncio
from bucketq.store.url import open_store

async def main():
    store = open_store(URL).store
    await asyncio.gather(*(store.put(f"key-{number}", b"body") for number in range(30)))

asyncio.run(main())
"""


def test_a_process_ends_cleanly_right_after_its_last_request() -> None:
    """Without the pause at the exit about one such process in ten is aborted."""
    with Scripted(answer(200, etag='"new"')) as server:
        url = f"s3://jobs/{KEY}?endpoint=http://127.0.0.1:{server.port}"
        for _ in range(5):
            done = run_python(f"URL = {url!r}\n{BUSY}")
            assert done.returncode == 0, done.stderr


def test_a_process_exits_cleanly_while_a_thread_still_sends_requests() -> None:
    """A blocking queue that was not closed still runs in its own thread."""
    code = """
import asyncio, threading, time
from bucketq.store.url import open_store

async def ask():
    store = open_store(URL).store
    while True:
        await asyncio.gather(*(store.put(f"key-{number}", b"body") for number in range(5)))

threading.Thread(target=lambda: asyncio.run(ask()), daemon=True).start()
time.sleep(0.3)
"""
    with Scripted(answer(200, etag='"new"')) as server:
        url = f"s3://jobs/{KEY}?endpoint=http://127.0.0.1:{server.port}"
        for _ in range(3):
            done = run_python(f"URL = {url!r}\n{code}")
            assert done.returncode == 0, done.stderr
        assert len(server.asked) > 10


FORKED = """
import asyncio, os, sys, time
from bucketq.errors import BucketQError
from bucketq.store.url import open_store

async def ask(store):
    try:
        await store.get("queue.json")
    except BucketQError as error:
        return f"{type(error).__name__}: {error}"

def in_child(act):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        begun = time.monotonic()
        try:
            print(act())
        except BucketQError as error:
            print(f"{type(error).__name__}: {error}")
        print("at once" if time.monotonic() - begun < 30 else "late", flush=True)
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
"""


def refusing_url() -> str:
    """An address without a listener."""
    with Scripted(answer(200)) as server:
        return f"s3://jobs/{KEY}?endpoint=http://127.0.0.1:{server.port}&timeout_s=90"


def test_a_child_of_a_process_that_used_the_client_is_refused_at_once() -> None:
    done = run_python(
        f"URL = {refusing_url()!r}\n{FORKED}\n"
        "store = open_store(URL).store\n"
        "asyncio.run(ask(store))\n"
        "print(os.getpid())\n"
        "in_child(lambda: open_store(URL))\n"
        "in_child(lambda: asyncio.run(ask(store)))\n"
    )
    assert done.returncode == 0, done.stderr
    pid, *lines = done.stdout.splitlines()
    refusal = (
        f"ClosedError: object stores were used in process {pid} before the fork, and their client "
        "does not survive it: start workers with spawn or forkserver, or connect for the first "
        "time in the child"
    )
    assert lines == [refusal, "at once", refusal, "at once"]


def test_a_child_may_be_the_first_to_use_the_client_and_its_parent_the_next() -> None:
    done = run_python(
        f"URL = {refusing_url()!r}\n{FORKED}\n"
        "store = open_store(URL).store\n"
        "in_child(lambda: asyncio.run(ask(store)))\n"
        "in_child(lambda: asyncio.run(ask(open_store(URL).store)))\n"
        "print(asyncio.run(ask(store)))\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ConnectionRefused") == 3, done.stdout
    assert done.stdout.count("at once") == 2, done.stdout
