"""Tools for tests, public: a workbench for users of a queue, a simulation for its builders.

``Workbench`` is for the suites of programs that push jobs or handle them: it shows what was pushed,
runs handlers on the thread of the test, and moves time.

``run`` plays a coroutine on virtual time, ``SimulatedStore`` is storage whose links lose, delay and
repeat requests, ``Process`` can be killed at any await, and ``simulate`` puts them together around
a real queue and checks that it keeps its promises.
"""

from bucketq.testing.clock import SimulatedClock
from bucketq.testing.faults import Faults
from bucketq.testing.history import History, Witness
from bucketq.testing.inline import Ran
from bucketq.testing.invariants import InvariantError, check
from bucketq.testing.loop import DeadlockError, LivelockError, VirtualLoop, current_loop, run
from bucketq.testing.process import Process, SimulationError
from bucketq.testing.simulation import Report, simulate
from bucketq.testing.store import SimulatedStore, StoreLink
from bucketq.testing.workbench import Workbench

__all__ = [
    "DeadlockError",
    "Faults",
    "History",
    "InvariantError",
    "LivelockError",
    "Process",
    "Ran",
    "Report",
    "SimulatedClock",
    "SimulatedStore",
    "SimulationError",
    "StoreLink",
    "VirtualLoop",
    "Witness",
    "Workbench",
    "check",
    "current_loop",
    "run",
    "simulate",
]
