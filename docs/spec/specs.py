"""What ``check.py`` checks: modules beside it, their sizes, properties, mistakes and witnesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Spec:
    """A module beside this file: how much of its world is explored, and what is checked."""

    module: str
    constants: dict[str, str]
    invariants: tuple[str, ...]
    actions: tuple[str, ...]  # properties of steps, and not of states
    variants: dict[str, str]  # which property each mistake breaks
    witnesses: tuple[str, ...]
    exhausted: dict[str, dict[str, str]]  # the runs that must hold, and constants that differ
    sizes: dict[str, dict[str, str]]  # of variants, constants that differ
    reductions: tuple[str, ...]


SPECS: Final = (
    Spec(
        module="bucketq",
        constants={
            "Processes": "{p1, p2}",
            "Workers": "{w1, w2}",
            "MaxVersion": "5",
            "MaxFlight": "3",
            "RingSize": "2",
        },
        invariants=(
            "AckedIsDurable",
            "AppliedOnce",
            "FailedHasNoEffect",
            "OneCompletion",
            "OneOwner",
            "EpochFenced",
            "HeartbeatTrue",
        ),
        actions=("OnlyForward",),
        variants={
            "AckFirst": "AckedIsDurable",
            "BaseMeansFailed": "FailedHasNoEffect",
            "BlindPut": "OnlyForward",
            "FailedTryAgain": "AppliedOnce",
            "LoserOverwrites": "AckedIsDurable",
            "NoDedupe": "AppliedOnce",
            "NoEpochCheck": "EpochFenced",
            "NoFencing": "OneCompletion",
            "NoRing": "FailedHasNoEffect",
            "SameLease": "OneOwner",
            "ShortRing": "FailedHasNoEffect",
            "ThawedCommit": "AckedIsDurable",
            "ZombieAnswers": "HeartbeatTrue",
        },
        witnesses=("NeverBeside", "NeverForgotten", "NeverOnTop", "NeverZombie"),
        exhausted={"Good": {}},
        sizes={},
        reductions=("SYMMETRY Symmetry", "VIEW View"),
    ),
    Spec(
        module="segments",
        constants={
            "Rows": "{r1, r2}",
            "Writers": "{w1, w2}",
            "MaxVersion": "4",
            "MaxAttempt": "1",
            "Ahead": "2",
        },
        invariants=("OnePlace", "NamedIsStored"),
        actions=("IntroducedInTime",),
        variants={
            "DropUnread": "OnePlace",
            "ForgetGone": "OnePlace",
            "LateName": "IntroducedInTime",
            "MergeBlind": "OnePlace",
            "NameFirst": "NamedIsStored",
            "OwnDrop": "NamedIsStored",
            "SpillCold": "OnePlace",
            "SweepAll": "NamedIsStored",
        },
        witnesses=("NeverMerged", "NeverSwept", "NeverTwice"),
        exhausted={"GoodSegments": {"MaxVersion": "5"}},
        sizes={"OwnDrop": {"Ahead": "3"}},  # to be dropped and named again takes a version more
        reductions=("SYMMETRY Symmetry", "VIEW View"),
    ),
    Spec(
        module="adoption",
        constants={
            "Parts": "{p1, p2}",
            "Copies": "{c1}",
            "Drivers": "{d1, d2}",
            "MaxVersion": "5",
        },
        invariants=("NamedIsStored", "AdoptedOnce"),
        actions=("AdoptedInTime", "AnswersTrue"),
        variants={
            "AdoptExpired": "NamedIsStored",
            "AdoptListed": "AdoptedOnce",
            "AdoptMixed": "NamedIsStored",
            "AdoptUnput": "NamedIsStored",
            "CleanUp": "NamedIsStored",
            "JoinOld": "NamedIsStored",
            "NoPosition": "AdoptedOnce",
            "NoReserve": "NamedIsStored",
            "RenewBlind": "NamedIsStored",
            "ReservationFirst": "AnswersTrue",
            "SweepYounger": "NamedIsStored",
        },
        witnesses=("NeverAdopted", "NeverAdoptedAfterJoin", "NeverRejected", "NeverSweptLate"),
        exhausted={"GoodAdoption": {}, "GoodTasks": {"Parts": "{p1}", "Copies": "{c1, c2}"}},
        sizes={"AdoptListed": {"Copies": "{c1, c2}"}},
        reductions=("SYMMETRY Symmetry", "VIEW View"),
    ),
    Spec(
        module="history",
        constants={"Keepers": "{k1, k2}", "MaxVersion": "5", "MaxPuts": "4"},
        invariants=("NoHole", "FeedOnce", "FeedTrue", "ForgottenStaysSo", "LossIsTrue"),
        actions=("OnlyForward",),
        variants={
            "CutUnmarked": "NoHole",
            "DropCovered": "NoHole",
            "DropFirst": "NoHole",
            "LostRow": "FeedTrue",
            "ReadForgotten": "ForgottenStaysSo",
            "SilentLoss": "NoHole",
            "SkipGap": "FeedOnce",
            "SweepAhead": "NoHole",
            "WholeObject": "FeedOnce",
        },
        witnesses=("NeverCut", "NeverJoined", "NeverLoss", "NeverOld"),
        exhausted={"GoodHistory": {}},
        sizes={},
        reductions=("SYMMETRY Symmetry",),
    ),
    Spec(
        module="copies",
        constants={"Keepers": "{k1}", "MaxVersion": "5", "Window": "3"},
        invariants=("NamedIsStored", "CopyIsWhole", "ForgottenIsUnlisted"),
        actions=(),
        variants={
            "ListDropped": "CopyIsWhole",
            "ListFirst": "CopyIsWhole",
            "ListForgotten": "CopyIsWhole",
            "ListLate": "CopyIsWhole",
            "SweepBlind": "CopyIsWhole",
            "SweepUnlisted": "CopyIsWhole",
        },
        witnesses=("NeverCopySwept", "NeverKept", "NeverLater", "NeverSegSwept"),
        exhausted={
            "GoodCopies": {},
            "GoodKeepers": {"Keepers": "{k1, k2}", "MaxVersion": "4", "Window": "2"},
        },
        sizes={},
        reductions=("VIEW View",),
    ),
)
