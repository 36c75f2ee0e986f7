"""Pushes many jobs from a file, a pipe or another queue, and can resume after an interruption."""
