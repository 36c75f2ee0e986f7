------------------------------ MODULE bucketq ------------------------------
(***************************************************************************)
(* How bucketq commits, what it does while a write is in doubt, how a      *)
(* broker takes over from another, and how a lease fences a worker.        *)
(*                                                                         *)
(* THE WORLD.  There is one object in a store: the queue.  It is changed   *)
(* by conditional PUTs alone ("replace version 3 by these bytes, which are *)
(* version 4").  A PUT that was sent may land at once, or much later, or   *)
(* never; when it lands, its sender may hear of it or not.                 *)
(*                                                                         *)
(* Processes write the object.  A process acts either as a BROKER, which   *)
(* first writes the next epoch into the object (a takeover), answers many  *)
(* requests, and steps down when it finds another epoch there; or as a     *)
(* DIRECT writer, which reads the object for one request and has no epoch. *)
(* Any process may crash at any moment and start again with nothing but    *)
(* the object; a PUT that it had sent stays on its way.                    *)
(*                                                                         *)
(* Clients send requests, each with an id, to any process, again and again *)
(* until one is answered.  There is one job: a producer pushes it, workers *)
(* claim it and complete it.  A claim hands out the job's next attempt     *)
(* number, which is the lease.  Expiry takes a lease away from a worker    *)
(* that may be alive and well; that worker is a zombie from then on.       *)
(*                                                                         *)
(* THE PROTOCOL.  A process applies a request to its copy of the object,   *)
(* sends the PUT, and answers once it knows that the PUT has landed.  On   *)
(* anything but a success (timeout, 5xx, conflict) it reads the object:    *)
(*                                                                         *)
(*    version = base               send the identical PUT again            *)
(*    ring's entry is my commit    it landed: answer                       *)
(*    ring's entry is another's    it never will: apply again on what was  *)
(*                                 read, or step down if the epoch changed *)
(*    ring no longer reaches back  cannot tell: the same, and the record   *)
(*                                 of applied requests decides             *)
(*                                                                         *)
(* The ring, kept in the object, holds the ids of the latest commits; the  *)
(* entry looked at is that of version base + 1.                            *)
(*                                                                         *)
(* VARIANTS.  The constant Variant is "Good" or the name of one mistake.   *)
(* Each mistake changes one decision; search for its name.                 *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Processes,   \* each a broker or a direct writer, as it happens
    Workers,
    MaxVersion,  \* the model ends at this version of the object
    MaxFlight,   \* so many different PUTs are on their way at a time
    RingSize,    \* so many commit ids are kept in the object
    Variant      \* "Good", or which mistake is made

VARIABLES
    store,  \* the object: version, ring of commit ids, state
    net,    \* PUTs on their way
    proc,   \* what each process has in memory
    told,   \* what the client of each request has been answered
    lied    \* has a heartbeat been answered "ok" for a lease that was gone?

vars == <<store, net, proc, told, lied>>

-----------------------------------------------------------------------------
(* REQUESTS, and what they do to the state of the queue.                   *)

Push        == <<"push", "producer">>
Claim(w)    == <<"claim", w>>
Complete(w) == <<"complete", w>>
Requests    == {Push} \union {Claim(w) : w \in Workers}
                      \union {Complete(w) : w \in Workers}

\* Answers.  A claim is answered by its attempt: 1, 2, ...
None    == 0
Ok      == 1
Refused == -1  \* the lease is lost: final, because attempts never fall
Failed  == -2  \* "it had no effect": only mistaken variants ever say so

NewState == [
    epoch   |-> 0,         \* raised by each takeover; 0: never had a broker
    status  |-> "absent",  \* of the job: absent, queued, running, done
    attempt |-> 0,         \* of the job: raised by each claim
    doneBy  |-> 0,         \* the attempt whose completion was accepted
    results |-> [r \in Requests |-> None],  \* the record for deduplication
    times   |-> [r \in Requests |-> 0]]     \* how often each took effect

\* The lease that a completion shows: what its worker was told.
Shown(r) == told[Claim(r[2])]

CanApply(s, r) ==
    CASE r[1] = "push"     -> TRUE
      [] r[1] = "claim"    -> s.status = "queued"
      [] r[1] = "complete" -> IF Variant = "NoFencing"
                              THEN s.status # "done"
                              ELSE s.status = "running" /\ s.attempt = Shown(r)

\* The lease is gone for good.  (s.attempt < Shown(r): too old a copy to tell.)
MustRefuse(s, r) ==
    r[1] = "complete" /\ ~CanApply(s, r) /\ s.attempt >= Shown(r)

NextAttempt(s) == IF Variant = "SameLease" THEN 1 ELSE s.attempt + 1

Apply(s, r) ==
    LET t == [s EXCEPT !.times[r] = @ + 1]
    IN CASE r[1] = "push"  -> [t EXCEPT !.results[r] = Ok, !.status = "queued"]
         [] r[1] = "claim" -> [t EXCEPT !.results[r] = NextAttempt(s),
                                        !.status = "running",
                                        !.attempt = NextAttempt(s)]
         [] OTHER          -> [t EXCEPT !.results[r] = Ok,
                                        !.status = "done", !.doneBy = Shown(r)]

-----------------------------------------------------------------------------
(* PROCESSES.                                                              *)
(*                                                                         *)
(* phase    down, standing (its takeover is on its way), idle (a broker    *)
(*          with nothing on its way), or writing                           *)
(* mine     the epoch that it leads; 0 for a direct writer                 *)
(* version  of its copy; while it waits, of what it is writing             *)
(* state    its copy; while it waits, what it is writing                   *)
(* commit   id of the commit on its way, or 0                              *)
(* reqs     the request to be answered when that commit has landed: none   *)
(*          for a takeover or an expiry                                    *)

Down == [phase |-> "down", mine |-> 0, version |-> 0, state |-> NewState,
         commit |-> 0, reqs |-> {}]

\* Nothing left to do: a broker keeps its copy, a direct writer is finished.
Rest(mine, v, s) ==
    IF mine = 0 THEN Down
    ELSE [Down EXCEPT !.phase = "idle", !.mine = mine, !.version = v, !.state = s]

Waiting(p) == proc[p].phase \in {"standing", "writing"}

\* Commit ids are unique.  An id that nothing carries any more is as good as new.
FreshCommit ==
    LET used == {store.ring[i] : i \in DOMAIN store.ring}
                \union {m.commit : m \in net} \union {proc[p].commit : p \in Processes}
    IN CHOOSE c \in 1..(Cardinality(used) + 1) : c \notin used

\* A PUT whose base has been replaced can only conflict: it need not be kept.
\* (The mistake: PUTs without a condition.  They can land on anything.)
CanLand(m, version) == m.version = version + 1 \/ Variant = "BlindPut"
Flying(ms, version) == {m \in ms : CanLand(m, version)}

Send(m) == net' = Flying(net \union {m}, store.version)

Message(q) == [version |-> q.version, state |-> q.state, commit |-> q.commit,
               by |-> IF q.phase = "standing" THEN q.state.epoch ELSE q.mine]

\* Freeze a commit of state s as version v, and send it.
Write(p, phase, v, s, reqs) ==
    LET q == [phase |-> phase, mine |-> proc[p].mine, version |-> v, state |-> s,
              commit |-> FreshCommit, reqs |-> reqs]
    IN /\ v <= MaxVersion
       /\ Cardinality({<<m.state, m.by>> : m \in net}) < MaxFlight
       /\ proc' = [proc EXCEPT ![p] = q]
       /\ Send(Message(q))

Become(p, q) == proc' = [proc EXCEPT ![p] = q] /\ UNCHANGED net
Tell(r, a)   == told' = [told EXCEPT ![r] = a]

\* Request r meets a copy of the object: version v, state s.
Submit(p, r, v, s, dedupe) ==
    IF dedupe /\ s.results[r] # None             \* applied before: same answer
    THEN Tell(r, s.results[r]) /\ Become(p, Rest(proc[p].mine, v, s))
    ELSE IF CanApply(s, r)
    THEN /\ Write(p, "writing", v + 1, Apply(s, r), {r})
         /\ IF Variant = "AckFirst" THEN Tell(r, Apply(s, r).results[r])
                                    ELSE UNCHANGED told
    ELSE IF MustRefuse(s, r)
    THEN Tell(r, Refused) /\ Become(p, Rest(proc[p].mine, v, s))
    ELSE UNCHANGED told /\ Become(p, Rest(proc[p].mine, v, s))  \* no answer yet

-----------------------------------------------------------------------------
(* WHAT PROCESSES DO.                                                      *)

\* Stand for broker: read the object, and try to write the next epoch into it.
\* Nobody needs a reason: a takeover from a healthy broker must be safe as well.
Stand(p) ==
    /\ proc[p].phase = "down"
    /\ Write(p, "standing", store.version + 1, [store.state EXCEPT !.epoch = @ + 1], {})
    /\ UNCHANGED <<store, told, lied>>

\* A request arrives: the first time, or again because its client heard nothing.
\* A broker takes it with the copy it has, a direct writer reads the object.
Accept(p, r) ==
    /\ told[r] = None
    /\ r[1] = "complete" => Shown(r) > 0         \* the worker must have a lease
    /\ CASE proc[p].phase = "idle" ->
                Submit(p, r, proc[p].version, proc[p].state, Variant # "NoDedupe")
         [] proc[p].phase = "down" ->
                Submit(p, r, store.version, store.state, Variant # "NoDedupe")
         [] OTHER -> FALSE
    /\ UNCHANGED <<store, lied>>

\* The lease seems too old.  A broker judges that, or, where there has never
\* been one, a direct writer.
Expire(p) ==
    LET from == IF proc[p].phase = "idle" THEN proc[p] ELSE store
    IN /\ \/ proc[p].phase = "idle"
          \/ proc[p].phase = "down" /\ store.state.epoch = 0
       /\ from.state.status = "running"
       /\ Write(p, "writing", from.version + 1, [from.state EXCEPT !.status = "queued"], {})
       /\ UNCHANGED <<store, told, lied>>

\* A heartbeat is answered from memory, but only by a broker that has just
\* proved (by a read) that its epoch is still in the object.
Beat(p, w) ==
    LET holds(s) == s.attempt = told[Claim(w)] /\ s.status \in {"running", "done"}
    IN /\ proc[p].phase = "idle"
       /\ told[Claim(w)] > 0 /\ holds(proc[p].state)
       /\ Variant = "ZombieAnswers" \/ proc[p].mine = store.state.epoch
       /\ lied' = (lied \/ ~holds(store.state))
       /\ UNCHANGED <<store, net, proc, told>>

\* A broker may act while the object holds its epoch, a direct writer always.
MayAct(p) ==
    \/ proc[p].mine = 0
    \/ proc[p].mine = store.state.epoch
    \/ Variant = "NoEpochCheck"

\* An idle broker reads the object again.
Refresh(p) ==
    /\ proc[p].phase = "idle"
    /\ Become(p, IF MayAct(p) THEN Rest(proc[p].mine, store.version, store.state)
                              ELSE Down)
    /\ UNCHANGED <<store, told, lied>>

\* The answers to give, and the memory to go on with, once a commit of process
\* memory q has landed.
Answers(q) == [r \in Requests |-> IF r \in q.reqs THEN q.state.results[r] ELSE told[r]]
After(q)   == Rest(IF q.phase = "standing" THEN q.state.epoch ELSE q.mine,
                   q.version, q.state)

\* Mistaken variants only: tell the client that nothing happened.
SayFailed(p) ==
    /\ told' = [r \in Requests |-> IF r \in proc[p].reqs THEN Failed ELSE told[r]]
    /\ Become(p, Rest(proc[p].mine, store.version, store.state))

\* The commit cannot land any more: apply its request again, to what was read.
\* Takeovers and expiries are dropped; somebody will think of them again.
Again(p) ==
    LET q == proc[p]
    IN IF q.phase = "standing" \/ ~MayAct(p)
       THEN Become(p, Down) /\ UNCHANGED told
       ELSE IF q.reqs = {}
       THEN Become(p, Rest(q.mine, store.version, store.state)) /\ UNCHANGED told
       ELSE IF Variant = "LoserOverwrites"       \* its memory, under the new ETag
       THEN /\ Write(p, "writing", store.version + 1,
                     [q.state EXCEPT !.epoch = store.state.epoch], q.reqs)
            /\ UNCHANGED told
       ELSE \E r \in q.reqs : Submit(p, r, store.version, store.state,
                                     Variant \notin {"NoDedupe", "FailedTryAgain"})

\* Who wrote version v?  0: the ring no longer tells.
RingEntry(v) ==
    LET i == Len(store.ring) - (store.version - v)
    IN IF i \in DOMAIN store.ring THEN store.ring[i] ELSE 0

\* Something else than a success arrives, or nothing for too long: read, decide.
Doubt(p) ==
    LET q     == proc[p]
        entry == RingEntry(q.version)
    IN /\ Waiting(p)
       /\ IF Variant = "FailedTryAgain"
          THEN Again(p)
          ELSE IF store.version < q.version
          THEN IF Variant = "BaseMeansFailed"
               THEN SayFailed(p)
               ELSE Send(Message(q)) /\ UNCHANGED <<proc, told>>
          ELSE IF Variant = "NoRing" /\ store.version > q.version
          THEN SayFailed(p)                      \* the latest commit is not mine
          ELSE IF entry = q.commit
          THEN told' = Answers(q) /\ Become(p, After(q))
          ELSE IF Variant = "ShortRing" /\ entry = 0
          THEN SayFailed(p)
          ELSE Again(p)
       /\ UNCHANGED <<store, lied>>

\* Mistaken variant only: while its PUT is in doubt, a process adds another
\* request to the commit and sends the new bytes under the same commit id.
Thaw(p, r) ==
    LET q == [proc[p] EXCEPT !.state = Apply(@, r), !.reqs = @ \union {r}]
    IN /\ Variant = "ThawedCommit"
       /\ proc[p].phase = "writing" /\ proc[p].reqs # {}
       /\ told[r] = None /\ r[1] # "complete" /\ proc[p].state.results[r] = None
       /\ CanApply(proc[p].state, r)
       /\ proc' = [proc EXCEPT ![p] = q]
       /\ Send(Message(q))
       /\ UNCHANGED <<store, told, lied>>

Crash(p) ==
    /\ proc[p].phase # "down"
    /\ Become(p, Down)
    /\ UNCHANGED <<store, told, lied>>

-----------------------------------------------------------------------------
(* WHAT THE NETWORK AND THE STORE DO.                                      *)

\* A PUT lands if the object is still what it was based on.  (The ring is part
\* of the bytes sent; since the base is unchanged, it can be made up here.)
Land(m) ==
    LET ring == Append(store.ring, m.commit)
    IN /\ CanLand(m, store.version)
       /\ store' = [version |-> m.version, state |-> m.state,
                    ring |-> IF Len(ring) > RingSize THEN Tail(ring) ELSE ring]
       /\ net' = Flying(net \ {m}, m.version)
       /\ UNCHANGED lied

\* ... and the sender, if it still waits, gets its success and answers;
LandHeard == \E m \in net, p \in Processes :
    /\ Waiting(p) /\ proc[p].commit = m.commit
    /\ Land(m)
    /\ told' = Answers(proc[p])
    /\ proc' = [proc EXCEPT ![p] = After(proc[p])]

\* ... or the success is lost: the sender will doubt.
LandUnheard == \E m \in net :
    /\ Land(m)
    /\ UNCHANGED <<proc, told>>

\* A PUT is lost on its way.
Drop == \E m \in net :
    /\ net' = net \ {m}
    /\ UNCHANGED <<store, proc, told, lied>>

-----------------------------------------------------------------------------
Init ==
    /\ store = [version |-> 0, ring |-> <<>>, state |-> NewState]
    /\ net = {}
    /\ proc = [p \in Processes |-> Down]
    /\ told = [r \in Requests |-> None]
    /\ lied = FALSE

Next ==
    \/ \E p \in Processes :
        \/ Stand(p) \/ Refresh(p) \/ Expire(p) \/ Doubt(p) \/ Crash(p)
        \/ \E r \in Requests : Accept(p, r) \/ Thaw(p, r)
        \/ \E w \in Workers : Beat(p, w)
    \/ LandHeard \/ LandUnheard \/ Drop

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* WHAT MUST HOLD.                                                         *)

\* An answer was already true in the object when it was given, and stays so.
AckedIsDurable ==
    \A r \in Requests : told[r] > 0 => store.state.results[r] = told[r]

\* No request takes effect twice.
AppliedOnce == \A r \in Requests : store.state.times[r] <= 1

\* What was reported as failed or refused never takes effect.
FailedHasNoEffect == \A r \in Requests : told[r] < 0 => store.state.times[r] = 0

\* At most one completion is accepted, and it is that of the current attempt.
OneCompletion ==
    /\ store.state.status = "done" => store.state.doneBy = store.state.attempt
    /\ Cardinality({w \in Workers : store.state.results[Complete(w)] = Ok}) <= 1

\* No two workers are given the same attempt.
OneOwner == \A v, w \in Workers :
    v # w /\ told[Claim(v)] > 0 => told[Claim(v)] # told[Claim(w)]

\* What can land was sent by the broker whose epoch it holds, or directly.
EpochFenced == \A m \in net : m.by \in {0, m.state.epoch}

\* A heartbeat is answered "ok" only for a lease that is still held.
HeartbeatTrue == ~lied

\* The object only goes forward, one version at a time.
OnlyForward == [][
    store' # store =>
        /\ store'.version = store.version + 1
        /\ store'.state.epoch >= store.state.epoch
        /\ store'.state.attempt >= store.state.attempt
        /\ store.state.status = "done" => store'.state.status = "done"]_vars

-----------------------------------------------------------------------------
(* WITNESSES: claims that must turn out FALSE for "Good", to show that the *)
(* model gets to the places where it could go wrong.                       *)

\* A zombie worker is refused after its successor's completion was accepted.
NeverZombie == \A w \in Workers :
    ~(told[Complete(w)] = Refused /\ store.state.status = "done")

\* A commit landed, and another was written on top, before its process looked.
NeverOnTop == \A p \in Processes :
    ~(Waiting(p) /\ store.version > proc[p].version
        /\ RingEntry(proc[p].version) = proc[p].commit)

\* A commit landed, and the ring has forgotten it before its process looked.
NeverForgotten == \A p \in Processes :
    ~(Waiting(p) /\ store.version >= proc[p].version /\ RingEntry(proc[p].version) = 0
        /\ \E r \in proc[p].reqs : store.state.results[r] # None)

\* A broker lost the race to a direct writer, and still leads.
NeverBeside == \A p \in Processes :
    ~(/\ proc[p].phase = "writing" /\ proc[p].mine > 0
      /\ store.version >= proc[p].version /\ proc[p].mine = store.state.epoch
      /\ RingEntry(proc[p].version) # proc[p].commit)

-----------------------------------------------------------------------------
(* FEWER STATES.  Processes are interchangeable, and so are workers.       *)
(* Besides, the name of a commit id means nothing: what matters is which   *)
(* process, if any, waits for it.  States that differ in names alone are   *)
(* the same, and of PUTs that nobody waits for one of each is enough.      *)

Symmetry == Permutations(Processes) \union Permutations(Workers)

Waiters(c) == {p \in Processes : Waiting(p) /\ proc[p].commit = c}

View == <<store.version, store.state, told, lied,
          [i \in DOMAIN store.ring |-> Waiters(store.ring[i])],
          {<<m.version, m.state, m.by, Waiters(m.commit)>> : m \in net},
          [p \in Processes |-> [proc[p] EXCEPT !.commit = 0]]>>
=============================================================================
