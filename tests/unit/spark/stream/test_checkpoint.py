"""What a stream leaves in a checkpoint, and how it is read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.spark.stream.checkpoint import batch_of, last_committed, offset_of


def checkpoint(folder: Path, offsets: dict[int, str], commits: list[int]) -> Path:
    """A folder as Spark leaves it."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number, text in offsets.items():
        (folder / "offsets" / str(number)).write_text(f"v1\n{{}}\n{text}\n", "utf-8")
    for number in commits:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}', "utf-8")
        (folder / "commits" / f".{number}.crc").write_text("", "utf-8")
    return folder


def offset(consumer: str, batch: int) -> str:
    return json.dumps(offset_of(consumer, batch))


def test_an_offset_is_decoded_to_its_batch_number() -> None:
    assert batch_of(offset_of("c", 7), "c") == 7


def test_offsets_have_the_format_of_older_checkpoints() -> None:
    assert offset_of("c", 7) == {"consumer": "c", "batch": 7}
    older = Path(__file__).parents[3] / "spark" / "stream" / "checkpoint-1"
    assert last_committed(str(older), "c") == 1


def test_a_checkpoint_of_another_consumer_or_source_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="one of consumer 'd', and the option consumer"):
        batch_of(offset_of("d", 7), "c")
    with pytest.raises(InvalidRequestError, match="not one of a bucketq stream"):
        batch_of({"topic": {"0": 5}}, "c")


def test_the_last_batch_is_the_one_of_the_last_commit(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {9: offset("c", 4), 10: offset("c", 5)}, [8, 9])
    assert last_committed(str(folder), "c") == 4
    assert last_committed(folder.as_uri(), "c") == 4


def test_the_offset_is_found_among_those_of_other_sources(tmp_path: Path) -> None:
    inside = json.dumps({"source-1": offset("c", 6)})
    folder = checkpoint(tmp_path, {0: f"-\n{offset('d', 3)}\n[1]\n{inside}"}, [0])
    assert last_committed(str(folder), "c") == 6
    with pytest.raises(InvalidRequestError, match="not one of a stream of consumer 'x'"):
        last_committed(str(folder), "x")


def test_a_query_that_committed_nothing_has_no_last_batch(tmp_path: Path) -> None:
    assert last_committed(str(checkpoint(tmp_path, {0: offset("c", 1)}, [])), "c") == 0


def test_a_folder_that_is_not_a_checkpoint_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no checkpoint of a stream at"):
        last_committed(str(tmp_path), "c")
    with pytest.raises(InvalidRequestError, match="cannot be read from here"):
        last_committed("s3a://bucket/checkpoint", "c")
