"""What tests of committers share."""

from __future__ import annotations

import pytest

from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter


@pytest.fixture(autouse=True)
def separate_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every call be a request of its own: these tests are about how those share commits.

    ``tests/unit/queue/test_joined_calls.py`` has the tests of calls that are joined before.
    """
    for committer in (DirectCommitter, GroupCommitter):
        monkeypatch.setattr(committer, "joins", False)
