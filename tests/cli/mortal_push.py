"""The command ``bucketq``, which kills itself at a step: STEP WHEN FILE and its own words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bucketq.cli import main
from bucketq.cli.bulk import feed_pusher, file_adoption
from tests.mortal_steps import mortal

if __name__ == "__main__":
    _, step, when, done, *words = sys.argv
    sys.argv = ["bucketq", *words]
    with pytest.MonkeyPatch.context() as patch, mortal(int(step), when, Path(done)):
        patch.setattr(feed_pusher, "_BATCH_JOBS", 10)
        patch.setattr(file_adoption, "SEGMENT_BYTES", 5000)
        main()
