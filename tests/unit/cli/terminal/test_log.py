"""What the log of a worker or broker contains, and what it never contains."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketq.cli.terminal.log import Format, LineHandler, choose_format, level_of, log_to
from bucketq.cli.terminal.output import Output

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
    printed: list[str] = []
    lines = LineHandler(form, printed.append, tracebacks=tracebacks)
    lines.worker = "ada"
    log_to(lines, level=logging.DEBUG if tracebacks else None)
    return printed


def log_record(level: int = logging.INFO, error: BaseException | None = None) -> None:
    facts = {"event": "done", "job": "1", "kind": "email", "attempt": 2, "took_s": 0.5}
    LOG.getChild("worker").log(level, "done", extra={"bucketq": facts}, exc_info=error)


def test_a_line_of_text_has_time_level_event_and_job() -> None:
    printed = log_lines("text")
    log_record()
    LOG.warning("the queue is %s", "slow\x1b")
    moment, _, rest = printed[0].partition(" ")
    assert moment.endswith("Z")
    assert rest == "info done job=1 kind=email attempt=2 took_s=0.5"
    assert printed[1].endswith(" warning the queue is slow\\x1b")


def test_a_line_of_json_has_a_field_for_each() -> None:
    printed = log_lines("json")
    log_record()
    LOG.warning("the queue is slow\nvery")
    first, second = map(json.loads, printed)
    assert first.pop("time").endswith("Z")
    assert first.pop("pid") == os.getpid()
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
    assert "queue" not in second
    assert not any("\n" in line for line in printed)


@pytest.mark.parametrize(
    "url", ["s3://bucket/a:b.json", "file:///srv/jobs/queue.json (partition 3)"]
)
def test_a_line_of_json_names_its_queue_apart_from_the_event(url: str) -> None:
    printed = log_lines("json")
    LOG.info("%s: leading in epoch %d: now", url, 7)
    line = json.loads(printed[0])
    assert (line["queue"], line["event"]) == (url, "leading in epoch 7: now")


@pytest.mark.parametrize("form", ["text", "json"])
def test_of_an_error_only_the_type_is_logged_without_tracebacks(form: Format) -> None:
    printed = log_lines(form)
    log_record(logging.WARNING, ValueError("a payload"))
    assert "ValueError" in printed[0]
    assert "payload" not in printed[0]
    LOG.handlers.clear()
    printed = log_lines(form, tracebacks=True)
    log_record(logging.WARNING, ValueError("a payload"))
    assert "ValueError: a payload" in printed[0]


def test_root_handlers_get_every_record_and_no_line_is_printed_twice(tmp_path: Path) -> None:
    console = logging.StreamHandler()
    shown: list[str] = []
    console.emit = lambda record: shown.append(record.getMessage())  # type: ignore[method-assign]  # it only listens
    file = logging.FileHandler(tmp_path / "log.txt")
    logging.root.addHandler(console)
    logging.root.addHandler(file)
    printed = log_lines("text")
    log_record()
    logging.root.warning("theirs")
    file.close()
    assert len(printed) == 1
    assert shown == ["theirs"]
    assert (tmp_path / "log.txt").read_text() == "done\ntheirs\n"


def test_a_logger_that_the_user_configured_is_left_alone() -> None:
    theirs = logging.NullHandler()
    LOG.addHandler(theirs)
    LOG.setLevel(logging.ERROR)
    log_lines("text")
    assert LOG.handlers == [theirs]
    assert LOG.level == logging.ERROR


@pytest.mark.parametrize(("quiet", "debug", "count"), [(True, False, 1), (False, True, 3)])
def test_quiet_leaves_warnings_and_debug_adds_all(quiet: bool, debug: bool, count: int) -> None:
    printed: list[str] = []
    out = Output(json=False, quiet=quiet, debug=debug, timeout_s=1)
    log_to(LineHandler("text", printed.append, tracebacks=debug), level=level_of(out))
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        log_record(level)
    assert len(printed) == count


def test_notes_errors_and_the_log_of_any_command_have_the_same_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = Output(json=False, quiet=False, debug=False, timeout_s=1)
    choose_format("json", out)
    LOG.info("not shown")
    LOG.warning("%s: cannot be read", "memory://x")
    out.note("a remark")
    out.error("it failed", exit_code=5)
    logged, note, error = map(json.loads, capsys.readouterr().err.splitlines())
    assert all({"time", "level", "pid", "event"} <= line.keys() for line in (logged, note, error))
    assert (logged["queue"], logged["event"]) == ("memory://x", "cannot be read")
    assert (note["level"], note["event"]) == ("info", "a remark")
    assert (error["level"], error["error"], error["exit_code"]) == ("error", "it failed", 5)


def test_the_log_of_a_broker_or_worker_replaces_that_of_other_commands() -> None:
    choose_format("json", Output(json=False, quiet=False, debug=False, timeout_s=1))
    printed = log_lines("json")
    log_record()
    assert len(printed) == 1
    assert len(LOG.handlers) == 1
