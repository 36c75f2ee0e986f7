"""``ClaimTurns``: in which order a claim asks the partitions of a queue."""

from __future__ import annotations


class ClaimTurns:
    """Lets every partition have its turn, without asking empty ones at every claim.

    A claim first asks one partition that had nothing when it was last asked, then those that had
    jobs, and the other empty ones last. So a claim of a busy queue asks two partitions, and an
    empty one is asked again after as many claims as there are such partitions.
    """

    def __init__(self, count: int) -> None:
        """Begin with partition 0."""
        self._line = [*range(count)]
        """Who was asked longest ago comes first."""
        self._empty = [False] * count

    def order(self) -> list[int]:
        """Return the partitions in the order in which the next claim asks them."""
        empty = [index for index in self._line if self._empty[index]]
        busy = [index for index in self._line if not self._empty[index]]
        # Claims that are made meanwhile begin with others.
        for index in (*empty[:1], *busy[:1]):
            self._line.remove(index)
            self._line.append(index)
        return [*empty[:1], *busy, *empty[1:]]

    def is_empty(self, index: int) -> bool:
        """Whether a partition had nothing when it was last asked."""
        return self._empty[index]

    def note(self, index: int, *, found: bool) -> None:
        """Note whether a partition had jobs."""
        self._empty[index] = not found
