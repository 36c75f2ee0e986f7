"""``TopState``: what ``bucketq top`` shows, and what a key does to that.

Nothing in here draws, waits or asks a queue: a key changes the view, or is an ``Order``, which the
command carries out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from bucketq.cli.live.queue_meter import QueueMeter
from bucketq.cli.parsing import now

Panel = Literal["", "help", "details", "confirm"]


class TopRow(NamedTuple):
    """A queue, or a kind of jobs of the queue that is open."""

    name: str
    waiting: int = 0
    held: int = 0
    delayed: int = 0
    running: int = 0
    dead: int = 0
    oldest_s: float = 0.0
    """The age of the oldest waiting job; 0: there is none, or it was not asked for yet."""
    pushed_per_s: float = 0.0
    ended_per_s: float = 0.0
    workers: int = 0
    paused: bool = False
    trouble: str = ""


SORTS = ("name", "waiting", "delayed", "running", "dead", "oldest_s", "ended_per_s", "workers")
"""The columns that `s` sorts by, one after the other; numbers with the largest first."""


class Order(NamedTuple):
    """What the user asks for."""

    verb: Literal["quit", "pause", "resume", "retry"]
    queue: str = ""
    kind: str | None = None
    """None: the whole queue."""


class TopState:
    """Which queue is open, how rows are sorted, which is chosen, and what covers them."""

    def __init__(self, meters: Sequence[QueueMeter]) -> None:
        self._meters = {meter.name: meter for meter in meters}
        self.opened = meters[0].name if len(meters) == 1 else ""
        """The queue whose kinds are shown; empty: all queues are."""
        self.sort = "name"
        self.panel: Panel = ""
        self.message = ""
        """How the last order ended."""
        self._chosen = ""
        self._order: Order | None = None

    @property
    def meter(self) -> QueueMeter | None:
        """The queue that is open."""
        return self._meters.get(self.opened)

    @property
    def question(self) -> str:
        """What is to be confirmed."""
        order = self._order
        if order is None:
            return ""
        what = f"{order.kind} of {order.queue}" if order.kind else f"all of {order.queue}"
        texts = {
            "pause": f"stop handing out jobs: {what}?",
            "resume": f"hand out jobs again: {what}?",
            "retry": f"queue the dead jobs again: {what}?",
        }
        return texts[order.verb]

    def rows(self, now_s: float) -> list[TopRow]:
        """Return what is listed, in order."""
        if (meter := self.meter) is None:
            found = [queue_row(each, now_s) for each in self._meters.values()]
        else:
            found = kind_rows(meter)
        found.sort(key=lambda row: row.name)
        if self.sort != "name":
            found.sort(key=lambda row: -float(getattr(row, self.sort)))
        return found

    def chosen(self, rows: Sequence[TopRow]) -> int:
        """Return the place of the chosen row; the first one if it is gone."""
        return next((place for place, row in enumerate(rows) if row.name == self._chosen), 0)

    def press(self, key: str, rows: Sequence[TopRow]) -> Order | None:
        """Do what a key asks for; return what the command has to carry out."""
        if self.panel == "confirm":
            order, self._order, self.panel = self._order, None, ""
            return order if key in {"y", "Y"} else None
        if key == "q":
            return Order("quit")
        if self.panel:
            self.panel = ""
        elif key == "?":
            self.panel = "help"
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key == "esc" and len(self._meters) > 1 and self.opened:
            self._chosen, self.opened = self.opened, ""
        elif rows:
            self._press_on_row(key, rows)
        return None

    def _press_on_row(self, key: str, rows: Sequence[TopRow]) -> None:
        place = self.chosen(rows)
        row = rows[place]
        if key in {"down", "j", "up", "k"}:
            step = 1 if key in {"down", "j"} else -1
            self._chosen = rows[min(max(place + step, 0), len(rows) - 1)].name
        elif key in {"enter", "d"} and not self.opened:
            self.opened, self._chosen = row.name, ""
        elif key in {"enter", "d"}:
            self._chosen, self.panel = row.name, "details"
        elif key == "p":
            self._ask("resume" if row.paused else "pause", row)
        elif key == "P" and (meter := self.meter) is not None and meter.stats is not None:
            self._order = Order("resume" if meter.stats.paused else "pause", meter.name)
            self.panel = "confirm"
        elif key == "r" and row.dead:
            self._ask("retry", row)
        elif key == "r":
            self.message = f"{row.name} has no dead jobs"

    def _ask(self, verb: Literal["pause", "resume", "retry"], row: TopRow) -> None:
        is_kind = bool(self.opened)
        self._order = Order(verb, self.opened or row.name, row.name if is_kind else None)
        self._chosen, self.panel = row.name, "confirm"


def queue_row(meter: QueueMeter, now_s: float) -> TopRow:
    """Return a queue as a row."""
    found, trouble = meter.stats, meter.trouble(now_s)
    if found is None:
        return TopRow(meter.name, trouble=trouble or "connecting")
    held = sum(found.held.values())
    return TopRow(
        name=meter.name,
        waiting=found.total("queued") - held,
        held=held,
        delayed=sum(found.delayed.values()),
        running=found.total("running"),
        dead=found.total("dead"),
        oldest_s=max(0.0, found.oldest_queued_s or 0.0),
        pushed_per_s=meter.pushed_per_s,
        ended_per_s=meter.ended_per_s,
        workers=len(meter.workers),
        paused=found.paused,
        trouble=trouble,
    )


def kind_rows(meter: QueueMeter) -> list[TopRow]:
    """Return the kinds of a queue, also those of which there are no jobs and that are paused."""
    found = meter.stats
    if found is None:
        return []
    rows, at = [], now()
    for kind in dict.fromkeys((*found.counts, *found.paused_kinds)):
        counts, held = found.counts.get(kind, {}), found.held.get(kind, 0)
        oldest = meter.oldest.get(kind)
        row = TopRow(
            name=kind,
            waiting=counts.get("queued", 0) - held,
            held=held,
            delayed=found.delayed.get(kind, 0),
            running=counts.get("running", 0),
            dead=counts.get("dead", 0),
            oldest_s=0.0 if oldest is None else max(0.0, (at - oldest).total_seconds()),
            workers=sum(kind in worker.kinds for worker in meter.workers),
            paused=kind in found.paused_kinds,
        )
        rows.append(row)
    return rows
