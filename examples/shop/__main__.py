"""Starts the shop: two workers in processes of their own, and the web page in this one."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import uvicorn

from examples.shop.tasks import URL

WORKERS = 2


def start_worker() -> subprocess.Popen[bytes]:
    """Start a worker, as `bucketq work` does in production."""
    command = [sys.executable, "-m", "bucketq.cli", "work", "examples.shop.tasks:worker"]
    return subprocess.Popen(command, env=os.environ | {"BUCKETQ_URL": URL})


def stop(worker: subprocess.Popen[bytes]) -> None:
    """Let a worker finish what it runs."""
    worker.send_signal(signal.SIGTERM)
    worker.wait()


def main() -> None:
    """Run until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description="Run the shop.")
    parser.add_argument("--port", type=int, default=8000, help="where the page is (8000)")
    options = parser.parse_args()
    print(f"queue: {URL}")
    print(f"page:  http://127.0.0.1:{options.port}/  (Ctrl-C ends it)", flush=True)
    with ExitStack() as stack:
        for _ in range(WORKERS):
            stack.callback(stop, start_worker())
        uvicorn.run("examples.shop.page:app", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
