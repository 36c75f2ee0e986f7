"""Imports the ``Worker`` that ``module:attribute`` on the command line names.

The module is found as Python finds it, the current directory first, or by the path of its file.
Errors are reported in one message; the traceback of an error in the module itself begins with the
module's own lines.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, NamedTuple

from bucketq.errors import InvalidRequestError
from bucketq.process_memory import collect_as_usual

if TYPE_CHECKING:
    from bucketq.worker.worker import Worker

_USUAL_NAME = "worker"
_OURS = (
    str(Path(__file__).parent),
    "<frozen importlib",
    str(Path(importlib.__file__ or "").parent),
)


class WorkerTarget(NamedTuple):
    """The parts of a word like ``tasks:worker``, ``shop.tasks`` or ``shop/tasks.py:worker``."""

    module: str
    attribute: str
    """Empty if none is named."""
    root: Path
    """The directory from which the module is imported."""
    file: Path | None
    """The file of the module, if its path was given."""


def parse_target(word: str) -> WorkerTarget:
    """Parse the word; the module is not imported yet."""
    name, colon, attribute = word.rpartition(":")
    if not colon:
        name, attribute = word, ""
    is_path = name.endswith(".py") or "/" in name
    parts = attribute.split(".") if attribute else []
    if not is_path:
        parts += name.split(".")
    if not name or (colon and not attribute) or not all(part.isidentifier() for part in parts):
        message = f"{word!r} does not name a worker: write module:worker, like tasks:worker"
        raise InvalidRequestError(message)
    if not is_path:
        return WorkerTarget(name, attribute, Path.cwd(), None)
    file = Path(name).resolve()
    if not file.is_file():
        raise InvalidRequestError(f"there is no file {name}: name the module with your worker")
    root, module = file.parent, file.stem
    while (root / "__init__.py").exists():
        root, module = root.parent, f"{root.name}.{module}"
    return WorkerTarget(module.removesuffix(".__init__"), attribute, root, file)


def find_worker(target: WorkerTarget) -> Worker:
    """Import the module and return its worker."""
    collect_as_usual()
    module = _imported(target)
    _check_file(module, target)
    worker = _attribute(module, target) if target.attribute else _only_worker(module)
    if not worker.handlers:
        raise InvalidRequestError(
            f"the worker of {target.module} has no handlers: add one with "
            '@worker.handler("kind"), in a module that it imports'
        )
    return worker


def source_folder(target: WorkerTarget) -> Path:
    """Find the directory with the source of a module, without importing it."""
    top = target.module.partition(".")[0]
    put_on_path(target.root)
    importlib.invalidate_caches()
    spec = find_spec(top)
    if spec is None or spec.origin is None or not Path(spec.origin).exists():
        return target.root
    return Path(spec.origin).resolve().parent


def put_on_path(root: Path) -> None:
    """Put a directory first on the import path."""
    if str(root) not in sys.path[:1]:
        sys.path.insert(0, str(root))


def _imported(target: WorkerTarget) -> ModuleType:
    put_on_path(target.root)
    try:
        return importlib.import_module(target.module)
    except ModuleNotFoundError as error:
        if error.name and f"{target.module}.".startswith(f"{error.name}."):
            raise InvalidRequestError(
                f"there is no module {error.name!r}, neither in {target.root} nor installed: run "
                "the command in the folder of your code, or name the file, like tasks.py:worker"
            ) from None
        raise _import_failure(target, error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything
        raise _import_failure(target, error) from None


def _import_failure(target: WorkerTarget, error: BaseException) -> InvalidRequestError:
    """The error to raise for one that the user's module raised."""
    trace = "".join(traceback.format_exception(error.with_traceback(_theirs(error.__traceback__))))
    what = "ends the process" if isinstance(error, SystemExit) else "raises an error"
    summary = traceback.format_exception_only(error)[-1].strip()
    return InvalidRequestError(f"importing {target.module} {what}: {summary}\n{trace.rstrip()}")


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """Drop the frames of this program and of Python's import system from the start."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def _check_file(module: ModuleType, target: WorkerTarget) -> None:
    """Reject a module that was imported from another file than the named one."""
    found = getattr(module, "__file__", None)
    if target.file is None or (found is not None and Path(found).resolve() == target.file):
        return
    raise InvalidRequestError(
        f"{target.file} cannot be imported: Python has another module called {target.module} "
        f"({found or 'built in'}); give the file another name"
    )


def _attribute(module: ModuleType, target: WorkerTarget) -> Worker:
    from bucketq.worker.worker import Worker

    found: object = module
    for name in target.attribute.split("."):
        if not hasattr(found, name):
            message = f"{target.module} has no {target.attribute!r}; {_what_is_there(module)}"
            raise InvalidRequestError(message)
        found = getattr(found, name)
    if not isinstance(found, Worker):
        raise InvalidRequestError(
            f"{target.module}:{target.attribute} is a "
            f"{type(found).__name__}, not a bucketq.Worker; {_what_is_there(module)}"
        )
    return found


def _only_worker(module: ModuleType) -> Worker:
    """The one called ``worker``, or the only one there is."""
    workers = _workers(module)
    if _USUAL_NAME in workers:
        return workers[_USUAL_NAME]
    if len({id(worker) for worker in workers.values()}) == 1:
        return next(iter(workers.values()))
    raise InvalidRequestError(f"name a worker: {_what_is_there(module)}")


def _workers(module: ModuleType) -> dict[str, Worker]:
    from bucketq.worker.worker import Worker

    return {name: value for name, value in vars(module).items() if isinstance(value, Worker)}


def _what_is_there(module: ModuleType) -> str:
    names = [f"{module.__name__}:{name}" for name in _workers(module)]
    if not names:
        return f"{module.__name__} has no bucketq.Worker at its top level"
    return f"it has {' and '.join(names)}"
