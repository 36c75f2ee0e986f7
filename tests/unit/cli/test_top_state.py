"""What `bucketq top` shows, and what its keys do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from bucketq import InvalidRequestError, Queue, Stats
from bucketq.cli.live.queue_meter import QueueMeter
from bucketq.cli.live.top_drawing import draw
from bucketq.cli.live.top_state import SORTS, Order, TopState
from bucketq.cli.parsing import now
from bucketq.cli.terminal.key_input import decode_keys
from bucketq.model.worker_records import WorkerInfo

NOON = datetime(2026, 2, 15, 12, tzinfo=UTC)
WORKER = WorkerInfo(
    id="w1",
    name="web-1",
    host="host",
    pid=17,
    version="0.1.0",
    kinds=("email",),
    concurrency=4,
    running=1,
    since=NOON,
    at=NOON,
    draining=True,
)


def stats(counts: dict[str, dict[str, int]], **others: Any) -> Stats:
    known: dict[str, Any] = {
        "version": 1,
        "oldest_queued_s": 65.0,
        "bytes": 1,
        "paused": False,
        "paused_kinds": (),
        "broker": None,
        "keys": 0,
        "sessions": 0,
    }
    return Stats(counts=counts, **(known | others))


def meter(name: str = "jobs", **others: Any) -> QueueMeter:
    made = QueueMeter(name, f"memory://{name}", 1.0)
    counts = {"email": {"queued": 5, "dead": 2}, "index": {"queued": 900, "running": 3}}
    made.stats = stats(counts, held={"email": 1}, **others)
    made.workers = [WORKER]
    return made


def screen(state: TopState, height: int = 30, now_s: float = 0.0) -> str:
    console = Console(width=120, height=height, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(draw(state, state.rows(now_s), now_s, height))
    return captured.get()


def press(state: TopState, *keys: str) -> Order | None:
    order = None
    for key in keys:
        order = state.press(key, state.rows(0.0))
    return order


def test_one_queue_is_shown_by_its_kinds() -> None:
    shown = screen(TopState([meter()]))
    assert "waiting 904  running 3  dead 2  oldest 1m05s" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["KIND*", "WAITING", "HELD", "RUNNING", "DEAD", "OLDEST", "WORKERS"] in lines
    assert ["email", "4", "1", "0", "2", "1"] in lines
    assert ["index", "900", "0", "3", "0", "0"] in lines


def test_several_queues_are_a_list_from_which_one_is_opened() -> None:
    state = TopState([meter("jobs"), meter("mail", paused=True)])
    assert "QUEUE*" in screen(state)
    assert press(state, "down", "enter") is None
    assert state.opened == "mail"
    assert "PAUSED" in screen(state)
    press(state, "esc")
    assert state.opened == ""
    assert state.chosen(state.rows(0.0)) == 1, "the queue that was open is chosen"


def test_every_column_can_be_sorted_by_and_the_choice_stays_with_its_row() -> None:
    state = TopState([meter()])
    press(state, "down")
    seen = []
    for _ in SORTS:
        seen.append(state.sort)
        rows = state.rows(0.0)
        assert rows[state.chosen(rows)].name == "index"
        press(state, "s")
    assert (seen, state.sort) == ([*SORTS], "name")
    press(state, "s")
    assert [row.name for row in state.rows(0.0)] == ["index", "email"], "most waiting jobs first"


def test_changes_are_made_after_a_y_only() -> None:
    state = TopState([meter(paused_kinds=("index",))])
    assert press(state, "p") is None
    assert "stop handing out jobs: email of jobs? [y/N]" in screen(state)
    assert press(state, "n") is None
    assert press(state, "q") == Order("quit")
    assert press(state, "p", "y") == Order("pause", "jobs", "email")
    assert press(state, "r", "y") == Order("retry", "jobs", "email")
    assert press(state, "down", "p", "y") == Order("resume", "jobs", "index")
    assert press(state, "P", "y") == Order("pause", "jobs", None)
    assert press(state, "r", "y") is None
    assert "index has no dead jobs" in screen(state)
    several = TopState([meter("jobs"), meter("mail")])
    assert press(several, "r", "y") == Order("retry", "jobs", None)


def test_help_and_details_are_left_with_any_key() -> None:
    state = TopState([meter()])
    press(state, "?")
    assert "Any key goes back" in screen(state)
    press(state, "x", "enter")
    shown = screen(state)
    assert "web-1  host:17  running 1/4" in shown
    assert "draining" in shown
    press(state, "x")
    assert "WAITING" in screen(state)


def test_names_cannot_send_escape_sequences_or_markup() -> None:
    made = meter()
    made.stats = stats({"\x1b[2Jevil[red]": {"queued": 1}})
    shown = screen(TopState([made]))
    assert "\\x1b[2Jevil[red]" in shown


def test_more_kinds_than_lines_are_shown_around_the_chosen_one() -> None:
    made = meter()
    made.stats = stats({f"kind-{number:04}": {"queued": 1} for number in range(1000)})
    state = TopState([made])
    assert len(screen(state, height=12).splitlines()) <= 12
    press(state, *["down"] * 500)
    shown = screen(state, height=12)
    assert "kind-0500" in shown
    assert "kind-0000" not in shown
    assert len(shown.splitlines()) <= 12


def test_a_queue_that_does_not_answer_says_so() -> None:
    made = meter()
    made.error = InvalidRequestError("no such thing")
    assert "no such thing" in screen(TopState([made]))
    assert "connecting" in screen(TopState([QueueMeter("a", "memory://a", 1.0), meter()]))
    assert screen(TopState([QueueMeter("a", "memory://a", 1.0)]))


class Counting:
    """A queue that can be asked for counts and workers, and for nothing else."""

    def __init__(self) -> None:
        self.pushed = 100

    async def stats(self) -> Stats:
        self.pushed += 50
        return stats({"k": {"queued": 10}}, pushed=self.pushed, incarnation="i")

    async def workers(self) -> list[WorkerInfo]:
        return [WORKER]


async def test_it_asks_for_counts_and_workers_only() -> None:
    made = QueueMeter("jobs", "memory://jobs", 1.0)
    queue = cast("Queue[Any]", Counting())
    await made.measure(queue)
    await made.measure(queue)
    assert made.stats is not None
    assert (made.stats.pushed, made.stats.ended) == (200, 190)
    assert made.pushed_per_s > 0
    assert made.ended_per_s == made.pushed_per_s
    assert made.trouble(0.0) == ""


class Aged(Counting):
    """A queue of more kinds than are asked for at a time; each kind has an older job."""

    asked: list[str]

    async def stats(self) -> Stats:
        self.asked = []
        return stats({f"k{n:02}": {"queued": n} for n in range(31)}, delayed={"k07": 3})

    async def jobs(self, *, kinds: list[str], statuses: list[str], limit: int) -> Any:
        assert (statuses, limit) == (["queued"], 1)
        self.asked += kinds
        age = timedelta(seconds=600 * int(kinds[0][1:]))
        return SimpleNamespace(jobs=[SimpleNamespace(pushed_at=now() - age)])


async def test_the_ages_of_kinds_are_asked_for_in_turn_while_they_are_shown() -> None:
    made, queue = QueueMeter("jobs", "memory://jobs", 1.0), Aged()
    await made.measure(cast("Queue[Any]", queue))
    assert queue.asked == []
    made.shows_kinds = True
    seen = list[str]()
    for _ in range(3):
        await made.measure(cast("Queue[Any]", queue))
        assert len(queue.asked) == 20
        seen += queue.asked
    assert seen[:30] == seen[30:] == [f"k{n:02}" for n in range(1, 31)]
    rows = {row.name: row for row in TopState([made]).rows(0.0)}
    assert 4200 <= rows["k07"].oldest_s < 4300
    assert (rows["k07"].delayed, rows["k00"].oldest_s) == (3, 0.0)
    shown = screen(TopState([made]), height=50)
    assert "1h10m" in shown.replace(" ", "")
    assert "DELAYED" in shown


def test_keys_are_decoded() -> None:
    assert decode_keys(b"q\x1b[A\x1bOB\r\x1b[15~j\x1b\xff") == [
        *("q", "up", "down", "enter", "j", "esc"),
    ]
