------------------------------ MODULE adoption ------------------------------
(***************************************************************************)
(* How a process adds any number of rows in one commit: it writes their    *)
(* segments itself, under a reservation, and one commit adopts them.       *)
(*                                                                         *)
(* THE WORLD.  The queue object, called the head, names segments and lists *)
(* reservations.  As in segments.tla, a commit is one step.  One writer    *)
(* has one batch to publish, in several parts.  It runs as several drivers *)
(* at once, say a job that was started again while the first still works;  *)
(* each can stop for any time between any two steps, be killed and start   *)
(* again, and miss the answer to a commit.                                 *)
(*                                                                         *)
(* A driver RESERVES: a commit lists a reservation, which is called by the *)
(* version of that very commit, and removes the one before.  Its executors *)
(* PUT a segment for each part, and report it.  A slow task has a second   *)
(* copy, whose segment has another key.  Puts of a reservation may arrive  *)
(* at any time, also again, and also when the driver is long gone.         *)
(*                                                                         *)
(* The tasks of a driver share its reservation, by a name.  One that finds *)
(* it gone, because it has expired or was given up, JOINS: a commit lists  *)
(* a reservation of the same name and of another version, unless one of    *)
(* another driver is listed.  Each report says under which it was put.  A  *)
(* task that outlives its driver and joins is a Reserve that is not heard. *)
(*                                                                         *)
(* The driver ADOPTS what was reported, one segment for each part.  If the *)
(* batch was published, by this driver or in the ordinary way, nothing is  *)
(* added; otherwise the reservation must be listed, all must be put under  *)
(* it, and the commit removes it.  A reservation EXPIRES whenever it likes *)
(* and no clock decides; giving it up is the same step.                    *)
(*                                                                         *)
(* A SWEEPER reads the head, lists the store, and sends deletes, which may *)
(* arrive much later.  It deletes segments that the head does not name and *)
(* whose reservation it does not list, though it is not older than that.   *)
(*                                                                         *)
(* VARIANTS.  The constant Variant is "Good" or the name of one mistake.   *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Parts,        \* of the batch; a part stands for its rows
    Copies,       \* of a task
    Drivers,
    MaxVersion,   \* the model ends at this version of the head
    Variant       \* "Good", or which mistake is made

VARIABLES
    version,      \* of the head
    reserved,     \* the reservations that the head lists
    named,        \* the segments that the head names
    left,         \* parts whose rows are in the head itself, or were
    by,           \* who published the batch: 0 no one, 1 the ordinary way, or a reservation
    stored,       \* the segments in the store
    made,         \* all reservations that there have been: their puts are on their way
    driver,       \* what each driver does
    sweep,        \* what the sweeper has read
    late          \* deletes that are on their way

vars == <<version, reserved, named, left, by, stored, made, driver, sweep, late>>

-----------------------------------------------------------------------------
Missing == [res |-> 0, copy |-> "none"]
Nothing == [kind |-> "none"]
\* Of a driver: the reservation under its name, all that had that name, and what tasks reported.
Driver(phase, res) ==
    [phase |-> phase, res |-> res, mine |-> {res}, got |-> [part \in Parts |-> Missing]]
Idle == Driver("idle", 0)
IsPublished == by # 0

Init ==
    /\ version = 1
    /\ reserved = {} /\ named = {} /\ left = {} /\ by = 0
    /\ stored = {} /\ made = {}
    /\ driver = [d \in Drivers |-> Idle]
    /\ sweep = Nothing
    /\ late = {}

\* A commit: what the head names and lists then.
Commit(names, lists) ==
    /\ version < MaxVersion
    /\ version' = version + 1
    /\ named' = names
    /\ reserved' = lists

-----------------------------------------------------------------------------
Reserve(d) ==
    /\ driver[d].phase # "put" /\ ~IsPublished
    /\ made' = made \cup {version + 1}
    /\ IF Variant = "NoReserve"
       THEN /\ version < MaxVersion
            /\ UNCHANGED <<version, named, reserved>>
       ELSE Commit(named, {version + 1})
    \* Or it never hears that it has a reservation.
    /\ \E next \in {Idle, Driver("put", version + 1)} : driver' = [driver EXCEPT ![d] = next]
    /\ UNCHANGED <<left, by, stored, sweep, late>>

\* With the mistake JoinOld, a task lists the reservation that it was given once more.
Join(d) ==
    LET res == IF Variant = "JoinOld" THEN driver[d].res ELSE version + 1 IN
    /\ driver[d].phase = "put" /\ ~IsPublished
    /\ driver[d].res \notin reserved /\ reserved = {}
    /\ Commit(named, {res})
    /\ made' = made \cup {res}
    /\ driver' = [driver EXCEPT ![d].res = res, ![d].mine = @ \cup {res}]
    /\ UNCHANGED <<left, by, stored, sweep, late>>

\* A put arrives, for the first time or again; its driver may hear of it.
Put ==
    \E res \in made : \E part \in Parts : \E copy \in Copies :
        /\ stored' = stored \cup {[res |-> res, part |-> part, copy |-> copy]}
        /\ \/ UNCHANGED driver
           \/ \E d \in Drivers :
                /\ driver[d].phase = "put" /\ res \in driver[d].mine
                /\ driver[d].got[part] = Missing
                /\ driver' = [driver EXCEPT ![d].got[part] = [res |-> res, copy |-> copy]]
        /\ UNCHANGED <<version, reserved, named, left, by, made, sweep, late>>

\* With the mistake AdoptUnput, the driver names what it has asked executors to put.
Reported(d) ==
    CASE Variant = "AdoptUnput" ->
            LET copy == CHOOSE c \in Copies : TRUE IN
            {[res |-> driver[d].res, part |-> part, copy |-> copy] : part \in Parts}
      [] Variant = "AdoptListed" -> {key \in stored : key.res = driver[d].res}
      [] OTHER -> {[res |-> driver[d].got[part].res, part |-> part,
                      copy |-> driver[d].got[part].copy] : part \in Parts}

HasAll(d) == Variant = "AdoptUnput" \/ \A part \in Parts : driver[d].got[part] # Missing

Answer(d, phase) == driver' = [driver EXCEPT ![d] = Driver(phase, 0)]

\* With the mistake AdoptMixed, the driver adopts what was put under an earlier one of its name.
MayAdopt(d) ==
    \/ /\ driver[d].res \in reserved
       /\ Variant = "AdoptMixed" \/ \A key \in Reported(d) : key.res = driver[d].res
    \/ Variant \in {"AdoptExpired", "NoReserve"}

Adopt(d) ==
    LET res == driver[d].res
        known == IsPublished /\ Variant # "NoPosition" IN
    /\ driver[d].phase = "put" /\ HasAll(d)
    /\ CASE known /\ ~(Variant = "ReservationFirst" /\ res \notin reserved) ->
              /\ IF res \in reserved
                 THEN Commit(named, reserved \ {res})
                 ELSE UNCHANGED <<version, named, reserved>>
              /\ Answer(d, "published")
              /\ UNCHANGED by
         [] ~known /\ MayAdopt(d) ->
              /\ Commit(named \cup Reported(d), reserved \ {res})
              /\ by' = res
              \* Or the answer is lost, and the driver tries again; or it is killed.
              /\ Answer(d, "published") \/ UNCHANGED driver \/ driver' = [driver EXCEPT ![d] = Idle]
         [] OTHER ->
              /\ Answer(d, "rejected")
              /\ UNCHANGED <<version, named, reserved, by>>
    /\ UNCHANGED <<left, stored, made, sweep, late>>

\* Killed at any time; with the mistake CleanUp, a driver that gives up deletes what it has put.
Kill(d) ==
    /\ driver[d].phase = "put"
    /\ driver' = [driver EXCEPT ![d] = Idle]
    /\ late' = IF Variant = "CleanUp" /\ HasAll(d)
               THEN late \cup Reported(d) ELSE late
    /\ UNCHANGED <<version, reserved, named, left, by, stored, made, sweep>>

\* With the mistake RenewBlind, a renewal lists a reservation that had expired.
Renew(d) ==
    /\ Variant = "RenewBlind" /\ driver[d].phase = "put"
    /\ Commit(named, reserved \cup {driver[d].res})
    /\ UNCHANGED <<left, by, stored, made, driver, sweep, late>>

Expire ==
    \E res \in reserved :
        /\ Commit(named, reserved \ {res})
        /\ UNCHANGED <<left, by, stored, made, driver, sweep, late>>

\* The rows are pushed without segments, under the same position of the writer.
Publish ==
    /\ ~IsPublished
    /\ Commit(named, reserved)
    /\ left' = Parts /\ by' = 1
    /\ UNCHANGED <<stored, made, driver, sweep, late>>

\* Rows are claimed, or merged into another segment.
Leave ==
    \E key \in named :
        /\ Commit(named \ {key}, reserved)
        /\ left' = left \cup {key.part}
        /\ UNCHANGED <<by, stored, made, driver, sweep, late>>

OtherCommit ==
    /\ Commit(named, reserved)
    /\ UNCHANGED <<left, by, stored, made, driver, sweep, late>>

-----------------------------------------------------------------------------
SweepRead ==
    /\ sweep = Nothing
    /\ sweep' = [kind |-> "read", version |-> version, names |-> named, lists |-> reserved]
    /\ UNCHANGED <<version, reserved, named, left, by, stored, made, driver, late>>

IsDoomed(key) ==
    /\ key \notin sweep.names
    /\ key.res \notin sweep.lists
    /\ Variant = "SweepYounger" \/ key.res <= sweep.version

SweepSend ==
    /\ sweep # Nothing
    /\ late' = late \cup {key \in stored : IsDoomed(key)}
    /\ sweep' = Nothing
    /\ UNCHANGED <<version, reserved, named, left, by, stored, made, driver>>

DeleteArrives ==
    \E key \in late :
        /\ stored' = stored \ {key}
        /\ late' = late \ {key}
        /\ UNCHANGED <<version, reserved, named, left, by, made, driver, sweep>>

Next ==
    \/ \E d \in Drivers : Reserve(d) \/ Join(d) \/ Adopt(d) \/ Kill(d) \/ Renew(d)
    \/ Put \/ Expire \/ Publish \/ Leave \/ OtherCommit
    \/ SweepRead \/ SweepSend \/ DeleteArrives

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* S2: everything that the head names is in the store.
NamedIsStored == named \subseteq stored

\* Nothing is added before the batch is published; then each row is in exactly one place.
AdoptedOnce ==
    \A part \in Parts :
        Cardinality({key \in named : key.part = part}) + (IF part \in left THEN 1 ELSE 0)
            = (IF IsPublished THEN 1 ELSE 0)

\* S3: only the commit that removes a reservation names the segments that were put under it.
AdoptedInTime == [][\A key \in named' \ named : key.res \in reserved \ reserved']_vars

\* An answer is true: a batch that is called published is, and what is rejected was not added.
AnswersTrue ==
    [][\A d \in Drivers : /\ driver'[d].phase = "published" => by' # 0
                          /\ driver'[d].phase = "rejected" /\ driver[d].phase = "put"
                               => by \notin driver[d].mine]_vars

\* What the model must be able to reach, or it would prove nothing.
NeverAdopted == named = {}
\* The state before the answer: the view hides the phase of a driver that has one.
NeverRejected ==
    \A d \in Drivers :
        driver[d].phase = "put" /\ HasAll(d) => IsPublished \/ MayAdopt(d)
NeverSweptLate == ~(late # {} /\ named # {})
NeverAdoptedAfterJoin ==
    \A d \in Drivers : ~(Cardinality(driver[d].mine) > 1 /\ by = driver[d].res)

Symmetry == Permutations(Parts) \cup Permutations(Copies) \cup Permutations(Drivers)

\* What can still matter: segments that are named, or whose driver may name them.  Of the sweeper,
\* only which of these it will delete; of a driver that has its answer, nothing.
Matters(keys) ==
    {key \in keys : key \in named \/ \E d \in Drivers : key.res \in driver[d].mine}
View ==
    LET keys == [res : made, part : Parts, copy : Copies] IN
    <<version, reserved, named, left, by, Matters(stored), Matters(late),
      [d \in Drivers |-> IF driver[d].phase = "put" THEN driver[d] ELSE Idle],
      sweep = Nothing, IF sweep = Nothing THEN {} ELSE Matters({key \in keys : IsDoomed(key)})>>
=============================================================================
