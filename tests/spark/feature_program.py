"""A program that tries features in one place: ``feature_program MASTER DIR [NAME …]``.

It prints a line of JSON for each: its name, and what went wrong, or nothing. Without names it tries
all of them, and the commands as well.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

import bucketq.spark
from tests.spark import executor_losses
from tests.spark.features import COMMANDS, FEATURES
from tests.spark.session import configured

T = TypeVar("T")
COPIES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
}
"""Lets Spark run a second copy of a slow task."""
_TOO_BUSY = "connect back"
"""Part of Spark's error if one of its Python processes takes more than ten seconds to start."""
_TURNS = 3
Features = Mapping[str, Callable[[SparkSession, Path], None]]


def try_each(features: Mapping[str, Callable[[T, Path], None]], given: T, folder: Path) -> None:
    """Try features, one after the other."""
    for name, feature in features.items():
        began_s = time.perf_counter()
        for turn in range(_TURNS):
            place = folder / f"{name}-{turn}"
            place.mkdir()
            wrong = _wrong(feature, given, place)
            if _TOO_BUSY not in wrong:
                break
        took_s = round(time.perf_counter() - began_s, 2)
        sys.stdout.write(json.dumps({"name": name, "wrong": wrong, "took_s": took_s}) + "\n")
        sys.stdout.flush()


def _wrong(feature: Callable[[T, Path], None], given: T, place: Path) -> str:
    try:
        feature(given, place)
    except BaseException:  # noqa: BLE001 - one that fails is reported, and the next one is run
        return traceback.format_exc()
    return ""


def main(master: str, folder: Path, *names: str) -> None:
    """Try some features, or all."""
    known = {**FEATURES, "run_and_lose_an_executor": executor_losses.run}
    chosen = {name: known[name] for name in names or known}
    is_connect = master.startswith("sc://")
    builder = SparkSession.builder.remote(master) if is_connect else _cluster(master, folder)
    _try_on(builder, chosen, folder)
    if names:
        return
    if not is_connect:
        builder = _cluster(master, folder)
        for name, value in COPIES.items():
            builder = builder.config(name, value)
        _try_on(builder, {"write_beside_a_copy": executor_losses.write_beside_a_copy}, folder)
    try_each(COMMANDS, master, folder)


def _cluster(master: str, folder: Path) -> SparkSession.Builder:
    return configured(master, folder).config("spark.cores.max", "2")


def _try_on(builder: SparkSession.Builder, features: Features, folder: Path) -> None:
    spark = builder.getOrCreate()
    bucketq.spark.register(spark)
    try_each(features, spark, folder)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
