"""Queues over one object: the register that commits it, and the queues built on the register."""
