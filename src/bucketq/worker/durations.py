"""Durations in the API: seconds or a ``timedelta``, in parameters that end in ``_s``."""

from __future__ import annotations

from datetime import timedelta


def in_seconds(duration: float | timedelta) -> float:
    """Convert a duration to seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
