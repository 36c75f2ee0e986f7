"""Queues with partitions: one committer over those of the partitions."""
