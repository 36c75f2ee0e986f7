"""Pickles handlers on the driver, and loads them on executors.

A function of a module is pickled by its name, and the executor imports the module: from what is
installed there, from what was sent with ``--py-files``, or from the folder that it has on the
driver, if the executor sees the same files. A function of a program's main file is pickled with its
code, as for any function on Spark. Nothing that comes from a job is ever unpickled, only this.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from bucketq.errors import InvalidRequestError
from bucketq.worker.handlers import Handler

_RUNS_MAX = 4
"""How many sets of handlers a Python process of Spark keeps: one for each run that uses it."""


class PickledHandlers(Struct, frozen=True):
    """Handlers that can be sent to executors."""

    body: bytes
    roots: tuple[str, ...]
    """The folders of the handlers' modules on the driver."""


class HandlersNotLoaded(Exception):  # noqa: N818 - it never leaves this package
    """The handlers could not be loaded on an executor; the message says why."""


def pickle_handlers(handlers: Mapping[str, Handler]) -> PickledHandlers:
    """Pickle handlers. Raises ``InvalidRequestError`` if one cannot be pickled."""
    from pyspark import cloudpickle  # noqa: PLC0415 - pyspark is an extra

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    for handler in handlers.values():
        if handler.state_names:
            raise InvalidRequestError(
                f"the handler of kind {handler.kind!r} takes worker.state(...), which Spark's "
                "executors do not have: open what it needs inside it"
            )
        try:
            dumps(handler)
        except Exception as error:
            name = getattr(handler.function, "__qualname__", repr(handler.function))
            message = (
                f"the handler of kind {handler.kind!r}, {name}, cannot be sent to Spark's "
                f"executors: {error}; put it in a module of its own, or open what it uses inside it"
            )
            raise InvalidRequestError(message) from error
    roots = {root: None for handler in handlers.values() if (root := _root(handler))}
    return PickledHandlers(dumps(dict(handlers)), tuple(roots))


@lru_cache(maxsize=_RUNS_MAX)
def load_handlers(pickled: PickledHandlers) -> dict[str, Handler]:
    """Load handlers, on an executor. Raises ``HandlersNotLoaded``."""
    from pyspark import cloudpickle  # noqa: PLC0415 - pyspark is an extra

    added = [root for root in pickled.roots if root not in sys.path and Path(root).is_dir()]
    # At the end: modules that were sent or installed go before those that happen to be here.
    sys.path.extend(added)
    importlib.invalidate_caches()
    try:
        handlers: dict[str, Handler] = cloudpickle.loads(pickled.body)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise HandlersNotLoaded(message) from error
    return handlers


def _root(handler: Handler) -> str | None:
    """Return the folder of a handler's module; None if it is pickled with its code."""
    name = getattr(handler.function, "__module__", None) or "__main__"
    file = getattr(sys.modules.get(name), "__file__", None)
    if name == "__main__" or file is None:
        return None
    path = Path(file).resolve()
    # One folder up for each dot in the name, and one more for an __init__.py.
    ups = name.count(".") + (path.name == "__init__.py")
    return str(path.parents[ups])
