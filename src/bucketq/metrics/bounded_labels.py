"""``BoundedLabels``: values of a label, of which there are never too many.

Producers choose kinds, and operators the names of queues. Each value of a label is one more series
in Prometheus, for each combination with others, so the number must have a limit.
"""

from __future__ import annotations

OTHER = "other"
"""What all values are called that came after the limit was reached."""
MOST_KINDS = 100
"""With five statuses, and 15 buckets of a histogram, 2,000 series of one process."""
MOST_QUEUES = 200
"""More than one broker should lead; each has some 100 series."""


class BoundedLabels:
    """Remembers the first values of a label; the rest have one name together."""

    def __init__(self, most: int) -> None:
        """Keep ``most`` values apart."""
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the value, or ``other``."""
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(value)
        return value
