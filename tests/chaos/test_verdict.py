"""The judge of a run notices what must not be: each test tells of a run that went wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import memory as memories
from tests.chaos.attempts import Attempts
from tests.chaos.diary import Diary, read_diary
from tests.chaos.fleet import ClientProcess, Fleet
from tests.chaos.verdict import Diaries, Found


def found(kind: str = "nap", **facts: Any) -> Found:
    whole: dict[str, Any] = {
        "kind": kind,
        "token": "t",
        "status": "done",
        "outcome": "completed",
        "attempt": 1,
        "failures": 0,
        "lost_leases": 0,
        "worker": "w1",
        "lease": "lease 1",
        "result": "w1/job/1",
    }
    return Found(**(whole | facts))


def begun(attempt: int) -> dict[str, Any]:
    return {"what": "begun", "job": "job", "attempt": attempt, "lease": f"lease {attempt}"}


def ran(attempt: int) -> dict[str, Any]:
    return {
        "what": "ran",
        "job": "job",
        "attempt": attempt,
        "result": f"w{attempt}/job/{attempt}",
    }


def told(end: str, attempt: int) -> dict[str, Any]:
    facts = {"job": "job", "attempt": attempt, "took_s": 0.1}
    return {"what": "log", "event": end, **facts}


def judged(job: Found, *diaries: list[dict[str, Any]]) -> tuple[list[str], int]:
    """What is wrong, and how many completions were stale."""
    problems: list[str] = []
    numbered = {f"w{number}": lines for number, lines in enumerate(diaries, start=1)}
    numbers = Attempts(Diaries(numbered), {"job": job}, problems.append).judge()
    return problems, numbers["stale completions"]


def test_a_job_that_one_worker_finished_is_well() -> None:
    assert judged(found(), [begun(1), ran(1), told("done", 1)]) == ([], 0)


def test_a_job_that_was_lost_and_finished_by_another_is_well() -> None:
    job = found(attempt=2, lost_leases=1, worker="w2", lease="lease 2", result="w2/job/2")
    lines = [begun(1), ran(1), told("lost", 1)], [begun(2), ran(2), told("done", 2)]
    assert judged(job, *lines) == ([], 0)


def test_a_result_of_an_attempt_that_was_replaced_is_stale() -> None:
    job = found(attempt=2, worker="w2", lease="lease 2", result="w1/job/1")
    problems, stale = judged(job, [begun(1), ran(1)], [begun(2), ran(2)])
    assert problems
    assert stale == 1


def test_a_job_that_was_handed_out_after_its_end_is_stale() -> None:
    problems, stale = judged(found(), [begun(1), ran(1)], [begun(2)])
    assert problems
    assert stale == 1


@pytest.mark.parametrize(
    ("job", "diary"),
    [
        (found(), [begun(1), begun(1), ran(1)]),
        (found("give-up"), [begun(1), ran(1)]),
        (found("fail", outcome="dead", failures=2), [begun(1)]),
        (found(), [begun(1), ran(1), told("lost", 1)]),
        (found(), [begun(1), ran(1), told("released", 1)]),
        (found(outcome="dead"), [begun(1), ran(1), told("done", 1)]),
        (found(lease="another"), [begun(1), ran(1)]),
    ],
    ids=["ran twice", "not dead", "dead early", "not lost", "not released", "not done", "lease"],
)
def test_what_was_told_and_is_not_so_is_noticed(job: Found, diary: list[dict[str, Any]]) -> None:
    assert judged(job, diary)[0]


@pytest.mark.parametrize(("growth_mib", "is_too_much"), [(5, False), (60, True)])
def test_memory_that_grows_is_noticed(growth_mib: int, is_too_much: bool) -> None:
    memory = memories.Memory()
    memory.note("workers", "w1", os.getpid(), 0.0)
    ((key, samples),) = memory._samples.items()
    samples[:] = [(0.0, size := 60 << 20)]  # Whatever this process itself needs.
    for second in range(1, 60):
        share = second / 60
        memory._samples[key].append((float(second), size + int(share * (growth_mib << 20))))
    (growth,) = memory.growths()
    assert growth.is_too_much is is_too_much


def test_a_line_that_its_writer_did_not_finish_was_not_said(tmp_path: Path) -> None:
    Diary(tmp_path / "diary").note("said")
    with (tmp_path / "diary").open("a") as file:
        file.write('{"what": "half')
    assert [line["what"] for line in read_diary(tmp_path / "diary")] == ["said"]


ORPHAN = """Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main
    exitcode = _main(fd, parent_sentinel)
               ^^^^^^^^^^^^^^^^^^^^^^^^^^
EOFError: Ran out of input
"""


@pytest.mark.parametrize("is_killed", [True, False])
def test_only_a_killed_worker_leaves_a_process_half_started(
    tmp_path: Path, *, is_killed: bool
) -> None:
    fleet = Fleet(tmp_path)
    client = ClientProcess(os.getpid(), 7, tmp_path / "client-7-0")
    client.is_killed = is_killed
    fleet.clients.append(client)
    said = tmp_path / "client-7-0.stderr"
    said.write_text(ORPHAN)
    assert bool(fleet.complaints()) is not is_killed
    said.write_text(f"{ORPHAN}something else\n")
    assert "something else" in fleet.complaints()
