"""Runs programs with large payloads that kill themselves, and judges what they leave behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

from bucketq.archive.archive_layout import Layout
from bucketq.archive.reader import ArchiveReader
from bucketq.archive.side_folder import SideFolder
from bucketq.archive.upkeep import prune
from bucketq.clock import SystemClock
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import new_digest, refs_of
from bucketq.store.base import ObjectStore
from bucketq.store.url import open_store
from tests.integration.deep_lives import PATIENCE_S, DeepLives
from tests.integration.payload_program import MOST_VERSIONS, SETTINGS, open_large
from tests.integration.test_processes import is_alive, wait_until

_HOUR = timedelta(hours=1)


class PayloadLives(DeepLives):
    """Programs on one queue with large payloads, two at a time, of which each kills itself."""

    program = (sys.executable, "-m", "tests.integration.payload_program")
    settings = SETTINGS
    whens: Sequence[str] = ("before", "after", "during", "fetch")

    def repeat(self, chore: str, steps: int) -> int:
        """Let programs do a chore, each a few steps, until one ends by itself; return how many."""
        with self.programs() as start:
            for number in count(1):
                log = self._folder / f"{chore}-{number}"
                when = ("before", "after")[number % 2]
                pid = start(f"{self.url} {chore} {log} {steps + number // 2} {when}")
                wait_until(partial(_is_gone, pid), PATIENCE_S)
                if log.exists() and log.read_text():
                    return number
        raise AssertionError

    async def judge(self) -> None:
        """Check that no payload is lost, and that nothing is left that no job names."""
        location = open_store(self.url)
        store, key, clock = location.store, location.key, SystemClock()
        folder, layout = SideFolder.of(store, key, clock), Layout.of(store.url, key)
        async with open_large(store, key, self.url, "embedded") as queue:
            for number in range(MOST_VERSIONS + 1):
                await queue.configure(max_attempts=100 + number % 2)
            await queue.flush_archive()
            jobs = list((await queue.snapshot()).jobs)
            now = datetime.now(UTC)
            reader = ArchiveReader(store, layout)
            archived = [job async for job in reader.jobs(now - _HOUR, now + _HOUR)]
            tokens = [await self._token(folder, job) for job in (*jobs, *archived)]
            assert set(self.logged("pushed")) <= set(tokens), "an acknowledged push is lost"
            done = {await self._token(folder, job) for job in archived}
            assert set(self.logged("completed")) <= done, "an acknowledged completion is lost"
            named = {ref.object for job in (*jobs, *archived) for ref in refs_of(job)}
            await self._until_swept(store, folder, named)
            later = now + 2 * _HOUR
            await prune(store, layout, later, clock)
            live = {ref.object for job in jobs for ref in refs_of(job)}
            assert await self._found(folder, store) == live
        await store.close()

    async def _token(self, folder: SideFolder, job: JobRecord) -> str:
        """Read and check everything that a job names; return its token."""
        contents = []
        for ref in refs_of(job):
            parts = [await folder.read_part(ref.object, part) for part in range(ref.parts)]
            assert new_digest(b"".join(parts)).hexdigest() == ref.digest
            contents.append(b"".join(parts))
        return contents[0].decode().strip('"').rstrip(".")

    async def _until_swept(self, store: ObjectStore, folder: SideFolder, named: set[str]) -> None:
        """Wait until a sweep has deleted all others, and all markers."""
        for _ in range(200):
            found = await self._found(folder, store)
            objects = {name for name in found if "/pending/" not in name}
            assert named <= objects, "a payload was deleted too early"
            if found == named:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(found - named)

    async def _found(self, folder: SideFolder, store: ObjectStore) -> set[str]:
        root = folder.address.removeprefix(store.url.rstrip("/")).lstrip("/")
        keys = [info.key.removeprefix(root) async for info in store.list(root)]
        return {key.rpartition(".")[0] for key in keys}


def _is_gone(pid: int) -> bool:
    return not is_alive(pid)
