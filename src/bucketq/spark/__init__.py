"""bucketq on Spark: jobs as DataFrames, in batches and in streams.

``spark.read.format("bucketq")`` reads a queue or its archive, and ``df.write.format("bucketq")``
pushes. It needs ``bucketq[spark]`` on the driver and on every executor. Spark finds the format by
itself, or ``register(spark)`` adds it. ``run`` runs the handlers of a worker on the executors, and
``finish`` acknowledges the last batch of a stream that has ended. ``for_each_batch`` passes
micro-batches on with the numbers of the queue, and ``settle`` completes or fails jobs of one.
``export_metrics`` exports the progress of streams for Prometheus.

``compact`` turns the archive into Parquet files, ``report`` measures it, ``page`` makes a page of
that, and ``replay`` pushes jobs of it again.
"""

from bucketq.spark.archive.archive_report import report
from bucketq.spark.archive.compact_archive import compact
from bucketq.spark.archive.replay_jobs import replay
from bucketq.spark.archive.report_page import page
from bucketq.spark.handlers.spark_worker import run
from bucketq.spark.registration import register
from bucketq.spark.stream.acknowledge import finish
from bucketq.spark.stream.batch_outcomes import StreamBatch, for_each_batch, settle
from bucketq.spark.stream.exported_metrics import export_metrics

__all__ = [
    "StreamBatch",
    "compact",
    "export_metrics",
    "finish",
    "for_each_batch",
    "page",
    "register",
    "replay",
    "report",
    "run",
    "settle",
]
