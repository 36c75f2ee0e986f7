"""The rows of a state, to be compared before and after a request."""

from __future__ import annotations

import msgspec

from bucketq.model.state import Change, State


def tables(state: State) -> dict[Change, object]:
    """Every row of a state by the name that a change gives it."""
    paused = (state.paused, tuple(state.paused_kinds))
    served = list(state.waiting.turns.last_served.items())
    head = (state.settings, state.broker, paused, state.sessions.horizon, state.time, served)
    rows: dict[Change, object] = {("head", ""): head}
    rows.update({("jobs", job.id): job for job in state.jobs})
    rows.update({("limits", row.id): row for row in state.limits})
    rows.update({("buckets", row.id): row for row in state.buckets})
    rows.update({("keys", key.id): key for key in state.keys})
    rows.update({("tokens", token.id): token for token in state.tokens})
    rows.update({("consumers", row.id): row for row in state.consumers})
    rows.update({("writers", row.id): row for row in state.writers})
    rows.update({("batches", row.id): row for row in state.batches})
    rows.update({("workers", row.id): row for row in state.workers})
    rows.update({("results", row.id): row for row in state.results})
    rows.update({("audit", row.id): row for row in state.audit})
    sessions = state.sessions.table
    rows.update({("sessions", row.id): msgspec.json.encode(row) for row in sessions})
    return rows
