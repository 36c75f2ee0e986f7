"""The broker: one process commits for all clients, and any other can take its place.

**What it is.** A broker is group commit behind an address. It holds nothing that is not in the
object or about to be written there, so it may be killed at any moment: what was acknowledged is in
the object, and what was not is retried by its client, under the same id, at the next broker. There
is no other store, no quorum and no lock service. The object is the arbiter: it names one broker and
its *epoch*, and every takeover is a compare-and-set that increments the epoch.

**The states of a broker**::

                     no broker is recorded, or there is evidence
                     that the recorded one is gone; then a takeover
                     by compare-and-set: epoch + 1, own address
        +-------------+ ---------------------------------> +---------+
        | standing by |                                    | leading |
        +-------------+ <--------------------------------- +---------+
           ^      |       another epoch was found in the    |  ^   |
           |      |       object: step down, cool down      |  |   | SIGTERM: reject calls, flush,
           |      |                                    no   |  |   | answer, clear the address
         start    | SIGTERM                         proof   v  |   | under the own epoch
                  |                              at all   +---------+
                  v                                       | cut off |
              +---------+                                 +---------+
              | retired | <---------------------------------  |   SIGTERM
              +---------+

**Epochs.** The epoch in the object never decreases. A takeover names the epoch that it follows,
inside the compare-and-set, so of several candidates one wins and the others notice. A broker whose
write conflicts reads the object. If the epoch is still its own, a direct writer was faster, and it
resumes with the fresh state. If not, it steps down, answers all pending requests with "superseded,
go there", and does not try to get the queue back. Fencing is therefore not a check that could be
forgotten: a deposed broker cannot write, because its etag is old.

**Evidence.** A broker with slow storage is not dead, and a takeover makes nothing faster. So first
a *ping* must fail, which a broker answers from memory at once, whatever its storage does. Three
things are evidence: nothing listens at the recorded address, or something else does (once, and once
more after a short random wait); no answer to any ping for 2.2 s, with a new ping every half second
(it is frozen, cut off, or its host is gone); or the broker itself reports that it is cut off from
its storage. A candidate that was frozen itself meanwhile starts over. Then the candidate waits for
a random moment, reads the object again, and takes over only if the epoch is still the one that it
has evidence against.

**Proof.** What a broker answers from memory (heartbeats, claims that find nothing) is true only
while it leads. So such an answer needs a proof of leadership that is at most two seconds old: a
write of its own that landed, or a conditional read that found its own version still there. An idle
broker proves itself every five seconds, and every second while claims wait. If it cannot, it does
not answer from memory, and after twice the time in which the storage must answer (20 s, and more
for a large object) it reports in every ping that it is cut off.

**Grace.** The broker's own monotonic clock decides which workers are silent (``heartbeats``). How
long each has been silent is written into the object as a duration every third of a lease, so that a
successor continues from there without comparing clocks. No lease ends before a grace period has
passed since the takeover, or since the broker itself was frozen. The grace period is a floor under
what was left of a lease, not a new lease: brokers that keep crashing still reclaim jobs.

**What happens at each failure.**

* *kill -9 of the broker, at any await.* The clients' connections break. They, and brokers that
  stand by, find nothing listening, and one of them takes over. Requests are retried under their
  ids; those whose write had landed are answered from the sessions in the object.
* *The broker's host vanishes.* The same, after 2.2 s without an answer to any ping.
* *SIGSTOP, a long pause, a suspended machine.* Pings go unanswered, and another broker takes over.
  When the old broker wakes, its write fails, it finds the other epoch and steps down. What it would
  answer from memory needs a proof, and its proof is old.
* *The same, after a claim was committed and before it was answered.* Its lease runs already. So a
  client whose claims wait gets a message every three seconds; after five without one it pings, and
  sends the claim to the next broker, which answers with the same jobs.
* *Storage is slow or gone for all.* The broker answers pings, so there is no takeover. Callers wait
  until their own deadline, and their outcome is unknown. Nothing is lost when the storage is back.
  If it can be read, reads are answered from the object meanwhile.
* *Only the broker is cut off from storage.* After a while it reports that, and a process that does
  reach the storage takes over.
* *A client is cut off from the broker alone.* For this client the broker is dead, and it takes
  over if it may be a broker. If that goes to and fro, cool-down doubles: a broker that was deposed
  while it was alive does not stand again for a while.
* *Two brokers at once.* Each assumes that it leads until it writes or must prove itself. One
  succeeds, and thereby deposes the other. That is slow, but never wrong.
* *The address is used again by something else.* A broker has a random id, in the object and in each
  connection. A process that answers with another id is not the recorded broker.
* *The broker is stopped while its successor already leads.* It clears the address only under its
  own id and epoch.

**The modules.** ``takeover`` has evidence and takeover; ``standby`` watches the broker that leads;
``candidacy`` keeps what a broker knows of its own takeovers; ``leader`` is group commit with an
epoch; ``heartbeats`` finds silent workers; ``token_guard`` checks tokens and rights; ``inbox``
queues calls; ``broker_connection`` is one client; ``broker`` is the lifecycle of one broker of one
queue; ``server`` runs several of them behind one address.
"""
