"""What all tests share."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Generator, Iterator
from importlib import import_module
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from bucketq.model import settings as queue_settings
from tests.environ import IS_ALL_REQUIRED, SPILL_BYTES
from tests.leftovers import end_children, mark_children

# How long an example takes depends on what else the machine does; a test has a timeout of its
# own. In an automatic build the same examples run each time, so that a red build stays red.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if IS_ALL_REQUIRED else "here")
_EXAMPLES = 25
"""Of each property in an ordinary run; a full one tries a hundred. Each run tries others, unless it
is an automatic build, so all of them together try many more."""

_AS_USUAL = queue_settings.DEEP
if SPILL_BYTES:
    import_module("tests.early_spill.sitecustomize")

_OWN_SPARK = (
    "tests/spark/test_clusters.py",
    "tests/spark/handlers/test_executor_lost.py",
)
"""What starts a Spark of its own; all other tests of Spark share a session."""
_LONGEST_FIRST = (
    "shared Spark",
    "tests/simulation/test_seeds.py",
    *_OWN_SPARK,
    "tests/chaos/test_chaos.py",
    "tests/integration/test_brokers.py",
    "tests/security/test_strangers.py",
    "tests/simulation/test_deep_seeds.py",
    "tests/integration/test_stopped_lock_holder.py",
    "tests/integration/test_compaction.py",
)
"""What takes long is begun early, or one process would be left alone with it at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="also run tests that are marked full, as test-all does"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Leave no process behind; the one that only hands out tests starts none but its workers."""
    logging.getLogger("asyncio").addHandler(_COMPLAINTS)
    if not config.getoption("full"):
        profile = settings.get_current_profile_name()
        settings.register_profile("some", settings.get_profile(profile), max_examples=_EXAMPLES)
        settings.load_profile("some")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        mark_children()
        config.add_cleanup(end_children)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores Ctrl-C for what it runs in the background; tested programs must not.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the thousands of tests, which live to the end, out of the garbage collector's way.

    It would look at all of them again and again: 6 % of the CPU time of tests in this process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each process begin with other folders and files.

    In a fresh clone pytest compiles the asserts of each file, which takes longer than all else that
    it does before the first test. So each process compiles some files, and reads those that others
    have compiled.
    """
    report = yield
    workers = getattr(collector.config, "workerinput", None)
    if workers is not None and isinstance(collector, pytest.Directory):
        number = int(workers["workerid"].removeprefix("gw"))
        first = len(report.result) * number // workers["workercount"]
        report.result[:] = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Leave out what only a full run has, and put the longest first.

    The order must be the same in all processes, so pytest must not sort what each found first.
    """
    if not config.getoption("full"):
        left_out = [item for item in items if item.get_closest_marker("full") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("full") is None]
    items.sort(key=lambda item: _file(item.nodeid))
    yield
    items.sort(key=_rank)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Let one process run all tests that share a Spark session, and whole files otherwise."""
    return _Files(config, log) if config.getoption("dist") == "loadfile" else None


class _Files(LoadScopeScheduling):  # type: ignore[misc]
    """A second process with a session would have to start and warm up a Java of its own."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _group(nodeid: str) -> str:
    file = _file(nodeid)
    has_session = file.startswith("tests/spark/") and file not in _OWN_SPARK
    return "shared Spark" if has_session else file


def _rank(item: pytest.Item) -> tuple[int, int, str]:
    """Sort by what takes long, then by a hash.

    Files of one folder are alike: some folders compute all the time, and others wait for timers and
    servers. In an order that has nothing to do with their names, they run beside each other.
    """
    group, file = _group(item.nodeid), _file(item.nodeid)
    if group in _LONGEST_FIRST:
        return _LONGEST_FIRST.index(group), 0, file
    return len(_LONGEST_FIRST), crc32(group.encode()), file


_NOT_OURS = ("grpc._cython", "StreamReaderProtocol.connection_made")
"""gRPC wakes loops of earlier tests, which are closed. Python 3.11 logs it if the handler of a
connection is cancelled, as relays are at the end of a test."""


class _Complaints(logging.Handler):
    """What loops log of errors in callbacks and tasks, which reach no caller and fail no test."""

    def __init__(self) -> None:
        """Take errors only: a slow callback is a warning."""
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if not any(known in text for known in _NOT_OURS):
            self.texts.append(text)


_COMPLAINTS = _Complaints()
_LOG = logging.getLogger("bucketq")


@pytest.fixture(autouse=True)
def _around_each(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let queues spill as usual if the test needs that, and find errors that nothing handled.

    What a command has done to bucketq's logger is undone: pytest adds its own handler to a logger
    that does not propagate, and later tests would see each record twice.

    One fixture for all, and ``monkeypatch`` for none: each takes time in thousands of tests.
    """
    _COMPLAINTS.texts.clear()
    early = queue_settings.DEEP
    if request.node.get_closest_marker("shallow"):
        queue_settings.DEEP = _AS_USUAL
    yield
    queue_settings.DEEP = early
    if _LOG.level or _LOG.handlers or not _LOG.propagate:
        _LOG.handlers.clear()
        _LOG.propagate = True
        _LOG.setLevel(logging.NOTSET)
    if _COMPLAINTS.texts and not request.node.get_closest_marker("unhandled"):
        pytest.fail("errors that were not handled:\n" + "\n".join(_COMPLAINTS.texts))
