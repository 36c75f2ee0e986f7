"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# How long an example takes depends on what else the machine does; a test has a timeout of its
# own. Where nobody watches, the same examples run each time, so that a red build stays red.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
