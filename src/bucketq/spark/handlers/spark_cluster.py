"""Spark itself, as the runner of handlers needs it: run a batch, end a batch, see that it is there.

It works on a session of this process and on one over Spark Connect. Everything blocks, and may be
called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, UnavailableError
from bucketq.spark.handlers.batch_runner import BatchFailed
from bucketq.spark.handlers.executor_task import Care, Orders, Outcome, run_part, try_part
from bucketq.spark.registration import is_remote, settle_python
from bucketq.spark.session.command_session import is_gone, reason_of
from bucketq.spark.session.worker_python import trouble_with_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = "n int, body binary"
_SCHEMA = pa.schema([("n", pa.int32()), ("body", pa.binary())])
_MOST_PARTS = 4096
_LONGEST_REASON = 300
_decode = msgspec.json.Decoder(Outcome).decode


class SparkCluster:
    """A Spark session that runs handlers."""

    def __init__(self, spark: SparkSession, orders: Orders) -> None:
        """Run jobs as the orders say."""
        self._spark: Any = spark
        self._orders = orders
        self._context: Any = None if is_remote(spark) else self._spark.sparkContext
        settle_python(spark)

    @property
    def parts(self) -> int:
        """Into how many parts Spark cuts a batch: as many as it runs at once."""
        if self._context is not None:
            return max(1, int(self._context.defaultParallelism))
        # A server does not tell how much it runs at once, but it cuts a range accordingly.
        places = self._spark.range(_MOST_PARTS).selectExpr("spark_partition_id() AS place")
        [row] = places.selectExpr("max(place) + 1 AS parts").collect()
        return int(row["parts"])

    @property
    def may_run_twice(self) -> bool:
        """Whether Spark runs a slow task a second time beside the first."""
        told = self._spark.conf.get("spark.speculation", "false")
        return str(told).lower() == "true"

    def submit(self, bodies: Sequence[bytes], care: Care, tag: str) -> list[Outcome]:
        """Run jobs, and return what became of each, in their order."""
        table = pa.table(
            [pa.array(range(len(bodies)), pa.int32()), pa.array(bodies, pa.binary())],
            schema=_SCHEMA,
        )
        run = partial(run_part, replace(self._orders, care=care))
        self._add_tag(tag)
        try:
            frame = self._spark.createDataFrame(table).mapInArrow(run, _ROWS)
            rows = frame.collect()
        except Exception as error:
            raise BatchFailed(_reason(error)) from error
        finally:
            self._remove_tag(tag)
        found = {row["n"]: _decode(bytes(row["body"])) for row in rows}
        outcomes = [found[number] for number in range(len(bodies))]
        for outcome in outcomes:
            _check_delivered(outcome)
        return outcomes

    def interrupt(self, tag: str) -> None:
        """End the batch of a tag. Raises ``UnavailableError`` where Spark is gone."""
        try:
            # A session of this process knows a tag only in the thread that has set it.
            if self._context is not None:
                self._context.cancelJobsWithTag(tag)
            else:
                self._spark.interruptTag(tag)
        except Exception as error:
            raise _gone(error) from error

    def ping(self) -> None:
        """Raise ``UnavailableError`` where Spark is gone. It costs it nothing."""
        try:
            self._spark.conf.get("spark.app.name", "")
        except Exception as error:
            raise _gone(error) from error

    def check(self) -> None:
        """Raise ``UnavailableError`` where Spark is gone, or ``InvalidRequestError``.

        The latter where its executors do not find the handlers, before any job is claimed.
        """
        run = partial(try_part, self._orders)
        try:
            table = pa.table([pa.array([0], pa.int32()), pa.array([b""])], schema=_SCHEMA)
            [row] = self._spark.createDataFrame(table).mapInArrow(run, _ROWS).collect()
        except Exception as error:
            if python := trouble_with_python(str(error)):
                raise InvalidRequestError(python) from error
            raise _gone(error) from error
        _check_delivered(_decode(bytes(row["body"])))

    def _add_tag(self, tag: str) -> None:
        if self._context is not None:
            self._context.addJobTag(tag)
        else:
            self._spark.addTag(tag)

    def _remove_tag(self, tag: str) -> None:
        if self._context is not None:
            self._context.removeJobTag(tag)
        else:
            self._spark.removeTag(tag)


def _check_delivered(outcome: Outcome) -> None:
    """Raise ``InvalidRequestError`` where an executor could not open the handlers."""
    if outcome.undelivered:
        message = (
            f"the executors cannot load the handlers: {outcome.undelivered}; install their module "
            "there, send it with --py-files, or put it where all of them see it"
        )
        raise InvalidRequestError(message)


def _gone(error: Exception) -> UnavailableError:
    reason = "its process has ended" if is_gone(error) else _reason(error)
    message = (
        f"Spark runs nothing any more: {reason}; see its log where it keeps one, and start it "
        "again, with more memory (spark.driver.memory) if the system has killed it"
    )
    return UnavailableError(message)


def _reason(error: Exception) -> str:
    return reason_of(error)[:_LONGEST_REASON]
