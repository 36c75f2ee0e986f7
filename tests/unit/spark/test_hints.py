"""What an error of the connector advises is done here as it says, and helps.

Those that need a queue are tested where it is: of writes in ``test_job_writer`` and
``test_bulk_writer``, of streams in ``test_stream_writer`` and ``test_micro_batches``, of the
history in ``test_changes_table``, and of tables in a catalog in ``test_entry_points``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import types as t

from bucketq.errors import InvalidRequestError
from bucketq.spark.format_options import (
    read_options,
    stream_options,
    stream_write_options,
    write_options,
)
from bucketq.spark.table.write_columns import plan_columns

URL = "file:///srv/jobs/queue.json"
_OPTION = re.compile(r'option\("(\w+)", "([^"]+)"\)')


@pytest.mark.parametrize(
    ("checked", "given"),
    [
        (read_options, {}),
        (read_options, {"path": URL, "from": "2026-11-01"}),
        (read_options, {"path": URL, "table": "archive"}),
        (read_options, {"path": URL, "table": "changes", "version": "3"}),
        (read_options, {"path": URL, "startingVersion": "3"}),
        (stream_options, {"path": URL}),
    ],
)
def test_the_option_that_is_named_helps(
    checked: Callable[[Mapping[str, str]], object], given: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        checked(given)
    found = dict(_OPTION.findall(str(caught.value)))
    assert found
    checked({**given, **found})


@pytest.mark.parametrize("name", ["numPartitoins", "statsu", "fetchBites"])
def test_the_option_that_was_meant_is_one(name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_options({"path": URL, name: "1"})
    [meant] = re.findall(r"did you mean (\w+)\?", str(caught.value))
    read_options({"path": URL, meant: "dead" if meant == "status" else "1"})


def test_an_option_that_is_not_for_streams_is_left_out() -> None:
    given = {"path": URL, "kind": "x", "bulk": "true"}
    with pytest.raises(InvalidRequestError, match="the option bulk is not for streams"):
        stream_write_options(given)
    stream_write_options({name: given[name] for name in given if name != "bulk"})


def schema(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


TEXT, NUMBER, BYTES = t.StringType(), t.LongType(), t.BinaryType()


@pytest.mark.parametrize(
    ("columns", "advice", "better", "options"),
    [
        ({"a": TEXT, "b": TEXT}, 'option("payloadColumns", "a,b")', {}, {"payloadColumns": "a,b"}),
        ({"a": TEXT, "b": TEXT}, '"*" for all', {}, {"payloadColumns": "*"}),
        ({"payload": TEXT, "a": TEXT}, "drop it", {"a": None}, {}),
        (
            {"payload": TEXT, "a": TEXT},
            "or put it in the payload",
            {"a": None, "payload": t.StructType([t.StructField("a", TEXT)])},
            {},
        ),
        ({"payload": TEXT, "priority": TEXT}, "cast it", {"priority": t.IntegerType()}, {}),
        ({"payload": t.MapType(NUMBER, TEXT)}, "cast them", {"payload": t.MapType(TEXT, TEXT)}, {}),
        ({"payload": t.ArrayType(BYTES)}, "base64()", {"payload": t.ArrayType(TEXT)}, {}),
        ({"payload": t.ArrayType(BYTES)}, "make it the whole payload", {"payload": BYTES}, {}),
        ({"payload": t.DayTimeIntervalType()}, "cast it to a string", {"payload": TEXT}, {}),
        ({"payload": TEXT, "PAYLOAD": TEXT}, "rename or drop one", {"PAYLOAD": None}, {}),
    ],
)
def test_what_is_advised_for_a_column_helps(
    columns: dict[str, t.DataType],
    advice: str,
    better: dict[str, Any],
    options: dict[str, str],
) -> None:
    given = {"path": URL, "kind": "x"}
    with pytest.raises(InvalidRequestError) as caught:
        plan_columns(schema(**columns), write_options(given))
    assert advice in str(caught.value)
    mended = {name: kind for name, kind in {**columns, **better}.items() if kind is not None}
    plan_columns(schema(**mended), write_options({**given, **options}))


def test_what_is_advised_for_the_kind_helps() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        plan_columns(schema(payload=TEXT), write_options({"path": URL}))
    found = dict(_OPTION.findall(str(caught.value)))
    plan_columns(schema(payload=TEXT), write_options({"path": URL, **found}))
    plan_columns(schema(payload=TEXT, kind=TEXT), write_options({"path": URL}))
    with pytest.raises(InvalidRequestError, match="drop one of them"):
        plan_columns(schema(payload=TEXT, kind=TEXT), write_options({"path": URL, **found}))
