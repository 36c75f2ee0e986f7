"""Ids that follow from a request are told apart from those of users."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketq.base32 import crockford, number_of
from bucketq.model.job_ids import is_first_of, job_id, job_ids

SESSION = "01M7PQKZSMDY1VS7X434C7E72X"
TIME = "01M7PQKZSM"


@given(st.integers(0, 2**130 - 1))
def test_numbers_are_read_as_they_were_written(number: int) -> None:
    assert number_of(crockford(number, 26)) == number


@pytest.mark.parametrize(
    "text", ["I", "L", "O", "U", "a", "1_1", " 1", "1 ", "+1", "-1", "0x1", "é", "\ud800", "\u0661"]
)
def test_what_is_not_a_number_is_none(text: str) -> None:
    assert number_of(text) is None


@given(st.integers(0, 2**60), st.integers(0, 1023))
def test_the_first_id_of_a_request_is_recognised_in_every_partition(
    number: int, partition: int
) -> None:
    made = job_id(TIME, SESSION, number, 0)
    elsewhere = made[:10] + crockford(partition, 2) + made[12:]
    assert is_first_of(SESSION, number, made)
    assert is_first_of(SESSION, number, elsewhere)
    ids = job_ids(TIME, SESSION, number)
    others = [made[:-1], made + "0", made[:-1] + "i", made[:-1] + "_", "", "users-own"]
    others += [next(ids) for _ in range(3)][1:]
    assert not any(is_first_of(SESSION, number, other) for other in others)
    assert not is_first_of(SESSION, number + 1, made)
