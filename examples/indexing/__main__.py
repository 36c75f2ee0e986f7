"""``python -m examples.indexing``: write, index and search; without arguments, all of it as a demo.

It exits with 0 on success, with 1 if something is wrong, with 2 on a wrong
command line, and with 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

import bucketq.spark
from bucketq.errors import BucketQError, InvalidRequestError
from bucketq.spark.session.command_session import command_session
from bucketq.worker.counters import WorkerCounters
from examples.indexing import corpus
from examples.indexing.console import Watch, show, waiting
from examples.indexing.demo import demo
from examples.indexing.location import open_location
from examples.indexing.pipeline import Stopped, indexed, run_jobs, write_corpus
from examples.indexing.search import search
from examples.indexing.tasks import worker

FOLDER = corpus.ROOT / "build" / "demo" / "indexing"
_KNOWN = f"some of {', '.join(corpus.NAMESPACES)}; by default all"


def main() -> int:
    """Do what the command line says."""
    given = _parser().parse_args()
    try:
        if given.command == "write":
            return asyncio.run(_write(given.url, given.namespaces, given.limit))
        if given.command == "index":
            return _index(given.url, given.spark)
        if given.command == "search":
            return asyncio.run(_search(given.url, given.namespace, given.query, given.count))
        return demo(given.folder.resolve(), given.spark, given.limit)
    except BucketQError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Stopped):
        next_time = "index resumes" if given.command == "demo" else "the same command resumes"
        print(f"\nstopped; nothing is lost; {next_time}", file=sys.stderr)
        return 130


async def _write(url: str, namespaces: list[str], limit: int | None) -> int:
    with waiting("writing") as progress:
        written = await write_corpus(url, namespaces or corpus.NAMESPACES, limit, progress)
    print(
        f"{written.documents.total():,} documents written in {written.segments} segments; "
        f"{len(written.jobs)} jobs to run: python -m examples.indexing index"
    )
    return 0


def _index(url: str, master: str) -> int:
    if not asyncio.run(indexed(url)):
        message = "there are no documents yet: python -m examples.indexing write"
        raise InvalidRequestError(message)

    def run_here() -> WorkerCounters:
        worker.configure(url)
        worker.run_sync(burst=True)
        return worker.counters

    if master == "none":
        with Watch(url):
            ends = run_jobs(url, run_here)
    else:
        print(f"starting Spark on {master}", flush=True)
        with command_session(master, "indexing") as spark, Watch(url):
            ends = run_jobs(url, lambda: bucketq.spark.run(spark, url, worker, burst=True))
    text = ", ".join(f"{count} {end}" for end, count in ends.items())
    print(f"attempts: {text}" if text else "everything is indexed already")
    for namespace, found in asyncio.run(indexed(url)).items():
        print(f"{namespace}: {found.documents:,} documents in {len(found.parts)} parts")
    return 0


async def _search(url: str, namespace: str, query: str, count: int) -> int:
    async with open_location(url) as location:
        show(namespace, query, await search(location, namespace, query, count))
    return 0


def _namespace(name: str) -> str:
    if name not in corpus.NAMESPACES:
        message = f"there are no documents for {name!r}: name {_KNOWN}"
        raise argparse.ArgumentTypeError(message)
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.indexing",
        description="A small search engine on object storage, indexed by jobs on Spark.",
    )
    parser.add_argument(
        "--url",
        default=os.environ.get("BUCKETQ_URL") or (FOLDER / "queue.json").as_uri(),
        help="the queue; log and index are beside it. By default where the demo puts it.",
    )
    parser.set_defaults(command="demo", folder=FOLDER, spark="local[2]", limit=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    play = commands.add_parser("demo", help="all of it, with a broker that is killed half way")
    play.add_argument("--folder", type=Path, default=FOLDER, help="emptied first")
    write = commands.add_parser("write", help="write documents, and push jobs that index them")
    write.add_argument("namespaces", nargs="*", metavar="NAMESPACE", type=_namespace, help=_KNOWN)
    index = commands.add_parser("index", help="work the jobs off on Spark")
    for command in (play, write):
        command.add_argument("--limit", type=int, help="at most this many documents a namespace")
    for command in (play, index):
        command.add_argument(
            "--spark",
            metavar="MASTER",
            default="local[2]",
            help='like spark://host:7077; "none": in this process, without Spark',
        )
    find = commands.add_parser("search", help="find documents")
    find.add_argument("namespace", metavar="NAMESPACE")
    find.add_argument("query", metavar="WORDS")
    find.add_argument("--count", "-n", type=int, default=5, help="how many to show")
    return parser


if __name__ == "__main__":
    sys.exit(main())
