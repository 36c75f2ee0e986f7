"""A simulator of whole queues: real code on virtual time, with faults, checked for invariants.

``simulate(seed)`` starts brokers, clients, workers and operators on simulated machines, injects
faults, and compares every answer and every commit with what the protocol promises. ``make sim`` and
``python -m simulator`` run many seeds. It is not part of the package: the tools that it is built
on, virtual time and a store that fails on demand, are, as ``bucketq.testing``.
"""
