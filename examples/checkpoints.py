"""A long job that resumes where its last attempt stopped.

    bucketq push file:///tmp/jobs/queue.json primes '{"below": 2000000, "step": 10000}'
    bucketq work examples/checkpoints.py --url file:///tmp/jobs/queue.json

Kill the worker with ``kill -9`` and start it again: when the lease has expired, the next attempt
begins at the last checkpoint. Checkpoints are files, in CHECKPOINTS or the current folder.

A worker that was only frozen may wake up and continue while another has the job. So every attempt
writes a file of its own, and reads those of all attempts before it: an older attempt cannot
overwrite what a newer one has written, with no lock. The same works with objects in a bucket. The
files are left behind; delete old ones by their age, as a lifecycle rule of a bucket does.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import msgspec

import bucketq

worker = bucketq.Worker()


class Range(msgspec.Struct):
    """The payload: the numbers in which to count primes."""

    below: int
    step: int = 10_000


class Progress(msgspec.Struct):
    """How far a job has come."""

    next: int = 0
    found: int = 0


class Checkpoints:
    """The checkpoints of one job, as one of its attempts sees them."""

    def __init__(self, folder: Path, job: str, attempt: int) -> None:
        """Open the files of a job."""
        self._folder = folder
        self._job = quote(job, safe="")  # The producer may have chosen the id.
        self._attempt = attempt

    def latest(self) -> Progress:
        """Return what the newest attempt before this one has written, or the beginning."""
        for attempt in range(self._attempt - 1, 0, -1):
            path = self._path(attempt)
            if path.exists():
                return msgspec.json.decode(path.read_bytes(), type=Progress)
        return Progress()

    def save(self, progress: Progress) -> None:
        """Write the progress of this attempt; a reader sees all of it or the file before it."""
        path = self._path(self._attempt)
        unfinished = path.with_suffix(".new")
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(progress))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)

    def _path(self, attempt: int) -> Path:
        return self._folder / f"{self._job}.{attempt}.json"


@worker.handler("primes")
def count(numbers: Range, context: bucketq.Context) -> dict[str, int]:
    """Count primes, step by step."""
    folder = Path(os.environ.get("CHECKPOINTS", "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints = Checkpoints(folder, context.job.id, context.attempt)
    progress = checkpoints.latest()
    # At once, so that an attempt that ends before its first step loses nothing.
    checkpoints.save(progress)
    print(f"attempt {context.attempt} begins at {progress.next}", flush=True)
    while progress.next < numbers.below:
        context.raise_if_cancelled()
        end = min(progress.next + numbers.step, numbers.below)
        found = sum(is_prime(n) for n in range(progress.next, end))
        progress = Progress(end, progress.found + found)
        checkpoints.save(progress)
        print(f"attempt {context.attempt} is at {end}", flush=True)
    return {"primes": progress.found}


def is_prime(n: int) -> bool:
    """Return whether a number is prime; slowly, because this is an example of a long job."""
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))


if __name__ == "__main__":
    worker.run_sync()
