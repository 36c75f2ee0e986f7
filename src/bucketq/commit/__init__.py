"""Turns requests into commits of the queue's object.

The register reads and writes the object; the committers share parked claims, the lease watch, the
archiver and pacing. Nothing here knows the verbs of a queue.
"""
