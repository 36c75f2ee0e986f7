"""Batch reads of a queue and of its archive, and batch writes."""
