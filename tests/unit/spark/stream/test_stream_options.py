"""Options of a stream: understood, or refused by name."""

from __future__ import annotations

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.spark.stream.stream_options import is_for_stream, stream_options

GIVEN = {"path": "file:///srv/jobs/queue.json", "consumer": "indexer"}


def test_a_stream_needs_an_address_and_a_name() -> None:
    options = stream_options(GIVEN)
    assert (options.access.url, options.consumer) == (GIVEN["path"], "indexer")
    assert (options.kinds, options.max_jobs, options.partitions) == ((), 10_000, 1)
    assert (options.lease_s, options.fail_on_lost) == (300.0, True)


def test_everything_can_be_chosen_in_any_case() -> None:
    options = stream_options(
        {
            **GIVEN,
            "KIND": "a, b",
            "maxjobspertrigger": "7",
            "minPartitions": "3",
            "leaseSeconds": "1.5",
            "failOnLostClaim": " FALSE ",
        }
    )
    assert (options.kinds, options.max_jobs, options.partitions) == (("a", "b"), 7, 3)
    assert (options.lease_s, options.fail_on_lost) == (1.5, False)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"path": GIVEN["path"]}, "the option consumer is missing"),
        ({**GIVEN, "consumer": " "}, "the option consumer is missing"),
        ({**GIVEN, "consumer": "x" * 1000}, "consumer"),
        ({"consumer": "c"}, "the option path is missing"),
        (
            {**GIVEN, "table": "archive"},
            "unknown option 'table': it is for reading tables; for streams",
        ),
        ({**GIVEN, "maxJobsPerTrigger": "0"}, "option maxJobsPerTrigger: '0'"),
        ({**GIVEN, "minPartitions": "-1"}, "option minPartitions: '-1'"),
        ({**GIVEN, "leaseSeconds": "0"}, "option leaseSeconds: '0'"),
        ({**GIVEN, "failOnLostClaim": "no"}, "'no' is neither true nor false"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        stream_options(given)


def test_options_that_only_streams_have_are_known() -> None:
    assert is_for_stream({"path": "x", "MAXJOBSPERTRIGGER": "1"})
    assert not is_for_stream({"path": "x", "kind": "a"})
