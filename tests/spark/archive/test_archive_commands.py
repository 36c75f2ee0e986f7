"""The commands of the archive, as they are typed, here in the session of the tests.

``bucketq work --spark`` changes the log of its process, and has one of its own in ``test_run``.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bucketq.spark.session import command_session
from tests.spark.features import archive_commands


def test_commands_compact_measure_and_replay_an_archive(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_session, "command_session", lambda *_, **__: nullcontext(spark))
    archive_commands("local[2]", tmp_path)
