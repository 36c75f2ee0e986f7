"""Each way into Spark: what it adds to the options, and what it allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import bucketq
import bucketq.spark


def numbers(spark: SparkSession) -> DataFrame:
    """A stream of two rows."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2)
    rows = source.option("numPartitions", 1).load()
    return rows.selectExpr("'x' AS kind", "CAST(value AS string) AS payload")


def test_spark_finds_the_format_and_registering_it_does_no_harm(
    spark: SparkSession, file_url: str
) -> None:
    """A new session does not know what was registered in another, only what Spark has found."""
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.push("mail", 1)
    other = spark.newSession()
    for _ in range(2):
        assert other.read.format("bucketq").load(file_url).count() == 1
        bucketq.spark.register(other)


def test_a_query_with_a_name_pushes(spark: SparkSession, file_url: str, tmp_path: Path) -> None:
    writing = numbers(spark).writeStream.format("bucketq").queryName("push")
    writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writing.trigger(once=True).start(file_url)
    assert query.awaitTermination(60)
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        assert queue.stats().total("queued") > 0


def test_sql_reads_and_pushes_through_a_temporary_view(spark: SparkSession, file_url: str) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW jobs USING bucketq OPTIONS (path '{file_url}')")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW new_jobs (kind string, payload string, priority int) "
        f"USING bucketq OPTIONS (path '{file_url}')"
    )
    spark.sql("INSERT INTO new_jobs VALUES ('mail', '{\"to\": \"ada\"}', 3)")
    [row] = spark.sql("SELECT kind, payload, priority, status FROM jobs").collect()
    assert row.asDict() == {
        "kind": "mail",
        "payload": '{"to": "ada"}',
        "priority": 3,
        "status": "queued",
    }


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE stored USING bucketq OPTIONS (path '{url}')",
        "CREATE TABLE empty USING bucketq",
    ],
)
def test_a_table_in_a_catalog_is_refused_and_the_error_names_a_view(
    spark: SparkSession, file_url: str, statement: str
) -> None:
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW jobs USING bucketq"):
        spark.sql(statement.format(url=file_url))


def test_a_schema_chooses_columns(spark: SparkSession, file_url: str, tmp_path: Path) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        job_id = queue.push("mail", 1)
    reading = spark.read.schema("Kind string, id string").format("bucketq")
    [row] = reading.load(file_url).collect()
    assert row.asDict() == {"Kind": "mail", "id": job_id}
    stream = spark.readStream.schema("payload string, kind string").format("bucketq")
    rows = stream.option("consumer", "c").load(file_url)
    target, checkpoint = str(tmp_path / "rows"), str(tmp_path / "checkpoint")
    writing = rows.writeStream.format("json").option("checkpointLocation", checkpoint)
    assert writing.trigger(availableNow=True).start(target).awaitTermination(60)
    assert [each.asDict() for each in spark.read.json(target).collect()] == [
        {"kind": "mail", "payload": "1"}
    ]


@pytest.mark.parametrize(
    ("schema", "message"),
    [("id string, colour string", "no column colour"), ("priority string", "is bigint, and not")],
)
def test_a_schema_that_is_not_ours_is_refused(
    spark: SparkSession, file_url: str, schema: str, message: str
) -> None:
    with bucketq.connect_sync(file_url, mode="direct"):
        pass
    with pytest.raises(PySparkException, match=message):
        spark.read.schema(schema).format("bucketq").load(file_url).collect()


def test_payloads_are_structs_and_variants_in_both_directions(
    spark: SparkSession, file_url: str, tmp_path: Path
) -> None:
    rows = spark.sql(
        """SELECT 'mail' AS kind, parse_json('{"to":"ada","n":[1,2.5]}') AS payload
        UNION ALL SELECT 'mail', parse_json('"text"')"""
    )
    rows.write.format("bucketq").mode("append").save(file_url)
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        payloads = [job.payload for job in queue.jobs().jobs]
    assert sorted(payloads, key=str) == ["text", {"to": "ada", "n": [1, 2.5]}]
    kinds: dict[str, list[Any]] = {
        "payload struct<to:string,n:array<double>>": [None, {"to": "ada", "n": [1.0, 2.5]}],
        "payload variant": ["text", {"to": "ada", "n": [1, 2.5]}],
    }
    for schema, expected in kinds.items():
        source = spark.read.schema(f"id string, {schema}").format("bucketq")
        found = [row.payload for row in source.load(file_url).collect()]
        values = [
            each.asDict() if isinstance(each, Row) else each and each.toPython() for each in found
        ]
        assert sorted(values, key=str) == sorted(expected, key=str)
    stream = spark.readStream.schema("payload struct<to:string>").format("bucketq")
    rows = stream.option("consumer", "c").load(file_url).selectExpr("payload.to")
    target, checkpoint = str(tmp_path / "rows"), str(tmp_path / "checkpoint")
    writing = rows.writeStream.format("json").option("checkpointLocation", checkpoint)
    assert writing.trigger(availableNow=True).start(target).awaitTermination(60)
    assert {row.to for row in spark.read.schema("to string").json(target).collect()} == {
        "ada",
        None,
    }
