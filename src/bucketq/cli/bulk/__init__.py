"""Pushing many jobs from a file, a pipe or another queue, in a way that can be resumed."""
