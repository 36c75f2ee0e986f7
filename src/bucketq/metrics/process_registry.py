"""What the metrics of every process have: a registry of their own, and the version."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics

from bucketq import __version__


def new_registry() -> CollectorRegistry:
    """Return a registry with the version of bucketq, and CPU and memory of the process."""
    # Times of creation double the series, and few queries use them.
    leave_out_times: Callable[[], None] = disable_created_metrics
    leave_out_times()
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    info = Gauge("bucketq_info", "Always 1.", ("version",), registry=registry)
    info.labels(__version__).set(1)
    return registry
