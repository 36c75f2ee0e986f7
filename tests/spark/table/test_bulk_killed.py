"""Bulk writes of which a process is killed: nothing is lost, and nothing is added twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import bucketq
from bucketq import Job
from bucketq.clock import SystemClock
from bucketq.codec.decode import decode
from bucketq.commit.objects.register import Register
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.store.base import ObjectMissingError
from bucketq.store.url import open_store
from tests.environ import ROOT, child_path
from tests.spark.mortal_writer import MortalSource

ROWS = 1200
STEPS = 4
"""Writes of the task that reserves: its reservation, and three segments."""


def frame_of(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS, numPartitions=2).select(
        f.lit("index").alias("kind"), f.to_json(f.struct("id")).alias("payload")
    )


def write(frame: DataFrame, url: str, format_name: str = "bucketq", **options: Any) -> None:
    given = {"bulk": "true", "writeId": "once", **options}
    frame.write.format(format_name).mode("append").options(**given).save(url)


def numbers(url: str) -> list[int]:
    with bucketq.connect_sync(url, mode="direct", create=False) as queue:
        return [Job(each, Any).payload["id"] for each in queue.snapshot().jobs]


async def sweep(url: str) -> list[str]:
    """Sweep, and return the segments that were put under a reservation and are left over."""
    location, clock = open_store(url), SystemClock()
    register = Register(location.store, location.key, location.url, clock)
    await register.load()
    state = decode((await location.store.get(location.key)).body, url).state
    assert len(state.reservations) == 0
    folder = SegmentFolder(location.store, location.key, state.incarnation, location.url, clock)
    await folder.sweep(register.read_named)
    left = [name async for name in folder.names() if name.startswith("r")]
    await location.store.close()
    return [name for name in left if name not in state.cold.rows.names()]


def full(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.full)


DEATHS = [
    ("driver", 1, "after"),
    ("task", 2, "after"),
    full("driver", 1, "before"),
    *(
        full("task", step, when)
        for step in range(1, STEPS + 1)
        for when in ("before", "after")
        if (step, when) != (2, "after")
    ),
]


@pytest.mark.parametrize(("victim", "step", "when"), DEATHS)
def test_a_write_of_which_a_process_is_killed_is_repeated_to_the_same_effect(
    spark: SparkSession, url: str, tmp_path: Path, victim: str, step: int, when: str
) -> None:
    spark.dataSource.register(MortalSource)
    frame, done = frame_of(spark), tmp_path / "done"
    try:
        write(frame, url, "mortal", death=f"{victim} {step} {when} {done}")
    except (PySparkException, Py4JJavaError):
        assert victim == "driver", "Spark runs a task again"
    assert done.exists(), "it was killed"
    write(frame, url)
    assert numbers(url) == [*range(ROWS)]
    assert asyncio.run(sweep(url)) == []


async def reserved_segments(url: str) -> list[str]:
    """Return the segments that were put under a reservation, adopted or not."""
    location, clock = open_store(url), SystemClock()
    try:
        state = decode((await location.store.get(location.key)).body, url).state
        folder = SegmentFolder(location.store, location.key, state.incarnation, location.url, clock)
        return [name async for name in folder.names() if name.startswith("r")]
    except ObjectMissingError:
        return []
    finally:
        await location.store.close()


@pytest.mark.full  # `test_stream_killed` kills a JVM in every run.
def test_a_write_whose_jvm_is_killed_is_repeated_to_the_same_effect(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.killed_driver", str(tmp_path / "spark"), url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": child_path(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert driver.stdout is not None
        jvm = int(driver.stdout.readline())
        while not asyncio.run(reserved_segments(url)):
            assert driver.poll() is None, "the write ended before its JVM was killed"
            time.sleep(0.1)
        os.kill(jvm, signal.SIGKILL)
    finally:
        driver.kill()  # Without its JVM it waits for ever.
        driver.communicate()
    assert numbers(url) == [], "one task has put its rows, and nothing has added them"
    write(frame_of(spark), url)
    assert numbers(url) == [*range(ROWS)]
    write(frame_of(spark), url)
    assert numbers(url) == [*range(ROWS)]
    assert asyncio.run(sweep(url)) == []


@pytest.mark.full
@pytest.mark.parametrize("delay_s", [0.0, 0.3, 1.0, 2.0])
def test_a_broker_of_the_queue_is_killed_while_a_frame_is_written(
    spark: SparkSession, url: str, delay_s: float
) -> None:
    frame = frame_of(spark)
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push("before", {"id": -1})
    script = str(Path(sys.executable).with_name("bucketq"))
    command = [script, "serve", url, "--listen", "127.0.0.1:0"]
    environ = {**os.environ, "PYTHONPATH": child_path(ROOT)}
    broker = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE)
    killer = subprocess.Popen(
        [sys.executable, "-c", f"import os,time;time.sleep({delay_s});os.kill({broker.pid},9)"]
    )
    try:
        write(frame, url)
        killer.wait()
        broker.wait()
        write(frame, url)
    finally:
        for process in (broker, killer):
            process.send_signal(signal.SIGKILL)
            process.communicate()
    assert numbers(url) == [-1, *range(ROWS)]
    assert asyncio.run(sweep(url)) == []
