"""Describes the jobs of a queue in one line."""

from __future__ import annotations

from bucketq import admin
from bucketq.cli.terminal.output import counted


def describe_jobs(summary: admin.Summary) -> str:
    """The number of jobs, in all and by status."""
    total = sum(summary.jobs.values())
    parts = ", ".join(f"{count:,} {status}" for status, count in summary.jobs.items())
    return counted(total, "job") + (f" ({parts})" if parts else "")
