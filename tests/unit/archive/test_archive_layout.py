"""Which keys are those of archive files."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bucketq.archive.archive_layout import Layout

NAME = "2026-10-01T07/00000000000000000012-0123456789abcdef.jsonl"


def layout() -> Layout:
    return Layout.of("memory://", "jobs/queue.json")


def test_the_key_of_an_archive_file_is_parsed() -> None:
    found = layout().parse(f"{layout().root}{NAME}")
    assert found is not None
    assert (found.hour, found.version) == (datetime(2026, 10, 1, 7, tzinfo=UTC), 12)


@pytest.mark.parametrize(
    "name",
    [
        NAME.replace("12-", "1\N{ARABIC-INDIC DIGIT TWO}-"),
        NAME.replace("T07", "T0\N{ARABIC-INDIC DIGIT SEVEN}"),
        NAME.replace("T07", "T99"),
        NAME.replace("abcdef", "ABCDEF"),
        f"deeper/{NAME}",
        f"{NAME}\n",
    ],
)
def test_any_other_key_is_left_alone(name: str) -> None:
    assert layout().parse(f"{layout().root}{name}") is None
