"""What operators do at a broker is ascribed to their tokens, and not shown to everyone."""

from __future__ import annotations

import pytest

import bucketq
from bucketq import AccessDeniedError
from bucketq.model.tokens import parse_token
from tests.security.conftest import Served


async def test_an_action_is_ascribed_to_the_token_that_was_shown(
    url: str, admin: str, served: Served
) -> None:
    del served
    async with bucketq.connect(url, token=admin, mode="remote") as queue:
        await queue.pause("mail")
        last = (await queue.audit())[-1]
        viewer = await queue.create_token("viewer", "read")
    assert (last.action, last.by) == ("pause", f"token {parse_token(admin)}")
    async with bucketq.connect(url, token=viewer, mode="remote") as queue:
        assert await queue.workers() == []
        for asking in (queue.audit(), queue.drain("w")):
            with pytest.raises(AccessDeniedError, match="admin"):
                await asking
