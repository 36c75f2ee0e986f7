"""What the log of a worker or broker tells, and what it never tells."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketq.cli.terminal.log import Format, LineHandler, log_to

LOG = logging.getLogger("bucketq")


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Loggers as a fresh process has them, put back afterwards."""
    before = [(log, log.level, log.propagate, log.handlers[:]) for log in (LOG, logging.root)]
    for log, _, _, _ in before:
        log.handlers[:] = []
    LOG.setLevel(logging.NOTSET)
    yield
    for log, level, propagate, handlers in before:
        log.setLevel(level)
        log.propagate, log.handlers[:] = propagate, handlers


def log_lines(form: Format, *, tracebacks: bool = False) -> list[str]:
    told: list[str] = []
    lines = LineHandler(form, told.append, tracebacks=tracebacks)
    lines.worker = "ada"
    log_to(lines, quiet=False, debug=tracebacks)
    return told


def tell(level: int = logging.INFO, error: BaseException | None = None) -> None:
    facts = {"event": "done", "job": "1", "kind": "email", "attempt": 2, "took_s": 0.5}
    LOG.getChild("worker").log(level, "done", extra={"bucketq": facts}, exc_info=error)


def test_a_line_of_text_tells_when_how_grave_what_and_of_which_job() -> None:
    told = log_lines("text")
    tell()
    LOG.warning("the queue is %s", "slow\x1b")
    moment, _, rest = told[0].partition(" ")
    assert moment.endswith("Z")
    assert rest == "info done job=1 kind=email attempt=2 took_s=0.5"
    assert told[1].endswith(" warning the queue is slow\\x1b")


def test_a_line_of_json_has_a_field_for_each() -> None:
    told = log_lines("json")
    tell()
    LOG.warning("the queue is slow\nvery")
    first, second = map(json.loads, told)
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "event": "done",
        "job": "1",
        "kind": "email",
        "attempt": 2,
        "took_s": 0.5,
        "worker": "ada",
    }
    assert second["event"] == "the queue is slow\nvery"
    assert not any("\n" in line for line in told)


@pytest.mark.parametrize("form", ["text", "json"])
def test_of_an_error_only_the_type_is_told_unless_tracebacks_are_asked_for(form: Format) -> None:
    told = log_lines(form)
    tell(logging.WARNING, ValueError("a payload"))
    assert "ValueError" in told[0]
    assert "payload" not in told[0]
    LOG.handlers.clear()
    told = log_lines(form, tracebacks=True)
    tell(logging.WARNING, ValueError("a payload"))
    assert "ValueError: a payload" in told[0]


def test_the_user_s_handlers_hear_all_but_nothing_is_told_twice(tmp_path: Path) -> None:
    console = logging.StreamHandler()
    shown: list[str] = []
    console.emit = lambda record: shown.append(record.getMessage())  # type: ignore[method-assign]  # it only listens
    file = logging.FileHandler(tmp_path / "log.txt")
    logging.root.addHandler(console)
    logging.root.addHandler(file)
    told = log_lines("text")
    tell()
    logging.root.warning("theirs")
    file.close()
    assert len(told) == 1
    assert shown == ["theirs"]
    assert (tmp_path / "log.txt").read_text() == "done\ntheirs\n"


def test_a_logger_that_the_user_has_set_up_is_left_alone() -> None:
    theirs = logging.NullHandler()
    LOG.addHandler(theirs)
    LOG.setLevel(logging.ERROR)
    log_lines("text")
    assert LOG.handlers == [theirs]
    assert LOG.level == logging.ERROR


@pytest.mark.parametrize(("quiet", "debug", "count"), [(True, False, 1), (False, True, 3)])
def test_quiet_leaves_warnings_and_debug_adds_all(quiet: bool, debug: bool, count: int) -> None:
    told: list[str] = []
    log_to(LineHandler("text", told.append, tracebacks=debug), quiet=quiet, debug=debug)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        tell(level)
    assert len(told) == count
