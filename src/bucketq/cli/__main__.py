"""``python -m bucketq.cli``."""

from bucketq.cli import main

main()
