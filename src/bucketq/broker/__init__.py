"""The broker: one process commits for everybody, and any other can take its place.

**What it is.** A broker is group commit behind an address. It holds nothing that is not in the
object or about to be written there, so it may be killed at any moment: whatever was acknowledged
is in the object, and whatever was not is sent again by its client, under the same id, to whoever
is broker then. There is no other store, no quorum and no lock service. The object is the arbiter:
it names one broker and its *epoch*, and every takeover is a compare-and-set that raises it.

**The states of a broker**::

                     nobody is recorded, or there is evidence that
                     whoever is recorded is gone; then a takeover
                     by compare-and-set: epoch + 1, own address
        +-------------+ ---------------------------------> +---------+
        | standing by |                                    | leading |
        +-------------+ <--------------------------------- +---------+
           ^      |       another epoch was found in the    |  ^   |
           |      |       object: step down, cool down      |  |   | SIGTERM: take no more, flush,
           |      |                                    no   |  |   | answer, clear the address
         start    | SIGTERM                         proof   v  |   | under the own epoch
                  |                              at all   +---------+
                  v                                       | cut off |
              +---------+                                 +---------+
              | retired | <---------------------------------  |   SIGTERM
              +---------+

**Epochs.** The epoch in the object never falls. A takeover says which epoch it follows, inside
the compare-and-set, so of all who stand on the same news one wins and the others are told. A
broker whose write is refused reads the object: if the epoch is still its own, a direct writer came
between, and it goes on with the fresh state; if it is another's, it steps down, answers everything
that has no answer with "superseded, go there", and never fights. Fencing is therefore not a check
that could be forgotten: a deposed broker cannot write, for its etag is old.

**Evidence.** Slow storage is not a dead broker, and a takeover makes nothing faster. So before
anybody stands, a *ping* must fail, which a broker answers from memory at once, whatever its storage
does. Three things are evidence: nobody listens at the recorded address, or somebody else does
(once, and once more after a short random wait); no answer to two pings in a row (it is frozen,
cut off, or its host is gone); or the broker says itself that it is cut off from its storage. Then
the candidate waits a random moment, reads the object again, and stands only if the epoch is still
the one it has evidence against.

**Proof.** What a broker answers from memory (heartbeats, claims that find nothing) is true only
while it leads. So such an answer needs a proof of leadership that is at most two seconds old: a
write of its own that landed, or a conditional read that found its own version still there. An idle
broker proves itself every five seconds, and every second while claims wait. One that cannot prove
itself does not answer from memory, and once the storage should have answered long since (20 s, and
more for a large object) it says in every ping that it is cut off.

**Grace.** Silence of workers is judged by the broker's own monotonic clock (``silence.py``). How
long each has been silent is written into the object as a duration every third of a lease, so a
successor goes on from there without comparing clocks; but nobody is judged before a grace period
has passed since the takeover, or since the broker itself stood still. The grace is a floor under
what was left and not a new lease: brokers that keep crashing still reclaim.

**What happens at each failure.**

* *kill -9 of the broker, at any await.* The clients' connections break. They, and brokers that
  stand by, find nobody listening, and one of them takes over. Requests are sent again under their
  ids; those whose write had landed are answered from the sessions in the object.
* *The broker's host vanishes.* The same, after two pings without an answer.
* *SIGSTOP, a long pause, a suspended machine.* Pings go unanswered, somebody takes over. When the
  old broker wakes, its write fails, it finds the other epoch and steps down. What it would answer
  from memory needs a proof, and its proof is old.
* *Storage is slow or gone for all.* The broker answers pings, so nobody stands. Callers wait until
  their own deadline and are told that the outcome is unknown. Nothing is lost when it comes back.
  If it can be read, reads are answered from the object meanwhile.
* *Only the broker is cut off from storage.* After a while it says so, and whoever does reach
  the storage takes over.
* *A client is cut off from the broker alone.* For this client the broker is dead, and it takes
  over if it may be a broker. If that goes to and fro, cool-down doubles: a broker that was deposed
  while it was alive does not stand again for a while.
* *Two brokers at once.* Each believes to lead until it writes or must prove itself. One succeeds,
  the other is deposed by that. Slow, never wrong.
* *The address is used again by something else.* A broker has a random id, in the object and in each
  connection. Whoever answers under another id is not the broker that is recorded.
* *The broker is told to stop while its successor leads already.* It clears the address only under
  its own id and epoch.

**The rooms.** ``election`` has evidence and takeover; ``standby`` watches the broker that leads;
``candidacy`` what a broker remembers of its own takeovers; ``leader`` the group commit that knows
its epoch; ``silence`` who has been heard; ``access`` who may ask for what; ``inbox`` what has come
and in which order it is let in; ``broker`` the life of one broker of one queue; ``server`` several
of them behind one address.
"""
