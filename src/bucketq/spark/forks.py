"""Runs a job in a process that is there for it alone, to see whether it ends its process.

It is forked, so that it has the handlers that came with their code, and is quick to start. It is
used where a batch of jobs has ended the process that ran them, and nobody knows which one it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from bucketq.worker.reply import Reply, how_it_ended

_CHUNK_BYTES = 1 << 16


def run_apart(run: Callable[[], Reply]) -> Reply:
    """Run something in a child of this process; its death is a failure like others."""
    inward, outward = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inward)
        _live(run, outward)
    os.close(outward)
    told = bytearray()
    while chunk := os.read(inward, _CHUNK_BYTES):
        told += chunk
    os.close(inward)
    _, status = os.waitpid(child, 0)
    exitcode = os.waitstatus_to_exitcode(status)
    if exitcode != 0 or not told:
        return Reply("failed", text=how_it_ended(exitcode))
    return msgspec.json.decode(told, type=Reply)


def _live(run: Callable[[], Reply], outward: int) -> None:
    """What happens in the child. It never returns: what is above belongs to the parent."""
    exitcode = 1
    try:
        told = memoryview(msgspec.json.encode(run()))
        while told:
            told = told[os.write(outward, told) :]
        exitcode = 0
    finally:
        os._exit(exitcode)
