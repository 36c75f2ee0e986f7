"""Jobs for the machines that compare the model with the reference."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import Raw

from bucketq.model.records import Backoff
from tests.unit.model.link_rules import BATCHES
from tests.unit.model.payload_rules import large

KINDS = ("a", "b", "c")

new_jobs = st.lists(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(KINDS), "payload": st.sampled_from([Raw(b"1"), Raw(b'{"n":2}')])},
        optional={
            "priority": st.sampled_from([-1, 1]),
            "delay_s": st.sampled_from([0, 0.5, 5.0, 60.0]),
            "key": st.sampled_from(["k1", "k2", "k3"]),
            "max_attempts": st.integers(1, 3),
            "backoff": st.sampled_from([Backoff(0.0), Backoff(4.0, 3.0, 10.0)]),
            "tags": st.just({"team": "red"}),
            "unique": st.sampled_from(["u1", "u1", "u2"]),
            "expires_in_s": st.sampled_from([1.0, 20.0, 90.0]),
            "group": st.sampled_from(["g1", "g1", "g2", "g3"]),
            "batch_id": st.sampled_from([*BATCHES, *BATCHES, "never"]),
            "after": st.lists(st.integers(0, 99), min_size=1, max_size=3),
            "on_failed": st.just("run"),
            "large": large,
        },
    ),
    min_size=1,
    max_size=4,
)

UNIQUE: list[dict[str, Any]] = [
    {},
    {"unique_scope": "queued", "replace": "both"},
    {"replace": "run_at"},
    {"unique_scope": "queued", "replace": "payload"},
    {"unique_s": 20.0, "replace": "both"},
    {"unique_scope": "queued"},
    {"unique_s": 5.0},
    {"replace": "both"},
    {"unique_s": 100.0, "replace": "payload"},
]
"""How the unique jobs of a push are compared with others, and what they replace."""
