"""Workers: claim jobs, run their handlers, and tell the queue what became of them.

**The life of a job in a worker**::

    claimed --> backlog --> running --> settling --> gone
                   |           |
                   |           +-- its handler is told to stop, for a reason: its lease is
                   |               lost or may be, somebody cancelled it, it took too long, or the
                   |               worker is in a hurry to end
                   +-- given back, where no slot came free soon, or the worker is stopping

From the claim until the queue has acknowledged the end, the job's lease is kept by heartbeats
(``lease``), also while it waits in the backlog and while its completion is on its way: what is
acknowledged is over, and nothing else is.

**Threads.** A handler may block the event loop it runs on; that must cost neither its lease nor
those of others. So whatever talks to the queue runs on a loop in a thread of its own (``worker``),
handlers on the loop of whoever called ``Worker.run``, in threads or in processes. The engine knows
none of this: to it a handler is something that a ``Runner`` runs.

**The rooms.** ``handlers`` binds functions to kinds; ``context`` is what a handler may ask for, and
``verdicts`` what it may raise; ``engine`` claims, runs and drains; ``attempt`` is one job in its
hands; ``lease`` keeps leases; ``settling`` says how jobs ended; ``pace`` says how many to fetch
ahead. ``runner`` is the seam, with ``home``, ``threads`` and ``processes`` behind it; ``worker`` is
what users see.
"""
