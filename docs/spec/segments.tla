------------------------------ MODULE segments ------------------------------
(***************************************************************************)
(* How rows of a deep queue move to immutable segments, and how segments   *)
(* that the queue no longer names are deleted, without clocks and locks.   *)
(*                                                                         *)
(* THE WORLD.  The queue object, called the head, holds some rows itself   *)
(* (they are hot) and names segments that hold the others.  A named        *)
(* segment has a set of rows that are gone from it.  How a change of the   *)
(* head is committed is the subject of bucketq.tla; here a commit is one   *)
(* step.  Several writers work at once, and each can stop for any time     *)
(* between any two steps, or forget that its commit has landed.            *)
(*                                                                         *)
(* A segment's key is made of `until`, the last version that may introduce *)
(* it, and a digest of its rows; so two writers that put the same rows     *)
(* share a key.  A row changes by being claimed: its attempt rises, it is  *)
(* hot from then on, and its place in a segment is gone.                   *)
(*                                                                         *)
(* A writer SPILLS hot rows, or MERGES named segments: it puts the segment *)
(* first, and a later commit names it.  When it does, a row of a spill is  *)
(* live if it is hot in the head and unchanged; a row of a merge is live   *)
(* if a source that the head still names has it live.  A merge that lacks  *)
(* a row which is live in a source is given up.                            *)
(*                                                                         *)
(* A SWEEPER reads the head, lists the store, and sends deletes, which may *)
(* arrive much later.  It deletes what the head does not name and can no   *)
(* longer introduce, because its version has reached `until`.              *)
(*                                                                         *)
(* VARIANTS.  The constant Variant is "Good" or the name of one mistake.   *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Rows,
    Writers,
    MaxVersion,   \* the model ends at this version of the head
    MaxAttempt,   \* so often a row is claimed
    Ahead,        \* how far ahead `until` is of the version at the put
    Variant       \* "Good", or which mistake is made

VARIABLES
    version,      \* of the head
    named,        \* the head's segments: [seg, gone]
    hot,          \* the head's own rows: <<row, attempt>>
    truth,        \* the newest attempt of each row
    stored,       \* the segments in the store
    work,         \* what each writer has put and not yet named
    sweep,        \* what the sweeper has read
    late          \* deletes that are on their way

vars == <<version, named, hot, truth, stored, work, sweep, late>>

-----------------------------------------------------------------------------
Nothing == [kind |-> "none"]
Segs(entries) == {entry.seg : entry \in entries}
Live(entry) == {pair \in entry.seg.rows : pair[1] \notin entry.gone}
LiveIn(entries) == UNION {Live(entry) : entry \in entries}
RowsOf(pairs) == {pair[1] : pair \in pairs}

Init ==
    /\ version = 1
    /\ named = {}
    /\ hot = {<<row, 0>> : row \in Rows}
    /\ truth = [row \in Rows |-> 0]
    /\ stored = {}
    /\ work = [writer \in Writers |-> Nothing]
    /\ sweep = Nothing
    /\ late = {}

\* A commit names these segments and holds these rows; one without rows is dropped.
Commit(entries, rows) ==
    LET kept == {entry \in entries : Live(entry) # {}} IN
    /\ version < MaxVersion
    /\ version' = version + 1
    /\ named' = kept
    /\ hot' = rows
    /\ late' = IF Variant = "OwnDrop" THEN late \cup (Segs(named) \ Segs(kept)) ELSE late

-----------------------------------------------------------------------------
PutSpill(writer) ==
    \E rows \in SUBSET hot :
        LET seg == [until |-> version + Ahead, rows |-> rows] IN
        /\ work[writer] = Nothing /\ rows # {} /\ version < MaxVersion
        /\ stored' = IF Variant = "NameFirst" THEN stored ELSE stored \cup {seg}
        /\ work' = [work EXCEPT ![writer] =
                       [kind |-> "spill", seg |-> seg, sources |-> {}]]
        /\ UNCHANGED <<version, named, hot, truth, sweep, late>>

\* The writer may leave rows out: they seemed gone to it, by a claim whose commit is lost since.
PutMerge(writer) ==
    \E sources \in SUBSET named : \E rows \in SUBSET LiveIn(sources) :
        LET seg == [until |-> version + Ahead, rows |-> rows] IN
        /\ work[writer] = Nothing /\ sources # {} /\ rows # {} /\ version < MaxVersion
        /\ stored' = IF Variant = "NameFirst" THEN stored ELSE stored \cup {seg}
        /\ work' = [work EXCEPT ![writer] =
                       [kind |-> "merge", seg |-> seg, sources |-> Segs(sources)]]
        /\ UNCHANGED <<version, named, hot, truth, sweep, late>>

\* With the mistake NameFirst, the put arrives when it likes.
PutArrives(writer) ==
    /\ Variant = "NameFirst" /\ work[writer] # Nothing
    /\ stored' = stored \cup {work[writer].seg}
    /\ UNCHANGED <<version, named, hot, truth, work, sweep, late>>

\* The rows of a segment that are live if the next commit names it.
LiveNow(task) ==
    LET sources == {entry \in named : entry.seg \in task.sources} IN
    IF task.kind = "spill"
    THEN IF Variant = "SpillCold"
         THEN {pair \in task.seg.rows : truth[pair[1]] = pair[2]}
         ELSE task.seg.rows \cap hot
    ELSE CASE Variant = "ForgetGone" -> task.seg.rows
           [] Variant = "MergeBlind" -> task.seg.rows \cap LiveIn(named)
           [] OTHER -> task.seg.rows \cap LiveIn(sources)

\* A merge drops its sources, so it must hold every row that is live in them.
TakesAll(task) ==
    LiveIn({entry \in named : entry.seg \in task.sources}) \subseteq task.seg.rows

Name(writer) ==
    LET task == work[writer]
        live == LiveNow(task)
        others == {entry \in named : entry.seg \notin task.sources}
        entry == [seg |-> task.seg, gone |-> RowsOf(task.seg.rows \ live)] IN
    /\ task # Nothing
    /\ live # {}
    /\ task.seg \notin Segs(others)
    /\ Variant = "LateName" \/ version + 1 <= task.seg.until
    /\ Variant = "DropUnread" \/ TakesAll(task)
    /\ Commit(others \cup {entry}, IF task.kind = "spill" THEN hot \ live ELSE hot)
    \* The writer may forget that it landed, and try to name it again.
    /\ \E left \in {Nothing, task} : work' = [work EXCEPT ![writer] = left]
    /\ UNCHANGED <<truth, stored, sweep>>

GiveUp(writer) ==
    /\ work[writer] # Nothing
    /\ work' = [work EXCEPT ![writer] = Nothing]
    /\ UNCHANGED <<version, named, hot, truth, stored, sweep, late>>

Claim(row) ==
    LET attempt == truth[row] + 1 IN
    /\ attempt <= MaxAttempt
    /\ truth' = [truth EXCEPT ![row] = attempt]
    /\ Commit({[entry EXCEPT !.gone = IF row \in RowsOf(entry.seg.rows) THEN @ \cup {row} ELSE @] :
                  entry \in named},
              {pair \in hot : pair[1] # row} \cup {<<row, attempt>>})
    /\ UNCHANGED <<stored, work, sweep>>

\* An operator writes the rows of a segment into the head again, unchanged.
BringHome ==
    \E entry \in named :
        /\ Commit(named \ {entry}, hot \cup Live(entry))
        /\ UNCHANGED <<truth, stored, work, sweep>>

OtherCommit ==
    /\ Commit(named, hot)
    /\ UNCHANGED <<truth, stored, work, sweep>>

-----------------------------------------------------------------------------
SweepRead ==
    /\ sweep = Nothing
    /\ sweep' = [kind |-> "read", version |-> version, names |-> Segs(named)]
    /\ UNCHANGED <<version, named, hot, truth, stored, work, late>>

IsDoomed(seg) ==
    /\ seg \notin sweep.names
    /\ Variant = "SweepAll" \/ seg.until <= sweep.version

SweepSend ==
    /\ sweep # Nothing
    /\ late' = late \cup {seg \in stored : IsDoomed(seg)}
    /\ sweep' = Nothing
    /\ UNCHANGED <<version, named, hot, truth, stored, work>>

DeleteArrives ==
    \E seg \in late :
        /\ stored' = stored \ {seg}
        /\ late' = late \ {seg}
        /\ UNCHANGED <<version, named, hot, truth, work, sweep>>

Next ==
    \/ \E writer \in Writers : \/ PutSpill(writer) \/ PutMerge(writer) \/ PutArrives(writer)
                               \/ Name(writer) \/ GiveUp(writer)
    \/ \E row \in Rows : Claim(row)
    \/ BringHome \/ OtherCommit \/ SweepRead \/ SweepSend \/ DeleteArrives

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* S1: every row is in exactly one place, with its newest attempt.
OnePlace ==
    \A row \in Rows :
        LET warm == {pair \in hot : pair[1] = row}
            cold == {entry \in named : row \in RowsOf(Live(entry))} IN
        /\ Cardinality(warm) + Cardinality(cold) = 1
        /\ \A pair \in warm \cup LiveIn(named) : pair[1] = row => pair[2] = truth[row]

\* S2: everything that the head names is in the store.
NamedIsStored == Segs(named) \subseteq stored

\* S3: a segment is introduced by a version that may.
IntroducedInTime == [][\A seg \in Segs(named') \ Segs(named) : version' <= seg.until]_vars

\* What the model must be able to reach, or it would prove nothing.
NeverMerged == \A writer \in Writers : ~(work[writer] # Nothing /\ work[writer].kind = "merge"
                                          /\ Cardinality(work[writer].sources) > 1)
NeverSwept == late = {}
NeverTwice == Cardinality(named) < 2

Symmetry == Permutations(Rows) \cup Permutations(Writers)

\* What can still matter: segments that are named, or that a writer may name.  A put makes others
\* matter, and then it is in the store, and too young for what was read and sent before.  Of the
\* sweeper, only which of these it will delete.
View ==
    LET held == {work[writer] : writer \in {w \in Writers : work[w] # Nothing}}
        segs == Segs(named) \cup {task.seg : task \in held} IN
    <<version, named, hot, truth, work, stored \cap segs, late \cap segs, sweep = Nothing,
      IF sweep = Nothing THEN {} ELSE {seg \in segs : IsDoomed(seg)}>>
=============================================================================
