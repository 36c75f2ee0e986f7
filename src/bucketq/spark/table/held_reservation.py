"""A reservation that a task of Spark shares with others, renewed while the task runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from threading import Thread
from types import TracebackType
from typing import Self

from bucketq.clock import SystemClock
from bucketq.commit.bulk_write import BulkWrite, Reservation
from bucketq.spark.queue_access import QueueAccess, opened_store


@asynccontextmanager
async def opened_bulk(access: QueueAccess) -> AsyncIterator[BulkWrite]:
    """Open a queue for a bulk write, beside a broker if it has one."""
    async with opened_store(access.url) as location:
        bulk = BulkWrite(
            location.store,
            location.key,
            location.url,
            SystemClock(),
            timeout_s=access.timeout_s,
        )
        async with bulk:
            yield bulk


class HeldReservation:
    """Makes or joins a reservation, and renews it in a thread of its own until the end.

    In a thread, because a task blocks while Spark computes its next rows, which may take hours. The
    thread does not keep the process alive.
    """

    def __init__(self, access: QueueAccess, position: tuple[str, int, int, str]) -> None:
        """Reserve for a writer, a batch and a part, under a name that the tasks share."""
        self._access = access
        self._position = position
        self._reserved: Future[Reservation | None] = Future()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = Thread(target=self._run, name="bucketq-reservation", daemon=True)

    def __enter__(self) -> Self:
        """Begin to reserve; meanwhile a task can encode rows."""
        self._thread.start()
        return self

    def get(self) -> Reservation | None:
        """Wait for the reservation and return it; None: the position was published before.

        Raises: as ``BulkWrite.reserve``.
        """
        return self._reserved.result()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop renewing. The reservation stays, for the commit of the driver."""
        with suppress(RuntimeError):  # Its loop has ended, because the queue could not be closed.
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._hold())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            if not self._reserved.done():
                self._reserved.set_exception(error)
        finally:
            self._loop.close()

    async def _hold(self) -> None:
        async with opened_bulk(self._access) as bulk:
            writer, batch, part, name = self._position
            self._reserved.set_result(await bulk.reserve(writer, batch, part, name=name))
            await self._end.wait()
