"""Spark starts Python processes for every stream, so the format imports only what most need."""

from __future__ import annotations

import subprocess
import sys

from tests.environ import child_environ


def test_the_format_is_imported_without_pandas() -> None:
    """It takes longer to import than all the rest, and only frames of pandas need it."""
    program = "import bucketq.spark.data_source, sys; sys.exit('pandas' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], env=child_environ(), timeout=120, check=False
    )
    assert ran.returncode == 0
