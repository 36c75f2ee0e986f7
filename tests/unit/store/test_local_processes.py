"""What the file store promises when several processes write, and when they are killed.

The tests run in memory if there is a filesystem for that: what they show is atomicity, and
the speed of the disk adds nothing to it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

import bucketq
from bucketq.errors import UnavailableError
from bucketq.store import directories, owned_file
from bucketq.store.local import LocalStore
from tests.environ import ROOT, child_path
from tests.unit.store.writer import KEY, counter_body, counter_value, increment


@pytest.fixture
def folder() -> Iterator[Path]:
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory, prefix="bucketq-test-") as name:
        yield Path(name)


class Nursery:
    """A process that forks writers; see ``writer.py``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin: IO[str] = process.stdin
        self._stdout: IO[str] = process.stdout

    def start(self, command: str, folder: Path, number: int = 0) -> int:
        """Start a writer; return its process id."""
        self._stdin.write(f"{command} {folder} {number}\n")
        self._stdin.flush()
        return int(self.read())

    def read(self) -> str:
        return self._stdout.readline().strip()

    def read_until_ended(self) -> list[str]:
        lines = []
        while (line := self.read()) != "ended":
            assert line
            lines.append(line)
        return lines


@contextmanager
def nursery() -> Iterator[Nursery]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.unit.store.writer"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": child_path(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield Nursery(process)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # A writer that is stopped would never end.
            raise
        finally:
            assert process.stdin is not None
            process.stdin.close()


async def read_count(folder: Path) -> int:
    store = LocalStore(folder)
    try:
        return counter_value((await store.get(KEY)).body)
    finally:
        await store.close()


async def write_count(folder: Path, count: int) -> None:
    store = LocalStore(folder)
    await store.put(KEY, counter_body(count))
    await store.close()


async def replace_counts(folder: Path, times: int) -> int:
    """Count on by replacing the version that is there, as a queue does; return the last."""
    store = LocalStore(folder)
    for _ in range(times):
        count = await increment(store)
    await store.close()
    return count


def temp_names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(".bucketq.*.tmp")]


def spare_names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(".bucketq.*.spare")]


async def test_eight_processes_that_compare_and_set_lose_no_update(folder: Path) -> None:
    await write_count(folder, 0)
    with ExitStack() as stack:
        nurseries = [stack.enter_context(nursery()) for _ in range(8)]
        for one in nurseries:
            one.start("increment_times", folder, 50)
        for one in nurseries:
            assert one.read_until_ended() == []
    assert await read_count(folder) == 400
    assert temp_names(folder) == []


async def test_a_writer_killed_at_random_moments_loses_nothing_that_it_reported(
    folder: Path,
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    await write_count(folder, 0)
    reported = 0
    with nursery() as one:
        for _ in range(40):
            pid = one.start("increment_forever", folder)
            for _ in range(chance.randrange(1, 5)):
                reported = int(one.read())
            moment = time.perf_counter() + chance.random() / 500
            while time.perf_counter() < moment:
                pass
            os.kill(pid, signal.SIGKILL)
            reported = int([str(reported), *one.read_until_ended()][-1])
            found = await read_count(folder)
            assert reported <= found <= reported + 1, f"seed {seed}"
            reported = found
            assert len(temp_names(folder)) <= 1, f"seed {seed}"
    await write_count(folder, reported + 1)
    assert temp_names(folder) == []


@pytest.mark.parametrize("has_spare", [False, True], ids=["new file", "spare"])
async def test_a_writer_killed_at_any_system_call_leaves_the_old_version_or_the_new(
    folder: Path, has_spare: bool
) -> None:
    await write_count(folder, 0)
    outcomes = []
    with nursery() as one:
        for number in range(1, 150):
            if has_spare:
                await replace_counts(folder, 1)
            before = await read_count(folder)
            one.start("die_at_call", folder, number)
            has_survived = one.read_until_ended() == ["survived"]
            after = await read_count(folder)
            assert after - before in {0, 1}
            outcomes.append(after - before)
            assert len(spare_names(folder)) <= 2
            # Whatever it left, the next writers and readers can handle it.
            assert await replace_counts(folder, 3) == after + 3
            assert temp_names(folder) == []
            if not has_spare:
                for name in spare_names(folder):
                    (folder / name).unlink()
            if has_survived:
                break
    assert has_survived
    assert outcomes == sorted(outcomes)
    assert outcomes.count(0) > 10
    assert outcomes.count(1) > 3


async def test_a_slow_reader_never_sees_a_torn_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    take = owned_file.take_spare

    def noting_take(directory: int, path: Path, size_bytes: int) -> tuple[int, str] | None:
        taken.append(take(directory, path, size_bytes))
        return taken[-1]

    monkeypatch.setattr(owned_file, "take_spare", noting_take)
    await write_count(folder, 0)
    with ExitStack() as stack:
        nurseries = [stack.enter_context(nursery()) for _ in range(3)]
        for one in nurseries:
            one.start("read_slowly", folder, 120)
        reading = asyncio.gather(*(asyncio.to_thread(one.read_until_ended) for one in nurseries))
        while len(taken) < 200 or not reading.done():
            await replace_counts(folder, 20)
        assert await reading == [[], [], []]
    assert await read_count(folder) == len(taken)
    # Some readers were in the way of a spare, and most were not.
    assert 10 < len(taken) - taken.count(None) < len(taken) - 10


async def test_a_stopped_writer_blocks_no_other_and_is_refused_when_it_resumes(
    folder: Path,
) -> None:
    await write_count(folder, 0)
    await replace_counts(folder, 2)
    with nursery() as one:
        pid = one.start("stop_while_syncing", folder)
        try:
            assert one.read() == "stopped"
            async with asyncio.timeout(60):
                assert await replace_counts(folder, 5) == 7
            assert await read_count(folder) == 7
        finally:
            os.kill(pid, signal.SIGCONT)
        assert one.read_until_ended() == ["refused"]
    assert await read_count(folder) == 7
    assert temp_names(folder) == []


@pytest.mark.parametrize("how", [signal.SIGCONT, signal.SIGKILL])
async def test_a_writer_stopped_at_its_rename_blocks_writers_and_no_reader(
    folder: Path, how: signal.Signals
) -> None:
    """This is the limit of a lock: were it broken, the rename could still come."""
    await write_count(folder, 0)
    await replace_counts(folder, 2)
    with nursery() as one:
        pid = one.start("stop_while_renaming", folder)
        try:
            assert one.read() == "stopped"
            others = asyncio.create_task(replace_counts(folder, 5))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(others), 0.3)
            assert await read_count(folder) == 2
        finally:
            os.kill(pid, how)
        assert one.read_until_ended() == []
        async with asyncio.timeout(60):
            assert await others == (1_000_005 if how is signal.SIGCONT else 7)
    assert temp_names(folder) == []


GIVES_UP = """
import asyncio, sys
import bucketq

async def main():
    async with bucketq.connect(sys.argv[1], mode=sys.argv[2], timeout_s=1) as queue:
        await queue.stats()
        print("open", flush=True)
        sys.stdin.readline()
        try:
            await queue.push("index", {})
        except bucketq.UnavailableError as error:
            print("gave up", error, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("mode", ["direct", "embedded"])
async def test_a_process_that_gave_up_on_the_lock_of_a_stopped_one_can_exit(
    folder: Path, mode: str
) -> None:
    url = (folder / KEY).as_uri()
    async with bucketq.connect(url, mode="direct") as queue:
        await queue.push("index", {})
    with nursery() as one, waiting_process(url, mode) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        pid = one.start("stop_while_renaming", folder)
        try:
            assert one.read() == "stopped"
            reported, _ = process.communicate("\n", timeout=30)
        finally:
            os.kill(pid, signal.SIGKILL)
        one.read_until_ended()
    assert reported.startswith("gave up")
    assert process.returncode == 0


@contextmanager
def waiting_process(url: str, mode: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", GIVES_UP, url, mode],
        env={**os.environ, "PYTHONPATH": child_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_waiting_too_long_for_the_lock_is_an_error_that_names_its_holder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "_LONGEST_WAIT_S", 0.2)
    async with bucketq.connect((folder / KEY).as_uri(), mode="direct", timeout_s=2) as queue:
        await queue.push("index", {})
        with nursery() as one:
            pid = one.start("stop_while_renaming", folder)
            try:
                assert one.read() == "stopped"
                with pytest.raises(
                    UnavailableError, match=r"holds the lock .*/\.bucketq\.lock; .*kill"
                ):
                    await queue.push("index", {})
            finally:
                os.kill(pid, signal.SIGKILL)
            one.read_until_ended()
        await queue.push("index", {})
