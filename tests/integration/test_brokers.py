"""Real brokers and real clients on one file: started, stopped, killed, frozen, misled."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq.client.blocking import UnopenedBlockingQueue
from bucketq.codec.heading import read_heading
from bucketq.model.records import BrokerRecord
from tests.chaos.diary import read_diary
from tests.chaos.fleet import BrokerProcess, ClientProcess, Fleet, fleet, wait_until
from tests.servers.process import HOST

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory in memory where there is one: what is shown here is not the disk's doing."""
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory, prefix="bucketq-test-") as name:
        yield Path(name)


@pytest.fixture
def processes(folder: Path) -> Iterator[Fleet]:
    """Processes that end with the test."""
    with fleet(folder) as started:
        yield started
    assert started.complaints() == ""


@pytest.fixture
def url(folder: Path) -> str:
    """A queue that is there, and empty."""
    address = (folder / "queue.json").as_uri()
    with bucketq.connect_sync(address, mode="direct"):
        return address


def head(url: str) -> BrokerRecord | None:
    """The broker that the object names, if any ever was."""
    return read_heading(Path(url.removeprefix("file://")).read_bytes(), url).broker


def recorded(url: str) -> BrokerRecord:
    """The broker that the object names."""
    broker = head(url)
    assert broker is not None
    return broker


def remote(url: str) -> UnopenedBlockingQueue[Any]:
    """A client that goes to a broker or nowhere."""
    return bucketq.connect_sync(url, mode="remote", timeout_s=30)


def freeze(one: BrokerProcess | ClientProcess, folder: Path) -> None:
    """Stop a process, but not in the moment in which it holds the lock of the queue's file.

    No other writer gets on then, and no broker either: that is a limit of file locks
    (``docs/guides/storage.md``), and has a test of its own beside those of the file store.
    """

    def is_frozen_without_the_lock() -> bool:
        one.send(signal.SIGSTOP)
        if sys.platform != "linux":
            return True  # Nobody tells who holds a lock.
        wait_until(lambda: is_frozen(one.pid), 10, "until all its threads stood still")
        if not holds_lock(one.pid, folder / ".bucketq.lock"):
            return True
        one.send(signal.SIGCONT)
        return False

    wait_until(is_frozen_without_the_lock, 20, "until it was frozen without the lock")


def is_frozen(pid: int) -> bool:
    """Whether the kernel says of each thread that it is stopped."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all("State:\tT" in (task / "status").read_text() for task in tasks)


def holds_lock(pid: int, path: Path) -> bool:
    """Whether a process holds a lock on a file, as the kernel tells; who waits has an arrow."""
    inode = path.stat().st_ino
    return any(
        words[1] != "->" and int(words[4]) == pid and words[5].endswith(f":{inode}")
        for words in map(str.split, Path("/proc/locks").read_text().splitlines())
    )


def leading(processes: Fleet, url: str, *words: str) -> BrokerProcess:
    """A broker that leads."""
    broker = processes.serve(url, *words)
    broker.wait_until_leading()
    return broker


def load(processes: Fleet, url: str, count: int = 3, **wish: Any) -> None:
    """Clients that push without a pause, each of which has been answered."""
    wish = {"mode": "auto", "launch": "never", "pause_s": 0.005, **wish}
    for number in range(count):
        processes.client(number, url, "push_one", number, **wish)
    until_pushed(processes, time.monotonic())


def until_pushed(processes: Fleet, since: float) -> None:
    """Wait until every client that lives has been promised a push that it began after a moment."""

    def all_have() -> bool:
        return all(
            any(line["what"] == "pushed" and line["began"] > since for line in client.lines())
            for client in processes.clients
            if client.is_alive
        )

    wait_until(all_have, 40, "until all clients were answered")


def check_promises(processes: Fleet, url: str) -> None:
    """End the clients, and see that what they were promised is there, once."""
    for client in processes.clients:
        client.send(signal.SIGTERM)
    for client in processes.clients:
        client.wait(30)
    lines = [line for client in processes.clients for line in read_diary(client.diary)]
    assert [line for line in lines if line["what"] in {"crashed", "unknown"}] == []
    promised = {
        job: token for line in lines if line["what"] == "pushed" for job, token in line["jobs"]
    }
    with bucketq.connect_sync(url, mode="direct") as queue:
        found = [(job.id, job.payload) for job in queue.jobs(limit=10_000).jobs]
    assert len(promised) > 3
    assert dict(found) == promised
    assert len(found) == len(promised)


@pytest.mark.parametrize(
    "how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)]
)
def test_a_broker_that_is_told_to_stop_settles_what_has_come(
    processes: Fleet, url: str, how: signal.Signals
) -> None:
    broker = leading(processes, url)
    load(processes, url)
    assert recorded(url).address == broker.address
    broker.send(how)
    assert broker.wait(30) == 0
    assert recorded(url).address == ""
    assert recorded(url).epoch == 1
    assert "Traceback" not in broker.text()
    until_pushed(processes, time.monotonic())
    check_promises(processes, url)


def test_a_broker_that_is_killed_under_load_loses_nothing(processes: Fleet, url: str) -> None:
    broker = leading(processes, url)
    load(processes, url)
    broker.kill()
    until_pushed(processes, time.monotonic())
    check_promises(processes, url)


def test_a_second_broker_stands_by_and_takes_over(processes: Fleet, url: str) -> None:
    first = leading(processes, url)
    second = processes.serve(url)
    second.wait_until_serving()
    load(processes, url, mode="remote")
    assert (first.epochs, second.epochs) == ([1], [])
    first.kill()
    until_pushed(processes, time.monotonic())
    assert second.epochs == [2]
    assert recorded(url).address == second.address
    check_promises(processes, url)
    # Whoever comes back finds that somebody leads, and stands by.
    third = processes.serve(url)
    third.wait_until_serving()
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    third.wait_until_leading(3)


def test_a_broker_that_was_frozen_steps_down_and_harms_nobody(
    processes: Fleet, url: str, folder: Path
) -> None:
    first = leading(processes, url)
    second = processes.serve(url)
    second.wait_until_serving()
    with remote(url) as queue:
        queue.push("slow", "work")
        (job,) = queue.claim("slow")
        load(processes, url, mode="remote")
        freeze(first, folder)
        second.wait_until_leading(2)
        until_pushed(processes, time.monotonic())
        assert [pulse.held for pulse in queue.heartbeat(job)] == [True]
        first.send(signal.SIGCONT)
        wait_until(lambda: "not leading" in first.text(), 20, "until it stepped down")
        until_pushed(processes, time.monotonic())
        queue.complete(job, "done")
        queue.flush_archive()
    assert recorded(url).epoch == 2
    assert recorded(url).address == second.address
    check_promises(processes, url)
    # It is fit to lead again.
    second.kill()
    first.wait_until_leading(3)


def test_a_broker_with_takeover_does_not_stand_by(processes: Fleet, url: str) -> None:
    first = leading(processes, url)
    load(processes, url, mode="remote")
    second = processes.serve(url, "--takeover")
    second.wait_until_leading(2)
    wait_until(lambda: "not leading" in first.text(), 20, "until it stepped down")
    until_pushed(processes, time.monotonic())
    assert recorded(url).address == second.address
    check_promises(processes, url)
    assert (first.epochs, second.epochs) == ([1], [2])


def test_one_process_serves_two_queues_and_mixes_nothing_up(
    processes: Fleet, url: str, folder: Path
) -> None:
    (folder / "other").mkdir()
    other = (folder / "other" / "queue.json").as_uri()
    broker = processes.serve(f"one={url}", f"two={other}")
    wait_until(lambda: len(broker.epochs) == 2, 20, broker.text())
    broker.wait_until_serving()  # It says so a moment later.
    assert recorded(url).address == recorded(other).address == broker.address
    with remote(url) as first, remote(other) as second:
        first.push("mail", "for one")
        second.push("mail", "for two")
        assert [job.payload for job in first.jobs().jobs] == ["for one"]
        assert [job.payload for job in second.jobs().jobs] == ["for two"]
    with remote(f"bucketq://{broker.address}/two") as queue:
        assert [job.payload for job in queue.jobs().jobs] == ["for two"]
    with pytest.raises(bucketq.QueueNotFoundError, match="one, two"):
        remote(f"bucketq://{broker.address}/three").__enter__()
    broker.send(signal.SIGTERM)
    assert broker.wait() == 0
    assert recorded(url).address == recorded(other).address == ""


def test_clients_without_the_object_follow_the_leader(processes: Fleet, url: str) -> None:
    first = leading(processes, f"jobs={url}")
    second = processes.serve(f"jobs={url}")
    second.wait_until_serving()
    # Who leads is told by whoever is asked.
    with remote(f"bucketq://{second.address}/jobs") as queue:
        queue.push("mail", "by way of the other")
    load(processes, f"bucketq://{first.address},{second.address}/jobs")
    first.kill()
    second.wait_until_leading(2)
    until_pushed(processes, time.monotonic())
    with remote(url) as queue:
        queue.complete(queue.claim()[0])
        queue.flush_archive()
    check_promises(processes, url)


def test_an_idle_broker_ends_and_clears_its_address(processes: Fleet, url: str) -> None:
    broker = leading(processes, url, "--idle-exit", "2s")
    with remote(url) as queue:
        queue.push("mail", "one")
        with pytest.raises(TimeoutError):
            # Somebody is connected, though he does nothing.
            _wait_for_exit(broker, 3.5)
    assert broker.wait(20) == 0
    assert recorded(url).address == ""


def _wait_for_exit(broker: BrokerProcess, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while broker.returncode is None:
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.05)


def test_a_spawned_broker_serves_others_and_outlives_whoever_started_it(
    processes: Fleet, url: str
) -> None:
    starter = processes.client(0, url, "push_one", 0, launch="spawn")
    until_pushed(processes, time.monotonic())
    (spawned,) = [line for line in processes.orphans() if " serve " in line]
    pid = int(spawned.split(":")[0])
    wait_until(lambda: head(url), 20, "until the spawned broker led")
    address = recorded(url).address
    try:
        assert "--idle-exit 60" in spawned
        starter.send(signal.SIGKILL)
        starter.wait(10)
        processes.client(1, url, "push_one", 1, launch="spawn")
        processes.client(2, url, "push_one", 2, mode="remote")
        until_pushed(processes, time.monotonic())
        assert (recorded(url).epoch, recorded(url).address) == (1, address)
        assert len([line for line in processes.orphans() if " serve " in line]) == 1
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: recorded(url).address != address, 30, "until it was gone")


def test_a_frozen_client_that_leads_does_not_hold_up_the_others(
    processes: Fleet, url: str, folder: Path
) -> None:
    """Whoever blocks its event loop, or sits in a debugger, is a broker that does not answer."""
    first = processes.client(0, url, "push_one", 0, launch="inside")
    until_pushed(processes, time.monotonic())
    assert recorded(url).epoch == 1
    others = [
        processes.client(number, url, "push_one", number, launch="inside") for number in (1, 2)
    ]
    until_pushed(processes, time.monotonic())
    try:
        freeze(first, folder)
        frozen_at = time.monotonic()
        for other in others:
            wait_until(
                lambda: any(
                    line["what"] == "pushed" and line["began"] > frozen_at
                    for line in other.lines()  # noqa: B023
                ),
                30,
                "until the others went on",
            )
    finally:
        first.send(signal.SIGCONT)
    until_pushed(processes, time.monotonic())
    check_promises(processes, url)


def test_a_port_that_is_taken_is_told_in_a_sentence(processes: Fleet, url: str) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        address = f"{HOST}:{taken.getsockname()[1]}"
        done = processes.command("serve", url, "--listen", address)
    assert done.returncode == 2
    assert done.stderr == f"bucketq: cannot listen at {address}: Address already in use\n"
    assert head(url) is None


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_broker_whose_object_is_deleted_stops_and_says_so(
    processes: Fleet, url: str, folder: Path, is_busy: bool
) -> None:
    broker = leading(processes, url)
    with remote(url) as queue:
        queue.push("mail", "one")
        (folder / "queue.json").unlink()
        if is_busy:
            with pytest.raises(bucketq.SupersededError, match="deleted"):
                queue.push("mail", "two")
    assert broker.wait(20) == 5
    assert re.search(r"was deleted while it was in use.*`bucketq restore`", broker.text())
    assert not (folder / "queue.json").exists()


def test_a_broker_does_not_touch_an_object_that_cannot_be_trusted(
    processes: Fleet, url: str, folder: Path
) -> None:
    path = folder / "queue.json"
    broker = leading(processes, url)
    with remote(url) as queue:
        queue.push("mail", "one")
    broken = path.read_bytes().replace(b"mail", b"male")
    path.write_bytes(broken)
    assert broker.wait(20) == 6
    assert "checksum" in broker.text()
    done = processes.command("serve", url)
    assert done.returncode == 6
    assert "checksum" in done.stderr
    assert path.read_bytes() == broken
