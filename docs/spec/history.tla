------------------------------ MODULE history ------------------------------
(***************************************************************************)
(* How the history of a queue is kept beside its commits, and how a change *)
(* feed reads it while rows move, objects are merged, and old rows are     *)
(* forgotten and deleted.  Copies of versions are in copies.tla.           *)
(*                                                                         *)
(* THE WORLD.  Every version of the queue object, called the head, has a   *)
(* row that says what it changed; the commit that makes the version writes *)
(* it.  As in segments.tla, a commit is one step.  The head holds the rows *)
(* from `first` on; earlier ones are in objects, which a listing finds.    *)
(* The history begins with version `since`.                                *)
(*                                                                         *)
(* An object is called by its bytes: the versions that it holds, and the   *)
(* marks of what they were cut from.  So two processes that put the same   *)
(* rows share a key.                                                       *)
(*                                                                         *)
(* Several KEEPERS work at once.  Each reads something, puts an object,    *)
(* and then sends deletes, with any time between; it may stop after any of *)
(* these, and deletes may arrive much later.  A keeper                     *)
(*   - MOVES rows that have landed: after the put, a commit drops them;    *)
(*   - MERGES two neighbours, and then deletes them;                       *)
(*   - CUTS an object that has forgotten rows and others: it puts the      *)
(*     others, with a mark, and then deletes the object.  One that has     *)
(*     only forgotten rows it just deletes.                                *)
(* If objects cannot be put, rows are given up: `since` rises past them.   *)
(*                                                                         *)
(* A FEED reads the head and yields the row after the last one that it has *)
(* yielded, from the head or from an object that it finds later.  If the   *)
(* head says that the row is forgotten, it reports the loss.               *)
(*                                                                         *)
(* VARIANTS.  The constant Variant is "Good" or the name of one mistake.   *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Keepers,
    MaxVersion,   \* the model ends at this version of the head
    MaxPuts,      \* so often keepers begin to put an object
    Variant       \* "Good", or which mistake is made

VARIABLES
    version,      \* of the head
    since,        \* the first version that the history has
    first,        \* the first version whose row the head holds
    stored,       \* the objects in the store
    work,         \* what each keeper is about to put, and to delete after that
    puts,         \* how often they have begun
    moved,        \* up to these versions a commit may drop rows: they are in objects
    late,         \* deletes that are on their way
    feed          \* where the feed is

vars == <<version, since, first, stored, work, puts, moved, late, feed>>

-----------------------------------------------------------------------------
\* `untrue` is a version of which it holds a row that was never part of the queue, or 0.
Object(from, to, marks) == [first |-> from, last |-> to, marks |-> marks, untrue |-> 0]
Holds(object, v) == object.first <= v /\ v <= object.last
Nothing == [kind |-> "none"]
Task(kind, object, olds) == [kind |-> kind, object |-> object, olds |-> olds]
Max(a, b) == IF a > b THEN a ELSE b

Init ==
    /\ version = 1 /\ since = 2 /\ first = 2
    /\ stored = {}
    /\ work = [k \in Keepers |-> Nothing]
    /\ puts = 0
    /\ moved = {}
    /\ late = {}
    /\ feed = [phase |-> "ready", after |-> 1, fault |-> "none"]

\* A commit adds its own row; the head holds those from `from` on.
Commit(begin, from) ==
    /\ version < MaxVersion
    /\ version' = version + 1
    /\ since' = Max(since, begin)
    /\ first' = Max(Max(first, from), since')
    /\ moved' = {last \in moved : last >= first'}
    /\ UNCHANGED <<stored, work, puts, late, feed>>

-----------------------------------------------------------------------------
Plan(k, task) ==
    /\ work[k] = Nothing /\ puts < MaxPuts
    /\ work' = [work EXCEPT ![k] = task]
    /\ puts' = puts + 1
    /\ UNCHANGED <<version, since, first, stored, moved, late, feed>>

PlanMove(k) ==
    /\ first <= version
    /\ Plan(k, Task("move", Object(first, version, {}), {}))

PlanMerge(k) ==
    \E a \in stored : \E b \in stored :
        /\ a.last + 1 = b.first
        /\ Plan(k, Task("merge", [Object(a.first, b.last, a.marks \cup b.marks)
                                    EXCEPT !.untrue = Max(a.untrue, b.untrue)], {a, b}))

\* What is left of an object: it has a name that no object had before.
Cut(old, begin) ==
    [old EXCEPT !.first = begin,
                !.marks = {mark \in @ : mark.at > begin} \cup
                             (IF Variant = "CutUnmarked" THEN {} ELSE {[at |-> begin, of |-> old]})]

\* Where the history begins; with the mistake SweepAhead, in memory: that commit will be lost.
Begin == IF Variant = "SweepAhead" THEN version + 1 ELSE since

PlanCut(k) ==
    \E old \in stored :
        /\ old.first < Begin /\ Begin <= old.last
        /\ Plan(k, Task("cut", Cut(old, Begin), {old}))

\* The mistake LostRow: rows are put when a commit is encoded.  This one is lost to another.
PlanLost(k) ==
    /\ Variant = "LostRow"
    /\ Plan(k, Task("move", [Object(first, version + 1, {}) EXCEPT !.untrue = version + 1], {}))

Finish(k) ==
    LET task == work[k] IN
    /\ task # Nothing
    /\ stored' = stored \cup {task.object}
    /\ late' = late \cup task.olds
    /\ moved' = IF task.kind = "move" /\ task.object.last >= first
                THEN moved \cup {task.object.last} ELSE moved
    /\ work' = [work EXCEPT ![k] = Nothing]
    /\ UNCHANGED <<version, since, first, puts, feed>>

Delete(object) ==
    /\ late' = late \cup {object}
    /\ UNCHANGED <<version, since, first, stored, work, puts, moved, feed>>

DeleteForgotten == \E object \in stored \ late : object.last < Begin /\ Delete(object)

\* The mistake DropCovered: delete an object because another one that was listed has its rows.
DeleteCovered ==
    \E a \in stored : \E b \in stored \ {a} :
        Variant = "DropCovered" /\ b.first <= a.first /\ a.last <= b.last /\ Delete(a)

DeleteArrives ==
    \E object \in late :
        /\ stored' = stored \ {object}
        /\ late' = late \ {object}
        /\ UNCHANGED <<version, since, first, work, puts, moved, feed>>

-----------------------------------------------------------------------------
OtherCommit == Commit(since, first)

\* With the mistake DropFirst, rows are dropped while they are being put.
DropRows ==
    \E last \in moved \cup (IF Variant # "DropFirst" THEN {} ELSE
                            {work[k].object.last : k \in {k \in Keepers : work[k].kind = "move"}}) :
        Commit(since, last + 1)

GiveUpRows ==
    \E last \in first..version :
        Commit(IF Variant = "SilentLoss" THEN since ELSE last + 1, last + 1)

\* By retention or by a person.
Forget == \E begin \in (since + 1)..(version + 1) : Commit(begin, begin)

\* Changed in a way that no row describes; or history was off for this version.
BreakOff == Commit(version + 2, version + 2)

-----------------------------------------------------------------------------
\* What is wrong with yielding these versions, if the head that was read begins with `begin`.
Fault(rows, object, begin) ==
    CASE \E v \in rows : v <= feed.after -> "twice"
      [] feed.after + 1 \notin rows -> "skipped"
      [] \E v \in rows : v = object.untrue -> "untrue"
      [] \E v \in rows : v < begin -> "forgotten"
      [] OTHER -> "none"

Yield(rows, object, begin) ==
    /\ rows # {}
    /\ feed' = [phase |-> "ready", after |-> CHOOSE v \in rows : \A w \in rows : w <= v,
                fault |-> Fault(rows, object, begin)]

FeedRead ==
    LET next == feed.after + 1 IN
    /\ feed.phase = "ready" /\ feed.after < version
    /\ IF next < since /\ Variant # "ReadForgotten"
       THEN IF Variant = "SkipGap"
            THEN since <= version /\ Yield({since}, Object(since, since, {}), since)
            ELSE feed' = [feed EXCEPT !.phase = "loss"]
       ELSE IF next >= first
            THEN Yield({next}, Object(next, next, {}), since)
            ELSE feed' = [phase |-> "old", begin |-> since, after |-> feed.after, fault |-> "none"]
    /\ UNCHANGED <<version, since, first, stored, work, puts, moved, late>>

\* It reads all rows of an object at once.
FeedObject ==
    /\ feed.phase = "old"
    /\ \E object \in stored :
         /\ Holds(object, feed.after + 1)
         /\ Yield({v \in object.first..object.last : v > feed.after \/ Variant = "WholeObject"},
                  object, feed.begin)
    /\ UNCHANGED <<version, since, first, stored, work, puts, moved, late>>

\* It finds no object: the row was moved or forgotten meanwhile, or the listing is late.
FeedAgain ==
    /\ feed.phase = "old"
    /\ feed' = [phase |-> "ready", after |-> feed.after, fault |-> "none"]
    /\ UNCHANGED <<version, since, first, stored, work, puts, moved, late>>

Next ==
    \/ \E k \in Keepers : \/ PlanMove(k) \/ PlanMerge(k) \/ PlanCut(k) \/ PlanLost(k)
                          \/ Finish(k)
    \/ DeleteForgotten \/ DeleteCovered \/ DeleteArrives
    \/ OtherCommit \/ DropRows \/ GiveUpRows \/ Forget \/ BreakOff
    \/ FeedRead \/ FeedObject \/ FeedAgain

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* H4: every version from `since` on is in the head or in an object.
NoHole ==
    \A v \in since..version :
        v >= first \/ \E object \in stored : Holds(object, v) /\ v # object.untrue

\* Every version once, or a loss is reported.
FeedOnce == feed.fault \notin {"twice", "skipped"}

\* H2: no version that was never part of the queue.
FeedTrue == feed.fault # "untrue"

\* Nothing that the head had forgotten when it was read.
ForgottenStaysSo == feed.fault # "forgotten"

\* A loss is reported only if there is one.
LossIsTrue == feed.phase = "loss" => feed.after + 1 < since

OnlyForward == [][since' >= since /\ first' >= first /\ feed'.after >= feed.after]_vars

\* What the model must be able to reach, or it would prove nothing.
NeverCut == \A object \in stored : object.marks = {}
NeverJoined == \A k \in Keepers : work[k].kind # "merge"
NeverOld == ~(feed.phase = "old" /\ \E object \in stored : Holds(object, feed.after + 1))
NeverLoss == feed.phase # "loss"

Symmetry == Permutations(Keepers)
=============================================================================
