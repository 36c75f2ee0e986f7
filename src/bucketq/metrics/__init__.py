"""Metrics of brokers and workers for Prometheus, over HTTP; needs the extra ``metrics``.

Nothing below knows this package. Brokers and workers report to an observer if they have one, and a
store is wrapped; a process without ``--metrics`` has neither.
"""
