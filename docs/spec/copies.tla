------------------------------ MODULE copies ------------------------------
(***************************************************************************)
(* How copies of versions are kept, from which later versions are rebuilt, *)
(* and how they keep the segments that they name from being deleted.       *)
(*                                                                         *)
(* THE WORLD.  The queue object, called the head, names segments, and      *)
(* lists the copies that are kept.  As in segments.tla, a commit is one    *)
(* step.  How segments are put and named is in segments.tla: here a commit *)
(* introduces one that is in the store, and that no later version may      *)
(* introduce.  So a segment is called by that version.                     *)
(*                                                                         *)
(* Several KEEPERS work at once, and each can stop for any time between    *)
(* any two steps.  A keeper takes a version that has landed, PUTS a copy   *)
(* of it, and LISTS the copy by a later commit: only if the head on which  *)
(* that commit is based names every segment that the copy names, if it is  *)
(* at most Window versions after the copy's own, and if that version is    *)
(* not forgotten.  FORGETTING is a commit that raises `since`; the head    *)
(* keeps listing the copy of the version before it, and later ones.        *)
(*                                                                         *)
(* A SWEEPER of segments reads the head and the copies that it lists, and  *)
(* sends deletes, which may arrive much later: of what none of these       *)
(* names.  A sweeper of copies deletes those that the head does not list,  *)
(* if it is Window versions later or has forgotten them.                   *)
(*                                                                         *)
(* VARIANTS.  The constant Variant is "Good" or the name of one mistake.   *)
(***************************************************************************)
EXTENDS Naturals

CONSTANTS
    Keepers,
    MaxVersion,   \* the model ends at this version of the head
    Window,       \* so many versions after its own a copy may be listed
    Variant       \* "Good", or which mistake is made

VARIABLES
    version,      \* of the head
    since,        \* the first version that the history has
    named,        \* the head's segments
    heads,        \* the versions whose copies the head lists
    stored,       \* the segments in the store
    copies,       \* the copies in the store
    work,         \* the copy that each keeper has put and not yet listed
    sweep,        \* what the sweeper of segments keeps, and the version that it has read
    lateSegs,     \* deletes of segments that are on their way
    lateCopies    \* deletes of copies that are on their way: versions

vars == <<version, since, named, heads, stored, copies, work, sweep, lateSegs, lateCopies>>

-----------------------------------------------------------------------------
Nothing == [kind |-> "none"]
Versions(some) == {copy.version : copy \in some}
NamedBy(some) == UNION {copy.names : copy \in some}
Listed == {copy \in copies : copy.version \in heads}

Init ==
    /\ version = 1 /\ since = 1
    /\ named = {} /\ heads = {} /\ stored = {} /\ copies = {}
    /\ work = [k \in Keepers |-> Nothing]
    /\ sweep = Nothing
    /\ lateSegs = {} /\ lateCopies = {}

Commit(names, lists) ==
    /\ version < MaxVersion
    /\ version' = version + 1
    /\ named' = names
    /\ heads' = lists

-----------------------------------------------------------------------------
Introduce ==
    /\ Commit(named \cup {version + 1}, heads)
    /\ stored' = stored \cup {version + 1}
    /\ UNCHANGED <<since, copies, work, sweep, lateSegs, lateCopies>>

Drop ==
    \E seg \in named :
        /\ Commit(named \ {seg}, heads)
        /\ UNCHANGED <<since, stored, copies, work, sweep, lateSegs, lateCopies>>

\* The head keeps a copy of the version before those that it knows.  The last of these begins the
\* history anew after this commit: it was off, or no row describes the commit.
Forget ==
    \E begin \in (since + 1)..(version + 2) :
        /\ Commit(named, {v \in heads : v + 1 >= begin})
        /\ since' = begin
        /\ UNCHANGED <<stored, copies, work, sweep, lateSegs, lateCopies>>

OtherCommit ==
    /\ Commit(named, heads)
    /\ UNCHANGED <<since, stored, copies, work, sweep, lateSegs, lateCopies>>

-----------------------------------------------------------------------------
\* A keeper reads the head, and encodes a copy of it.
Take(k) ==
    /\ work[k] = Nothing
    /\ work' = [work EXCEPT ![k] = [kind |-> "taken", version |-> version, names |-> named]]
    /\ UNCHANGED <<version, since, named, heads, stored, copies, sweep, lateSegs, lateCopies>>

\* The put may arrive late.
Put(k) ==
    /\ work[k].kind = "taken"
    /\ copies' = copies \cup {[version |-> work[k].version, names |-> work[k].names]}
    /\ work' = [work EXCEPT ![k].kind = "put"]
    /\ UNCHANGED <<version, since, named, heads, stored, sweep, lateSegs, lateCopies>>

MayList(copy) ==
    /\ copy.kind = "put" \/ (copy.kind = "taken" /\ Variant = "ListFirst")
    /\ \A v \in heads : v < copy.version
    /\ Variant = "ListDropped" \/ copy.names \subseteq named
    /\ Variant = "ListLate" \/ version + 1 <= copy.version + Window
    /\ Variant = "ListForgotten" \/ copy.version + 1 >= since

List(k) ==
    /\ work[k] # Nothing /\ MayList(work[k])
    /\ Commit(named, heads \cup {work[k].version})
    \* Or it does not hear that it landed.
    /\ \E next \in {Nothing, work[k]} : work' = [work EXCEPT ![k] = next]
    /\ UNCHANGED <<since, stored, copies, sweep, lateSegs, lateCopies>>

\* Killed, or the copy may not be listed any more.
GiveUp(k) ==
    /\ work[k].kind = "put"
    /\ work' = [work EXCEPT ![k] = Nothing]
    /\ UNCHANGED <<version, since, named, heads, stored, copies, sweep, lateSegs, lateCopies>>

-----------------------------------------------------------------------------
\* It reads the head, and then the copies that this lists; one that is not there keeps nothing.
SweepRead ==
    /\ sweep = Nothing
    /\ sweep' = [kind |-> "head", version |-> version, names |-> named, lists |-> heads]
    /\ UNCHANGED <<version, since, named, heads, stored, copies, work, lateSegs, lateCopies>>

SweepSend ==
    LET kept == IF Variant = "SweepBlind" THEN {}
                ELSE NamedBy({copy \in copies : copy.version \in sweep.lists}) IN
    /\ sweep # Nothing
    /\ lateSegs' = lateSegs \cup
         {seg \in stored : seg <= sweep.version /\ seg \notin sweep.names \cup kept}
    /\ sweep' = Nothing
    /\ UNCHANGED <<version, since, named, heads, stored, copies, work, lateCopies>>

\* With a head that was read earlier, it would delete fewer.
SweepCopies ==
    /\ lateCopies' = lateCopies \cup
         {v \in Versions(copies) \ heads :
             version >= v + Window \/ v + 1 < since \/ Variant = "SweepUnlisted"}
    /\ lateCopies' # lateCopies
    /\ UNCHANGED <<version, since, named, heads, stored, copies, work, sweep, lateSegs>>

DeleteArrives ==
    /\ \/ \E seg \in lateSegs : /\ stored' = stored \ {seg}
                                /\ lateSegs' = lateSegs \ {seg}
                                /\ UNCHANGED <<copies, lateCopies>>
       \/ \E v \in lateCopies : /\ copies' = {copy \in copies : copy.version # v}
                                /\ lateCopies' = lateCopies \ {v}
                                /\ UNCHANGED <<stored, lateSegs>>
    /\ UNCHANGED <<version, since, named, heads, work, sweep>>

Next ==
    \/ Introduce \/ Drop \/ Forget \/ OtherCommit
    \/ \E k \in Keepers : Take(k) \/ Put(k) \/ List(k) \/ GiveUp(k)
    \/ SweepRead \/ SweepSend \/ SweepCopies \/ DeleteArrives

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* S2: everything that the head names is in the store.
NamedIsStored == named \subseteq stored

\* H5: a copy that the head lists is in the store, with every segment that it names.
CopyIsWhole == heads \subseteq Versions(copies) /\ NamedBy(Listed) \subseteq stored

\* What is forgotten is not listed.
ForgottenIsUnlisted == \A v \in heads : v + 1 >= since

\* What the model must be able to reach, or it would prove nothing.
NeverKept == \A copy \in Listed : copy.names \subseteq named
NeverCopySwept == \A v \in lateCopies : v \notin Versions(copies)
NeverSegSwept == ~(lateSegs # {} /\ heads # {})
NeverLater == \A k \in Keepers : ~(work[k].kind = "put" /\ work[k].version \in heads
                                   /\ version > work[k].version + 1)

\* What can still matter: copies that are listed, that a keeper may list, now or if it takes this
\* version, or that the sweeper will read; and segments that the head or one of these names.
Lists == IF sweep = Nothing THEN {} ELSE sweep.lists
Held == {work[k] : k \in {k \in Keepers : work[k] # Nothing}}
Alive == heads \cup Versions(Held) \cup Lists \cup {version}
View ==
    LET some == {copy \in copies : copy.version \in Alive}
        segs == named \cup NamedBy(some) \cup NamedBy(Held) IN
    <<version, since, named, heads, stored \cap segs, some, work, lateSegs \cap segs,
      lateCopies \cap Alive,
      IF sweep = Nothing THEN sweep ELSE [sweep EXCEPT !.names = @ \cap segs]>>
=============================================================================
