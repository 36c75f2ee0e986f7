"""Streams of jobs: the source, the sink, the checkpoint, and acknowledging a micro-batch."""
