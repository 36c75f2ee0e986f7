"""Turns requests into commits of the queue's object.

The register reads and writes the object; parking, the lease watch, the archiver and pacing are what
the committers have in common. Nothing here knows the verbs of a queue.
"""
