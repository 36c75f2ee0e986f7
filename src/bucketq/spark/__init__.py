"""bucketq on Spark: jobs as DataFrames, in batches and in streams.

``register(spark)`` adds the format ``bucketq``; then ``spark.read.format("bucketq")`` reads a queue
or its archive, and ``df.write.format("bucketq")`` pushes. It needs ``bucketq[spark]`` on the driver
and on every executor.
"""

from bucketq.spark.register import register

__all__ = ["register"]
