"""Granting and revoking tokens, and which right an operation needs."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from bucketq.errors import InvalidRequestError, KeyConflictError, RejectedError
from bucketq.model import (
    job_batches,
    limits,
    numbered_batches,
    schedules,
    side_objects,
    worker_records,
)
from bucketq.model import operations as ops
from bucketq.model.base import Operation
from bucketq.model.effects.access import find_token, may, right_of
from bucketq.model.effects.operators import is_untidy
from bucketq.model.results import Wait
from bucketq.model.tokens import RIGHTS, TokenInfo, token_digest
from tests.unit.model.driver import START, Driver, new_job


def grant(number: int = 1, **fields: Any) -> ops.GrantToken:
    """A grant of the token with this number."""
    defaults: dict[str, Any] = {
        "id": f"{number:08x}",
        "name": "ci",
        "digest": token_digest(f"token {number}"),
        "rights": ("push",),
    }
    return ops.GrantToken(**(defaults | fields))


def ids(queue: Driver) -> list[str]:
    return [token.id for token in queue.ok(ops.ReadTokens())]


def test_a_granted_token_is_found_and_listed() -> None:
    queue = Driver()
    granted = queue.ok(grant(1, rights=("admin", "push", "push"), ttl_s=60))
    assert isinstance(granted, TokenInfo)
    assert granted.rights == ("push", "admin")
    assert granted.created_at == START
    assert granted.expires_at is not None
    assert (granted.expires_at - START).total_seconds() == 60
    found = find_token(queue.state, "00000001", queue.now)
    assert found is not None
    assert found.info() == granted
    assert find_token(queue.state, "00000002", queue.now) is None
    assert queue.ok(ops.ReadTokens()) == (granted,)


def test_two_tokens_may_share_a_name_while_one_replaces_the_other() -> None:
    queue = Driver()
    queue.ok(grant(1))
    queue.ok(grant(2))
    assert ids(queue) == ["00000001", "00000002"]


def test_the_first_token_makes_brokers_ask_for_tokens_in_the_same_commit() -> None:
    queue = Driver()
    assert queue.state.settings.require_token is False
    applied = queue.send(grant(1))
    assert applied.changes[:2] == [("tokens", "00000001"), ("head", "")]
    assert queue.state.settings.require_token is True


def test_a_queue_that_was_opened_on_purpose_stays_open_at_further_tokens() -> None:
    queue = Driver()
    queue.ok(grant(1))
    queue.ok(ops.Configure(changes={"require_token": False}))
    queue.ok(grant(2))
    assert queue.state.settings.require_token is False


def test_a_queue_does_not_open_when_its_last_token_is_revoked_or_expires() -> None:
    queue = Driver()
    queue.ok(grant(1))
    assert queue.ok(ops.RevokeToken(id="00000001")) is True
    assert ids(queue) == []
    assert queue.state.settings.require_token is True
    queue.ok(grant(2, ttl_s=1))
    queue.wait(2)
    queue.ok(ops.Tidy())
    assert len(queue.state.tokens) == 0
    assert queue.state.settings.require_token is True


def test_granting_the_same_token_again_changes_nothing() -> None:
    queue = Driver()
    first = queue.ok(grant(1))
    queue.wait(5)
    again = queue.send(grant(1, name="other", rights=("admin",)))
    assert again.answer == first
    assert again.changes == []


def test_an_id_that_belongs_to_another_token_is_refused() -> None:
    queue = Driver()
    queue.ok(grant(1))
    why = queue.refused(grant(1, digest=token_digest("other")), KeyConflictError)
    assert "00000001" in why
    assert token_digest("other") not in why


def test_revoking_twice_answers_that_there_was_none() -> None:
    queue = Driver()
    queue.ok(grant(1))
    assert queue.ok(ops.RevokeToken(id="00000001")) is True
    again = queue.send(ops.RevokeToken(id="00000001"))
    assert (again.answer, again.changes) == (False, [])


def test_an_expired_token_is_as_good_as_none_even_before_it_is_dropped() -> None:
    queue = Driver(max_tokens=1)
    queue.ok(grant(1, ttl_s=10))
    queue.wait(10)
    assert len(queue.state.tokens) == 1
    assert find_token(queue.state, "00000001", queue.now) is None
    assert ids(queue) == []
    queue.ok(grant(2))
    assert ids(queue) == ["00000002"]


def test_an_expired_token_can_be_revoked_for_other_clocks_may_find_it_good() -> None:
    queue = Driver()
    queue.ok(grant(1, ttl_s=10))
    queue.wait(10)
    assert queue.ok(ops.RevokeToken(id="00000001")) is True
    assert len(queue.state.tokens) == 0
    assert queue.ok(ops.RevokeToken(id="00000001")) is False


def test_tidying_drops_tokens_that_have_expired_and_no_others() -> None:
    queue = Driver()
    for number, ttl_s in enumerate((30, 10, 0, 20), 1):
        queue.ok(grant(number, ttl_s=ttl_s))
    assert not is_untidy(queue.state, queue.now)
    queue.wait(20)
    assert is_untidy(queue.state, queue.now)
    assert queue.ok(ops.Tidy()) == 2
    assert not is_untidy(queue.state, queue.now)
    assert [token.id for token in queue.state.tokens] == ["00000001", "00000003"]
    queue.reload()
    assert not is_untidy(queue.state, queue.now)
    queue.wait(10)
    assert is_untidy(queue.state, queue.now)


def test_one_token_too_many_is_refused_by_the_name_of_the_setting() -> None:
    queue = Driver(max_tokens=2)
    queue.ok(grant(1))
    queue.ok(grant(2))
    assert "max_tokens" in queue.refused(grant(3), RejectedError)
    queue.ok(ops.RevokeToken(id="00000001"))
    queue.ok(grant(3))


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ""},
        {"id": "0000000G"},
        {"id": "000000001"},
        {"id": "bq_00000001_" + "5e" * 32},
        {"id": 7},
        {"name": ""},
        {"name": "x" * 65},
        {"name": "a\nb"},
        {"name": "\x1b[31m"},
        {"name": "\ud800"},
        {"name": None},
        {"digest": ""},
        {"digest": "5e" * 33},
        {"digest": "5E" * 32},
        {"digest": None},
        {"rights": ()},
        {"rights": ("push", "all")},
        {"ttl_s": -1},
        {"ttl_s": float("nan")},
        {"ttl_s": 1e12},
        {"ttl_s": True},
    ],
    ids=repr,
)
def test_a_bad_grant_is_refused_and_no_secret_is_shown(fields: dict[str, Any]) -> None:
    why = Driver().refused(grant(1, **fields), InvalidRequestError)
    assert "5e5e" not in why.lower()


def test_a_whole_token_given_for_its_id_is_not_shown() -> None:
    why = Driver().refused(ops.RevokeToken(id="bq_00000001_" + "5e" * 32), InvalidRequestError)
    assert "5e5e" not in why


def test_a_grant_that_comes_again_is_answered_with_the_same_record() -> None:
    queue = Driver()
    first = queue.ok(grant(1), "session", number=1)
    queue.reload()
    assert queue.ok(grant(1), "session", number=1) == first
    session = queue.state.sessions.get("session")
    assert session is not None
    assert session.answers == {1: "00000001"}, "a session keeps no digest"


def test_a_grant_that_comes_again_with_another_token_is_refused() -> None:
    queue = Driver()
    queue.ok(grant(1), "session", number=1)
    why = queue.refused(grant(2), KeyConflictError, "session", number=1)
    assert "00000001" in why
    assert ids(queue) == ["00000001"]


def test_a_grant_that_comes_again_after_the_token_was_revoked_says_so() -> None:
    queue = Driver()
    queue.ok(grant(1), "session", number=1)
    queue.ok(ops.RevokeToken(id="00000001"), "session", number=2)
    assert "revoked" in queue.refused(grant(1), RejectedError, "session", number=1)
    assert ids(queue) == []


def test_a_revocation_that_comes_again_answers_as_before() -> None:
    queue = Driver()
    queue.ok(grant(1))
    revoke = ops.RevokeToken(id="00000001")
    assert queue.ok(revoke, "session", number=1) is True
    queue.reload()
    assert queue.ok(revoke, "session", number=1) is True


def test_stats_and_snapshots_do_not_include_tokens() -> None:
    queue = Driver()
    queue.ok(grant(1))
    digest = token_digest("token 1")
    for read in (ops.ReadStats(), ops.ReadSnapshot()):
        shown = repr(queue.ok(read))
        assert digest not in shown
        assert "00000001" not in shown


NEEDED: dict[str, set[type[Operation]]] = {
    "push": {
        *(ops.Push, numbered_batches.Publish),
        *(side_objects.StageObject, side_objects.PutPart, side_objects.KeepObject),
        *(job_batches.OpenBatch, job_batches.CloseBatch, job_batches.CancelBatch),
    },
    "claim": {
        ops.Claim,
        ops.Heartbeat,
        ops.Complete,
        ops.CompleteMany,
        ops.Fail,
        ops.Release,
        ops.Withdraw,
        ops.ReleaseMany,
        worker_records.Announce,
        numbered_batches.OpenConsumer,
        numbered_batches.ClaimBatch,
        numbered_batches.PrepareBatch,
        numbered_batches.ReadBatch,
        numbered_batches.AckBatch,
        numbered_batches.ReleaseBatch,
        numbered_batches.SettleBatch,
        side_objects.ReadPart,
    },
    "read": {
        *(ops.Get, ops.List, ops.ReadStats, ops.ReadSnapshot, numbered_batches.ReadConsumers),
        *(*ops.HISTORY_READS, Wait),
        *(schedules.ReadSchedules, limits.ReadLimits, job_batches.ReadBatches),
        worker_records.ReadWorkers,
    },
}


def test_results_are_written_and_payloads_read_without_a_lease_by_others() -> None:
    name = side_objects.object_name("i", 7, "5e" * 16, "ab" * 8)
    put = side_objects.PutPart(object=name, part=0, data=b"x", job="j", content="result")
    assert right_of(put) == "claim"
    assert right_of(side_objects.ReadPart(object=name, part=0)) == "read"


@pytest.mark.parametrize("kind", get_args(ops.AnyOperation))
def test_each_operation_needs_its_right_and_what_is_not_named_needs_admin(
    kind: type[Operation],
) -> None:
    fields: dict[str, Any] = dict.fromkeys(kind.__struct_fields__, "any")
    if kind in (ops.Complete, ops.CompleteMany):
        fields |= {name: () for name in ("follow_ups", "jobs") if name in fields}
    operation = kind(**fields)
    needed = next((right for right, kinds in NEEDED.items() if kind in kinds), "admin")
    assert right_of(operation) == needed
    assert {right for right in RIGHTS if may((right,), operation)} == {needed, "admin"}
    assert not may((), operation)


def test_an_unknown_operation_needs_admin() -> None:
    assert right_of(object()) == "admin"


def test_every_token_may_read_the_settings() -> None:
    reading = ops.Configure(changes={})
    assert right_of(reading) is None
    assert all(may((right,), reading) for right in RIGHTS)
    assert may((), reading)


def test_several_rights_add_up() -> None:
    push = ops.Push(jobs=(new_job("1"),))
    assert may(("claim", "push"), push)
    assert not may(("claim", "read"), push)
