"""How handlers get to the executors: a parcel that is packed on the driver and opened there.

A function of a module goes by its name, and the executor imports the module: from what is installed
there, from what was sent with ``--py-files``, or from the folder that it has here, where the
executor sees the same files. A function of a program's main file goes by its code, as with any
other function on Spark. Nothing that comes from a job is ever unpickled, only this.
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

_DIFFERENT_RUNS = 4
"""How many parcels a Python process of Spark keeps open: one for each run that it works for."""


class Shipment(Struct, frozen=True):
    """Handlers on their way."""

    body: bytes
    roots: tuple[str, ...]
    """Where the modules of the handlers are, on the driver."""


class NotDelivered(Exception):  # noqa: N818 - it never leaves this package
    """The handlers could not be opened on an executor; the text tells why."""


def pack(handlers: Mapping[str, Handler]) -> Shipment:
    """Pack handlers. Raises ``InvalidRequestError`` where one cannot be sent."""
    from pyspark import cloudpickle  # noqa: PLC0415 - pyspark is an extra

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    for handler in handlers.values():
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
    return Shipment(dumps(dict(handlers)), tuple(roots))


@lru_cache(maxsize=_DIFFERENT_RUNS)
def unpack(shipment: Shipment) -> dict[str, Handler]:
    """Open a parcel, on an executor. Raises ``NotDelivered``."""
    from pyspark import cloudpickle  # noqa: PLC0415 - pyspark is an extra

    added = [root for root in shipment.roots if root not in sys.path and Path(root).is_dir()]
    # Behind the rest: what was sent along or installed goes before what happens to be here.
    sys.path.extend(added)
    importlib.invalidate_caches()
    try:
        handlers: dict[str, Handler] = cloudpickle.loads(shipment.body)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise NotDelivered(message) from error
    return handlers


def _root(handler: Handler) -> str | None:
    """The folder from which the module of a handler is imported; None where it goes by its code."""
    name = getattr(handler.function, "__module__", None) or "__main__"
    file = getattr(sys.modules.get(name), "__file__", None)
    if name == "__main__" or file is None:
        return None
    path = Path(file).resolve()
    # A package is one folder higher than its __init__.py, for each dot in its name.
    ups = name.count(".") + (path.name == "__init__.py")
    return str(path.parents[ups])
