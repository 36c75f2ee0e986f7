"""A feed that is read through brokers which are killed has every version once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import Change, UnavailableError
from tests.chaos.fleet import Fleet, fleet, wait_until

pytestmark = pytest.mark.timeout(150)
KILLS = 2


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Fleet]:
    """Processes that end with the test."""
    with fleet(tmp_path) as started:
        yield started


class FeedReader(threading.Thread):
    """Follows the changes of a queue through its brokers, and resumes after every error."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.seen: list[Change] = []
        self.errors: list[Exception] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        """Read until it is over."""
        while not self.is_over.is_set():
            try:
                self._follow()
            except UnavailableError as error:
                self.errors.append(error)

    def _follow(self) -> None:
        with bucketq.connect_sync(self._url, mode="remote", timeout_s=20) as queue:
            since = self.seen[-1].version if self.seen else None
            for change in queue.changes(since):
                self.seen.append(change)
                if self.is_over.is_set():
                    return


def test_a_feed_has_every_version_once_while_brokers_are_killed(
    processes: Fleet, tmp_path: Path
) -> None:
    url = (tmp_path / "queue.json").as_uri()
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(history_retention_s=3600, spill_bytes=4000)
    brokers = [processes.serve(url) for _ in range(KILLS + 1)]
    reader = FeedReader(url)
    pushed = set[str]()
    with bucketq.connect_sync(url, mode="remote", timeout_s=60) as client:
        push_some(client, pushed)
        reader.start()
        for _ in range(KILLS):
            push_some(client, pushed)
            leader = max(brokers, key=lambda broker: max(broker.epochs, default=0))
            leader.kill()
            brokers.remove(leader)
            push_some(client, pushed)
        pushed.add(last := client.push("last", 0))
        wait_until(lambda: last in ids_of(reader.seen), 60, "until the feed has the last push")
        reader.is_over.set()
        end = client.push("end", 0)  # It stops at the next change, which may be another one.
        reader.join(60)
    assert not reader.is_alive()
    versions = [change.version for change in reader.seen]
    assert versions == [*range(versions[0], versions[0] + len(versions))]
    assert ids_of(reader.seen) - {end} == pushed


def ids_of(changes: list[Change]) -> set[str]:
    return {job.id for change in list(changes) for job in change.jobs if job.is_new}


def push_some(client: Any, pushed: set[str]) -> None:
    for number in range(40):
        pushed.add(client.push("mail", {"number": number, "text": "x" * 100}))
