"""A client process: it loads one adapter and does what it is asked, one line of JSON at a time.

``python -m benchmarks.peers.client '{"adapter": "module:Class", ...}'`` answers on stdout to each
line on stdin. It runs on the Python of the peer, so it needs nothing but the standard library and
the peer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import traceback
from dataclasses import asdict
from importlib import import_module
from typing import Any

from benchmarks.peers.adapter import Adapter
from benchmarks.peers.work import TURNS, count_usage, cycle, fill, recover, work_together


class Client:
    """An adapter, and what can be asked of it."""

    def __init__(self, adapter: Adapter, name: str) -> None:
        self._adapter = adapter
        self._name = name
        self._asked = 0

    async def answer(self, do: str, **options: Any) -> Any:
        """Carry out a command."""
        self._asked += 1
        name = f"{self._name}-{self._asked}"
        if do == "warm":
            # A turn for each caller, which opens the connections of the pool.
            callers = options["callers"]
            return await work_together(
                self._adapter, cycle, name=name, callers=callers, jobs=callers
            )
        if do == "fill":
            return await fill(self._adapter, name=name, **options)
        if do == "recover":
            return await recover(self._adapter, name=name)
        if do == "usage":
            return await count_usage(self._adapter, name=name, **options)
        return await work_together(self._adapter, TURNS[do], name=name, **options)


def load(adapter: str, address: str, *, connections: int, slow: bool) -> Adapter:
    """Import an adapter, given as ``module:Class``."""
    module, _, name = adapter.partition(":")
    found = getattr(import_module(f"benchmarks.peers.{module}"), name)
    made: Adapter = found(address, connections=connections, slow=slow)
    return made


async def serve(options: dict[str, Any], answers: Any) -> None:
    """Set the adapter up, answer commands until stdin ends, and close it."""
    name, is_first = options.pop("name"), options.pop("is_first")
    adapter = load(**options)
    await adapter.setup(is_first=is_first)
    client = Client(adapter, name)
    print("{}", file=answers, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        answer = await client.answer(**json.loads(line))
        print(json.dumps(asdict(answer)), file=answers, flush=True)
    await adapter.close()


def main() -> int:
    """Serve. What the peer prints goes to stderr, and an error becomes the last answer."""
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        asyncio.run(serve(json.loads(sys.argv[1]), answers))
    except Exception as error:  # noqa: BLE001 - reported to the process that asked
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps({"error": message}), file=answers, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
