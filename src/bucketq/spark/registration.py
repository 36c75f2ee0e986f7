"""``register``: adds the format ``bucketq`` to a Spark session that has not found it by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bucketq.spark.session.compatibility import prepare_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Add ``format("bucketq")`` to a session, of this process or over Spark Connect.

    Spark finds the format by itself (``pyspark_bucketq``) if the Python that it runs on the driver
    has bucketq. This is for a session whose Python does not. In local mode, Spark's Python workers
    then run the current interpreter, unless ``PYSPARK_PYTHON`` names another.
    """
    prepare_session(spark)
    from bucketq.spark.data_source import BucketQDataSource  # noqa: PLC0415 - pyspark is an extra

    try:
        spark.dataSource.register(BucketQDataSource)
    except Exception as error:
        # Spark 4.0 and 4.1 do not replace a format that they have found by themselves.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
