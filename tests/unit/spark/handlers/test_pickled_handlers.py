"""Handlers on their way to executors: by name where they have a module, else by their code."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.spark.handlers.pickled_handlers import (
    HandlersNotLoaded,
    PickledHandlers,
    load_handlers,
    pickle_handlers,
)
from bucketq.worker.handlers import bind
from bucketq.worker.worker import Worker

ROOT = Path(__file__).resolve().parents[4]
PACK = """
import sys
{setup}
import bucketq
from bucketq.spark.handlers.pickled_handlers import pickle_handlers
from msgspec import msgpack
sys.stdout.buffer.write(msgpack.encode(pickle_handlers({handlers})))
"""
UNPACK = """
import sys
from msgspec import msgpack
from bucketq.spark.handlers import pickled_handlers
from bucketq.spark.handlers.pickled_handlers import HandlersNotLoaded, PickledHandlers
load = pickled_handlers.load_handlers
pickled = msgpack.decode(sys.stdin.buffer.read(), type=PickledHandlers)
try:
    print(load(pickled)["x"].function(20), load(pickled) is load(pickled))
except HandlersNotLoaded as error:
    print("not loaded:", error)
"""
TASKS = """
import bucketq
worker = bucketq.Worker()

@worker.handler("x", timeout_s=3)
def double(number: int) -> int:
    return 2 * number
"""


def python(program: str, folder: Path, given: bytes = b"") -> bytes:
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        input=given,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        check=False,
        timeout=40,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "executor"
    folder.mkdir()
    return folder


def test_a_handler_of_the_main_program_is_sent_as_code(tmp_path: Path, elsewhere: Path) -> None:
    packed = python(PACK.format(setup=TASKS, handlers="worker.handlers"), tmp_path)
    assert python(UNPACK, elsewhere, packed) == b"40 True\n"


@pytest.mark.parametrize("module", ["tasks", "shop.deep.tasks"])
def test_a_handler_of_a_module_is_imported_from_the_drivers_folder(
    module: str, tmp_path: Path, elsewhere: Path
) -> None:
    file = tmp_path / "driver" / (module.replace(".", "/") + ".py")
    file.parent.mkdir(parents=True)
    file.write_text(TASKS)
    setup = f"import {module}"
    packed = python(
        PACK.format(setup=setup, handlers=f"{module}.worker.handlers"), tmp_path / "driver"
    )
    assert python(UNPACK, elsewhere, packed) == b"40 True\n"
    file.unlink()
    output = python(UNPACK, elsewhere, packed).decode()
    assert output.startswith("not loaded: ModuleNotFoundError: No module named")


def test_a_package_is_found_by_the_folder_above_it(tmp_path: Path, elsewhere: Path) -> None:
    package = tmp_path / "driver" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TASKS)
    packed = python(
        PACK.format(setup="import shop", handlers="shop.worker.handlers"), package.parent
    )
    assert python(UNPACK, elsewhere, packed) == b"40 True\n"


def test_a_handler_that_cannot_be_pickled_is_rejected_by_name() -> None:
    lock = threading.Lock()

    def work(payload: Any) -> None:
        with lock:
            del payload

    with pytest.raises(InvalidRequestError, match=r"'x', .*work, cannot be sent .*lock"):
        pickle_handlers({"x": bind("x", work)})


async def test_a_handler_is_sent_without_the_queues_that_are_open() -> None:
    worker = Worker("memory://pickled")

    @worker.handler("x")
    def work(number: int) -> int:
        return number + 1

    async with worker.connect():
        pickled = pickle_handlers(worker.handlers)
    loaded: Any = load_handlers(pickled)["x"].function
    assert loaded(1) == 2
    with pytest.raises(InvalidRequestError, match="not open in this process"):
        await loaded.push(1)


def test_a_handler_that_takes_state_is_rejected() -> None:
    def work(pool: str = Worker().state("pool")) -> str:
        return pool

    with pytest.raises(
        InvalidRequestError, match=r"kind 'x' takes worker.state\(...\), which Spark"
    ):
        pickle_handlers({"x": bind("x", work)})


def test_loading_handlers_is_retried_after_a_failure() -> None:
    pickled = PickledHandlers(b"no pickle", ("/no/such/folder",))
    for _ in range(2):
        with pytest.raises(HandlersNotLoaded, match="UnpicklingError"):
            load_handlers(pickled)
    assert "/no/such/folder" not in sys.path
