"""Tools for tests: a workbench for handlers, virtual time, and a store that fails on demand.

``Workbench`` is for the suites of programs that push jobs or handle them: it shows what was pushed,
runs handlers on the thread of the test, and moves time.

``run`` runs a coroutine on virtual time, ``SimulatedStore`` is storage whose links lose, delay and
repeat requests, and a ``Process`` can be killed or frozen at any await.
"""

from bucketq.testing.inline_worker import Ran
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.simulated_process import Process, SimulationError
from bucketq.testing.simulated_store import SimulatedStore, StoreLink
from bucketq.testing.store_faults import Faults
from bucketq.testing.virtual_loop import (
    DeadlockError,
    LivelockError,
    VirtualLoop,
    current_loop,
    run,
)
from bucketq.testing.workbench import Workbench

__all__ = [
    "DeadlockError",
    "Faults",
    "LivelockError",
    "Process",
    "Ran",
    "SimulatedClock",
    "SimulatedStore",
    "SimulationError",
    "StoreLink",
    "VirtualLoop",
    "Workbench",
    "current_loop",
    "run",
]
