"""Which jobs go in which commit, and when none may."""

from __future__ import annotations

import pytest

from bucketq.errors import InvalidRequestError, PayloadTooLargeError
from bucketq.model.settings import Settings
from bucketq.spark.table.job_writer import commit_sizes, default_commits

SETTINGS = Settings(max_batch_jobs=10, max_batch_bytes=100)


def test_all_jobs_go_in_one_commit_by_default() -> None:
    assert commit_sizes([10] * 10, None, SETTINGS) == [10]
    assert commit_sizes([], None, SETTINGS) == []


def test_jobs_are_split_by_their_number_alone() -> None:
    assert commit_sizes([1] * 25, 10, SETTINGS) == [10, 10, 5]
    assert commit_sizes([1] * 25, 10, Settings()) == [10, 10, 5]
    assert commit_sizes([1] * 3, 10, SETTINGS) == [3]


def test_too_many_jobs_for_one_commit_are_rejected_with_a_hint() -> None:
    with pytest.raises(InvalidRequestError, match="nothing was pushed: the write has 11 jobs") as e:
        commit_sizes([1] * 11, None, SETTINGS)
    assert 'option("maxJobsPerCommit", "10")' in str(e.value)
    assert "max_batch_jobs" in str(e.value)
    with pytest.raises(InvalidRequestError, match="option maxJobsPerCommit asks for 11 jobs"):
        commit_sizes([1] * 20, 11, SETTINGS)


def test_an_option_above_the_limit_is_accepted_for_few_jobs() -> None:
    assert commit_sizes([1] * 5, 1000, SETTINGS) == [5]


def test_too_many_bytes_in_the_last_commit_are_rejected_before_any_push() -> None:
    with pytest.raises(PayloadTooLargeError, match="nothing was pushed: 4 jobs with 120 bytes"):
        commit_sizes([1] * 4 + [30] * 4, 4, SETTINGS)
    with pytest.raises(PayloadTooLargeError, match="max_batch_bytes"):
        commit_sizes([60, 60], None, SETTINGS)


def test_without_an_option_commits_are_as_large_as_queues_allow_by_default() -> None:
    assert default_commits([1] * 10_000) == [10_000]
    assert default_commits([1] * 25_001) == [10_000, 10_000, 5_001]
    assert default_commits([20 << 20] * 3) == [1, 1, 1]
    assert default_commits([40 << 20, 1, 1]) == [1, 2]
    assert sum(default_commits([7 << 20, 30 << 20] * 40)) == 80
