"""Runs a job in a process that is there for it alone, to see whether it ends its process.

It is forked, so that it has the handlers that came with their code, and is quick to start. It is
used where a batch of jobs has ended the process that ran them, and nobody knows which one it was.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable

import msgspec

from bucketq.worker.reply import Reply, how_it_ended

_CHUNK_BYTES = 1 << 16
_LOOK_S = 0.2
"""How often it is seen whether the child lives whose pipe another process keeps open."""


def run_apart(run: Callable[[], Reply]) -> Reply:
    """Run something in a child of this process; its death is a failure like others."""
    inward, outward = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inward)
        _live(run, outward)
    os.close(outward)
    try:
        told, exitcode = _hear(child, inward)
    finally:
        os.close(inward)
    if exitcode != 0 or not told:
        return Reply("failed", text=how_it_ended(exitcode))
    return msgspec.json.decode(told, type=Reply)


def _hear(child: int, inward: int) -> tuple[bytearray, int]:
    """Read what a child says, until it ends; what it has started may hold its pipe for longer."""
    os.set_blocking(inward, False)
    told = bytearray()
    status: int | None = None
    is_open = True
    while status is None:
        if is_open:
            select.select([inward], [], [], _LOOK_S)
        # First, so that everything it has said is there to be read afterwards.
        ended, found = os.waitpid(child, os.WNOHANG if is_open else 0)
        status = found if ended else None
        try:
            while is_open:
                chunk = os.read(inward, _CHUNK_BYTES)
                told += chunk
                is_open = bool(chunk)
        except BlockingIOError:
            continue
    return told, os.waitstatus_to_exitcode(status)


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
