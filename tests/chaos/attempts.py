"""What workers did, attempt by attempt, compared with the jobs that are there in the end.

A result names the attempt that it came from, so a completion under an old lease shows: the archived
job then bears a result that is not of its last attempt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.chaos.handlers import KINDS

if TYPE_CHECKING:
    from tests.chaos.verdict import Diaries, Found

Say = Callable[[str], None]
_GIVEN_UP = {"released", "retried"}
_MOST_TOLD = 5


class Attempts:
    """The attempts of one run."""

    def __init__(self, diaries: Diaries, found: dict[str, Found], say: Say) -> None:
        self._diaries = diaries
        self._found = found
        self._say = say
        self._told: Counter[str] = Counter()
        self.stale = 0
        """Completions that took effect though a later attempt had been handed out."""

    def judge(self) -> dict[str, int]:
        """Look at everything; returns what there is to count."""
        self._judge_outcomes()
        self._judge_runs()
        self._judge_results()
        self._judge_ends()
        jobs = self._found.values()
        begun = {line["job"] for line in self._diaries.of("begun")}
        return {
            "jobs run": len(begun),
            "attempts": sum(job.attempt for job in jobs),
            "retried": sum(job.failures for job in jobs if job.outcome == "completed"),
            "dead": sum(job.outcome == "dead" for job in jobs),
            "lost leases": sum(job.lost_leases for job in jobs),
            "stale completions": self.stale,
        }

    def _judge_outcomes(self) -> None:
        """Every job ended as its kind must, and none that may be tried again was given up."""
        for name, job in self._found.items():
            kind = KINDS[job.kind]
            if job.outcome != kind.outcome:
                self._complain("outcome", f"job {name} is to be {kind.outcome}, and is {job}")
            elif kind.limit and job.failures + job.lost_leases < kind.limit:
                self._complain("limit", f"job {name} was given up too early: {job}")

    def _judge_runs(self) -> None:
        """No attempt runs twice, and none after the one that is archived."""
        runs = Counter((line["job"], line["attempt"]) for line in self._diaries.of("begun"))
        for (name, attempt), count in runs.items():
            if count > 1:
                self._complain("twice", f"attempt {attempt} of job {name} ran {count} times")
        latest: dict[str, int] = defaultdict(int)
        for name, attempt in runs:
            latest[name] = max(latest[name], attempt)
        for name, attempt in latest.items():
            job = self._found.get(name)
            if job is not None and attempt > job.attempt:
                self.stale += 1
                self._complain("later", f"attempt {attempt} of job {name} ran, and there is {job}")
        for lines in self._diaries.each():
            seen: dict[str, int] = {}
            for line in lines:
                if line["what"] != "begun":
                    continue
                before = seen.get(line["job"], 0)
                if line["attempt"] <= before:
                    self._complain("order", f"one worker ran attempt {before}, then {line}")
                seen[line["job"]] = line["attempt"]

    def _judge_results(self) -> None:
        """The result of a job is that of its last attempt, under the lease of that attempt."""
        leases = {
            (line["job"], line["attempt"]): line["lease"] for line in self._diaries.of("begun")
        }
        results = {
            (line["job"], line["attempt"]): line["result"] for line in self._diaries.of("ran")
        }
        for name, job in self._found.items():
            if job.outcome != "completed":
                continue
            last = (name, job.attempt)
            is_last = job.result == results.get(last) == f"{job.worker}/{name}/{job.attempt}"
            if not is_last or job.lease != leases.get(last):
                self.stale += 1
                said = [results.get(last), leases.get(last)]
                self._complain("stale", f"job {name} is {job}, and its last attempt said {said}")

    def _judge_ends(self) -> None:
        """What a worker was told of an attempt is what became of it."""
        for line in self._diaries.of("log"):
            if "took_s" not in line:
                continue
            name, attempt, end = line["job"], line["attempt"], line["event"]
            job = self._found.get(name)
            if job is None:
                self._complain("gone", f"{end} was acknowledged, and the job is lost: {line}")
                continue
            is_this = job.attempt == attempt and job.outcome == "completed"
            if end == "done" and not is_this:
                self._complain("undone", f"{line} was acknowledged, and there is {job}")
            elif end == "lost" and is_this:
                self._complain("not lost", f"{line}, and yet it took effect: {job}")
            elif end == "dead" and (job.attempt, job.outcome) != (attempt, "dead"):
                self._complain("undead", f"{line} was acknowledged, and there is {job}")
            elif end in _GIVEN_UP and job.attempt <= attempt:
                self._complain("given up", f"{line} was acknowledged, and there is {job}")

    def _complain(self, sort: str, text: str) -> None:
        """Say what is wrong; of each sort only the first few are worth reading."""
        self._told[sort] += 1
        if self._told[sort] <= _MOST_TOLD:
            self._say(text)
        elif self._told[sort] == _MOST_TOLD + 1:
            self._say(f"and more like that: {sort}")
