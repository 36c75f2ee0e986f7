"""Workers: claim jobs, run their handlers, and report the outcomes to the queue.

**The life of a job in a worker**::

    claimed --> backlog --> running --> settling --> gone
                   |           |
                   |           +-- its handler is stopped, for one of these reasons: its lease is
                   |               lost or may be, the job was cancelled, it took too long, or the
                   |               worker has to stop at once
                   +-- released, if no slot became free in time, or the worker is stopping

From the claim until the queue has acknowledged the outcome, heartbeats renew the job's lease
(``lease``), also while the job waits in the backlog and while its completion is being sent: a job
is over when that is acknowledged, and not before.

**Threads.** A handler may block the event loop it runs on; that must cost neither its lease nor
those of others. So the code that talks to the queue runs on an event loop in its own thread
(``worker``), and handlers run on the loop that called ``Worker.run``, in threads or in processes.
The engine does not depend on that: to it a handler is something that a ``Runner`` runs.

**The modules.** ``handlers`` binds functions to kinds; ``context`` is what a handler may ask for,
and ``handler_exceptions`` what it may raise; ``lifespan`` and ``middleware`` run before, after and
around handlers; ``typed_push`` pushes through them; ``engine`` claims, runs and drains; ``attempt``
is one attempt at a job, and ``job_log`` what is logged about it; ``lease`` renews leases;
``settling`` reports outcomes; ``prefetch`` computes how many jobs to fetch ahead. ``runner`` is the
interface of ``caller_loop``, ``threads`` and ``processes``; ``worker`` is the public class.
"""
