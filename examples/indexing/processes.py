"""The processes that the demo starts beside its own: a broker, and the web page."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Self
from urllib.error import URLError

import bucketq
from examples.indexing.console import say

_PATIENCE_S = 30.0


class Broker:
    """A broker in a separate process, as ``bucketq serve`` starts it."""

    def __init__(self, url: str, log: Path) -> None:
        """Start nothing yet."""
        self._url = url
        self._log = log
        self._epoch: int | None = None
        """The epoch in which it was killed."""
        self._is_replaced = False
        self.is_killed_half_way = False

    def __enter__(self) -> Self:
        """Start it, and wait until it serves."""
        # It exits by itself if this process is killed.
        self._process, line = _start(self._log, "serve", self._url, "--idle-exit", "60s")
        if not line:
            message = f"the broker did not start: {self._log.read_text('utf-8')}"
            raise RuntimeError(message)
        say("broker", f"process {self._process.pid} is {line}")
        return self

    def __exit__(self, *_: object) -> None:
        """End it, if it was not killed before."""
        _end(self._process)

    async def kill_at_half(self, covered: int, total: int) -> None:
        """Kill it when half of the segments are indexed, and report the next leader."""
        if self._epoch is None:
            if total and covered * 2 >= total:
                self._epoch = await self._leading_epoch()
                os.kill(self._process.pid, signal.SIGKILL)
                self.is_killed_half_way = covered < total
                what = f"the broker, with kill -9, when {covered} of {total} segments were indexed"
                say("killed", what)
        elif not self._is_replaced:
            epoch = await self._leading_epoch()
            self._is_replaced = epoch > self._epoch
            if self._is_replaced:
                say("went on", f"by itself, with a new broker in epoch {epoch}")

    async def _leading_epoch(self) -> int:
        async with bucketq.connect(self._url, mode="direct", create=False) as queue:
            leader = (await queue.stats()).broker
        return 0 if leader is None else leader.epoch


class WebPage:
    """The web page of the queue in a process of its own, as ``bucketq dashboard`` starts it."""

    def __init__(self, url: str, log: Path) -> None:
        """Start nothing yet."""
        self._url = url
        self._log = log
        self._address = ""

    def __enter__(self) -> Self:
        """Start it, and print its address; without its extra the demo goes on."""
        self._process, line = _start(self._log, "dashboard", self._url, "--listen", ":0")
        self._address = line.rpartition(" ")[2]
        if line:
            say("web page", f"{self._address} shows the queue until the end of the demo")
        else:
            say("left out", f"the web page: {self._log.read_text('utf-8').strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        _end(self._process)

    def problems(self) -> list[str]:
        """Return what is wrong with the page, if it was started."""
        if not self._address:
            return []
        try:
            with urllib.request.urlopen(self._address, timeout=_PATIENCE_S):
                return []
        except URLError as error:
            return [f"the web page at {self._address} does not answer: {error}"]


def _start(log: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    """Start a command of bucketq; return it with its first line, which is empty if it failed."""
    command = [sys.executable, "-m", "bucketq.cli", *words]
    with log.open("wb") as errors:
        # In a session of its own, so that it does not get Ctrl-C.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def _end(process: subprocess.Popen[str]) -> None:
    """End a process, if it has not ended before."""
    if process.poll() is None:
        process.terminate()
    process.wait(_PATIENCE_S)
    if process.stdout is not None:
        process.stdout.close()
