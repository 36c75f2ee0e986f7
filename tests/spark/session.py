"""Configures a Spark session so that it starts fast and listens on loopback only."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options that let a JVM start fast, at the cost of its speed later."""
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Far from UTC, with a summer time, so that tests find times that depend on the session's zone.
    "spark.sql.session.timeZone": "America/St_Johns",
}
PLAIN_PLANS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Run a query as it was planned, and interpret it: to plan again and to compile takes 40 % of the
CPU time of a query over the few rows of a test."""


def configured(master: str, folder: Path) -> SparkSession.Builder:
    """A session that is about to be started; its files go into ``folder``."""
    builder = SparkSession.builder.master(master).appName("bucketq-tests")
    for name, value in CONFIG.items():
        builder = builder.config(name, value)
    return builder.config("spark.local.dir", str(folder / "local")).config(
        "spark.sql.warehouse.dir", str(folder / "warehouse")
    )
