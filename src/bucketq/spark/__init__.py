"""bucketq on Spark: jobs as DataFrames, in batches and in streams.

``register(spark)`` adds the format ``bucketq``; then ``spark.read.format("bucketq")`` reads a queue
or its archive, and ``df.write.format("bucketq")`` pushes. It needs ``bucketq[spark]`` on the driver
and on every executor. ``run`` runs the handlers of a worker on the executors, and
``finish`` acknowledges the last batch of a stream that has ended.
"""

from bucketq.spark.executor import run
from bucketq.spark.finish import finish
from bucketq.spark.register import register

__all__ = ["finish", "register", "run"]
