"""Options of the format: understood, or refused by name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.spark.archive.archive_frame import check_range
from bucketq.spark.format_options import (
    has_stream_option,
    read_options,
    stream_options,
    stream_write_options,
    write_options,
)

URL = "file:///srv/jobs/queue.json"
GIVEN = {"path": URL, "consumer": "indexer"}


def test_a_read_needs_only_an_address() -> None:
    options = read_options({"path": f" {URL} "})
    assert (options.access.url, options.table, options.statuses) == (URL, "jobs", ())
    assert (options.kinds, options.partitions, options.access.timeout_s) == ((), None, 60.0)


def test_names_of_options_are_found_in_any_case_as_spark_gives_them() -> None:
    options = read_options({"PATH": URL, "numpartitions": "3", "STATUS": "dead, queued"})
    assert (options.partitions, options.statuses) == (3, ("dead", "queued"))


def test_times_without_a_zone_are_in_utc() -> None:
    given = {"path": URL, "table": "archive"}
    options = read_options({**given, "from": "2026-11-01", "to": "2026-11-01T10:00:00+01:00"})
    assert options.since == datetime(2026, 11, 1, tzinfo=UTC)
    assert options.until == datetime(2026, 11, 1, 9, tzinfo=UTC)
    assert options.until.utcoffset() is not None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "the option path is missing"),
        ({"path": "  "}, "the option path is missing"),
        ({"path": URL, "paht": "x"}, "unknown option 'paht'"),
        ({"path": URL, "numpartition": "2"}, "did you mean numPartitions\\? for reading"),
        ({"path": URL, "consumer": "x"}, r"it is for streams \(spark.readStream\); for reading"),
        ({"path": URL, "maxjobpertrigger": "2"}, "did you mean maxJobsPerTrigger, which is for"),
        ({"path": URL, "writeId": "x"}, "unknown option 'writeId'"),
        ({"path": "memory://x"}, "seen by one process alone"),
        ({"path": URL, "table": "job"}, "unknown table 'job'"),
        ({"path": URL, "status": "ready"}, "unknown status 'ready'"),
        ({"path": URL, "kind": "a b"}, "bad kind 'a b'"),
        ({"path": URL, "numPartitions": "0"}, "option numPartitions: '0'"),
        ({"path": URL, "numPartitions": "²"}, "option numPartitions"),
        ({"path": URL, "timeoutSeconds": "nan"}, "option timeoutSeconds: 'nan'"),
        ({"path": URL, "timeoutSeconds": "soon"}, "option timeoutSeconds: 'soon'"),
        ({"path": URL, "from": "2026-11-01"}, "from and to are for the archive"),
        ({"path": URL, "table": "archive"}, "needs the option from"),
        ({"path": URL, "table": "archive", "from": "yesterday"}, "'yesterday' is not a time"),
        ({"path": URL, "table": "archive", "from": "2026-11-02", "to": "2026-11-01"}, "is before"),
        ({"path": URL, "table": "archive", "from": "1990-01-01", "to": "2026-11-01"}, "too long"),
    ],
)
def test_a_wrong_option_of_a_read_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        read_options(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "the option path is missing"),
        ({"path": URL, "table": "archive"}, "unknown option 'table'"),
        ({"path": URL, "kind": "-"}, "bad kind '-'"),
        ({"path": URL, "writeId": "../x"}, "'../x' is not a valid id"),
        ({"path": URL, "writeId": "x" * 65}, "is not a valid id"),
        ({"path": URL, "maxJobsPerCommit": "many"}, "option maxJobsPerCommit: 'many'"),
        ({"path": URL, "maxJobsPerCommit": "100001"}, "from 1 to 100,000"),
    ],
)
def test_a_wrong_option_of_a_write_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        write_options(given)


def test_the_token_is_not_in_the_repr_of_options() -> None:
    options = read_options({"path": URL, "token": "open-sesame"})
    assert options.access.token == "open-sesame"
    assert "sesame" not in repr(options)


def test_a_range_of_time_has_a_zone_and_a_length() -> None:
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    check_range(moment, None)
    check_range(None, None)
    with pytest.raises(InvalidRequestError, match="since has no time zone: write datetime"):
        check_range(moment.replace(tzinfo=None), moment)
    with pytest.raises(InvalidRequestError, match=r"since \(.*\) is not before until"):
        check_range(moment, moment)


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
    ("given", "message"),
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
        *(
            ({**GIVEN, "maxBytesPerTrigger": size}, f"option maxBytesPerTrigger: '{size}' is not")
            for size in ("0", "-1", "64 mb", "many", "1.5g", "", "9999999t", "²")
        ),
        ({**GIVEN, "minPartitions": "-1"}, "option minPartitions: '-1'"),
        ({**GIVEN, "leaseSeconds": "0"}, "option leaseSeconds: '0'"),
        ({**GIVEN, "failOnLostClaim": "no"}, "'no' is neither true nor false"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        stream_options(given)


def test_options_that_only_streams_have_are_known() -> None:
    assert has_stream_option({"path": "x", "MAXJOBSPERTRIGGER": "1"})
    assert not has_stream_option({"path": "x", "kind": "a"})


def test_options_of_batch_writes_are_rejected_by_streams() -> None:
    for name in ("writeId", "maxjobspercommit"):
        with pytest.raises(InvalidRequestError, match=f"the option {name} is not for streams"):
            stream_write_options({"path": URL, name: "1"})


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("67108864", 1 << 26), ("64m", 1 << 26), (" 1G ", 1 << 30), ("10kb", 10240)],
)
def test_the_bytes_of_a_micro_batch_may_have_a_unit(text: str, size: int) -> None:
    assert stream_options({**GIVEN, "maxBytesPerTrigger": text}).max_bytes == size


def test_without_a_limit_the_bytes_of_a_micro_batch_are_not_counted() -> None:
    assert stream_options(GIVEN).max_bytes == 0
