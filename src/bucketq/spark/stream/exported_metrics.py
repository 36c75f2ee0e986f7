"""``export_metrics``: adds a listener to a session that exports the progress of its streams."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from bucketq.errors import InvalidRequestError
from bucketq.spark.session.compatibility import prepare_session

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession


def export_metrics(
    spark: SparkSession, registry: CollectorRegistry | None = None
) -> CollectorRegistry:
    """Export the progress of the streams of a session as metrics; return their registry.

    Serve it with ``prometheus_client.start_http_server(9466, registry=registry)``, or pass the
    registry that the process serves already. It needs the extra ``metrics``, on the driver.
    """
    prepare_session(spark)
    if find_spec("prometheus_client") is None:
        message = 'metrics need prometheus_client: pip install "bucketq[metrics]"'
        raise InvalidRequestError(message)
    # Both are extras.
    from bucketq.metrics.process_registry import new_registry  # noqa: PLC0415
    from bucketq.spark.stream.stream_metrics import StreamMetrics  # noqa: PLC0415

    chosen = new_registry() if registry is None else registry
    spark.streams.addListener(StreamMetrics(chosen))
    return chosen
