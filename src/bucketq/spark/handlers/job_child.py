"""Runs one job in a child of the process that runs a Spark task, so that it can die alone."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

import msgspec

from bucketq.worker.runners.reply import Reply, how_it_ended

_CHUNK_BYTES = 1 << 16
"""The size of a pipe's buffer on Linux."""
_POLL_S = 0.2
"""How often the child is checked if its pipe stays open, as a process that it started keeps it."""


def run_in_child(run: Callable[[], Reply]) -> Reply:
    """Run a job in a child of this process; if the child dies, the job has failed.

    The child is forked: it has handlers that were pickled with their code, and starts fast.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run_child(run, writer)
    os.close(writer)
    try:
        reply, exitcode = _read_reply(child, reader)
    finally:
        os.close(reader)
    if exitcode != 0 or not reply:
        return Reply("failed", text=how_it_ended(exitcode))
    return msgspec.json.decode(reply, type=Reply)


def _read_reply(child: int, reader: int) -> tuple[bytearray, int]:
    """Read the reply of a child until it ends; processes that it started may keep its pipe open."""
    os.set_blocking(reader, False)
    reply = bytearray()
    status: int | None = None
    is_open = True
    while status is None:
        if is_open:
            select.select([reader], [], [], _POLL_S)
        # Before reading, so that everything it wrote can be read afterwards.
        ended, found = os.waitpid(child, os.WNOHANG if is_open else 0)
        status = found if ended else None
        try:
            while is_open:
                chunk = os.read(reader, _CHUNK_BYTES)
                reply += chunk
                is_open = bool(chunk)
        except BlockingIOError:
            continue
    return reply, os.waitstatus_to_exitcode(status)


def _run_child(run: Callable[[], Reply], writer: int) -> None:
    """Run in the child. It never returns, because the frames above belong to the parent."""
    exitcode = 1
    try:
        reply = memoryview(msgspec.json.encode(run()))
        while reply:
            reply = reply[os.write(writer, reply) :]
        exitcode = 0
    finally:
        os._exit(exitcode)
