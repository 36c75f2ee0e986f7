"""``bucketq top``: queues and kinds in a live table, with keys."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import Annotated

from bucketq.cli.live.queue_meter import QueueMeter
from bucketq.cli.live.top_state import Order, TopState
from bucketq.cli.parameters import argument, option
from bucketq.cli.parsing import check_timeout, parse_duration
from bucketq.cli.queue_names import find_queues
from bucketq.cli.terminal.key_input import single_keys
from bucketq.cli.terminal.output import Output, counted
from bucketq.errors import BucketQError, InvalidRequestError, UnavailableError

_LEAST_S = 0.1
"""The shortest pause between two measurements: each is two requests."""
_DRAW_S = 1.0
"""How often the table is drawn although nothing was measured: ages and silence grow."""

Urls = Annotated[
    list[str],
    argument(
        "URL...",
        "Addresses of queues, or NAME=URL. An address that ends in a slash means all queues that "
        "are under it now.",
    ),
]


async def run(
    out: Output,
    *,
    url: Urls,
    every: Annotated[str, option("--every DURATION", "How often queues are asked.")] = "2s",
) -> None:
    """Show queues and kinds in a live table with keys.

    One queue is shown by its kinds, several as a list, in which enter opens one. Keys: up and down
    choose, s sorts, p pauses or resumes, r queues dead jobs again, enter shows details, ? help, q
    quits. Each change is confirmed with y, and is in the audit like that of any command.

    It asks for counts, workers and the oldest jobs of 20 kinds, so it stays quick however many jobs
    there are. It needs a terminal; `bucketq stats --watch` does not.

    Examples:
        bucketq top file:///srv/jobs/queue.json
        bucketq top jobs=s3://bucket/jobs.json mail=s3://bucket/mail.json --every 5s
        bucketq top s3://bucket/queues/
    """
    check_timeout(out.timeout_s)
    pause_s = parse_duration(every, "--every")
    if pause_s < _LEAST_S:
        raise InvalidRequestError(f"--every must be {_LEAST_S:g} seconds or more, got {every}")
    queues = await find_queues(url)
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    if out.json or is_dumb or not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "top needs a terminal that can be redrawn; use `bucketq stats --watch` elsewhere"
        raise InvalidRequestError(message)
    meters = [QueueMeter(name, address, out.timeout_s) for name, address in queues.items()]
    await TopScreen(meters, pause_s).show()


class TopScreen:
    """Draws the table, reads keys, and carries out what they ask for."""

    def __init__(self, meters: list[QueueMeter], pause_s: float) -> None:
        self._meters = {meter.name: meter for meter in meters}
        self._state = TopState(meters)
        self._pause_s = pause_s
        self._news = asyncio.Event()
        self._is_over = False
        self._orders = set[asyncio.Task[None]]()
        self._choose_details()

    async def show(self) -> None:
        """Show the table until the user quits. Raises the error of a queue that is the only one."""
        tasks = [
            asyncio.create_task(meter.follow(self._pause_s, self._news.set))
            for meter in self._meters.values()
        ]
        try:
            await self._news.wait()
            errors = [meter.error for meter in self._meters.values() if meter.error is not None]
            if len(errors) == len(self._meters) and not isinstance(errors[0], UnavailableError):
                raise errors[0]
            await self._draw_until_over()
        finally:
            for task in (*tasks, *self._orders):
                task.cancel()
            await asyncio.gather(*tasks, *self._orders, return_exceptions=True)

    async def _draw_until_over(self) -> None:
        from rich.console import Console
        from rich.live import Live

        from bucketq.cli.live.top_drawing import draw

        console = Console()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._quit)
        with (
            single_keys(self._press, self._quit),
            Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
        ):
            while not self._is_over:
                self._news.clear()
                now_s = loop.time()
                rows = self._state.rows(now_s)
                live.update(draw(self._state, rows, now_s, console.size.height), refresh=True)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), _DRAW_S)

    def _quit(self) -> None:
        self._is_over = True
        self._news.set()

    def _choose_details(self) -> None:
        """Ask for the ages of kinds only of the queue whose kinds are shown."""
        for meter in self._meters.values():
            meter.shows_kinds = meter.name == self._state.opened

    def _press(self, key: str) -> None:
        rows = self._state.rows(asyncio.get_running_loop().time())
        order = self._state.press(key, rows)
        self._choose_details()
        self._news.set()
        if order is None:
            return
        if order.verb == "quit":
            self._quit()
            return
        task = asyncio.create_task(self._carry_out(order))
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    async def _carry_out(self, order: Order) -> None:
        meter = self._meters[order.queue]
        what = order.kind or order.queue
        if (queue := meter.queue) is None:
            self._state.message = f"{order.queue} is not connected"
            self._news.set()
            return
        self._state.message = f"{order.verb} {what} ..."
        try:
            if order.verb == "retry":
                count = await queue.redrive(kinds=None if order.kind is None else [order.kind])
                self._state.message = f"{counted(count, 'dead job')} of {what} queued again"
            elif order.verb == "pause":
                await queue.pause(order.kind)
                self._state.message = f"{what} is paused"
            else:
                await queue.resume(order.kind)
                self._state.message = f"{what} is resumed"
            await meter.measure(queue)
        except BucketQError as error:
            self._state.message = str(error)
        self._news.set()
