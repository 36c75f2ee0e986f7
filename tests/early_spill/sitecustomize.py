"""Lets new queues of this process spill early, if ``BUCKETQ_TEST_SPILL_BYTES`` says how early.

Python imports it at its start in every process that a test starts, because ``tests.environ`` puts
its folder on the path. So each suite can be run with queues that are deep from the first job on.
"""

import os

from msgspec.structs import replace

from bucketq.model import settings

settings.DEEP = replace(settings.DEEP, spill_bytes=int(os.environ["BUCKETQ_TEST_SPILL_BYTES"]))
