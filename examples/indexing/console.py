"""What a person sees: the progress of the index, and search results."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bucketq.errors import UnavailableError
from examples.indexing import manifest
from examples.indexing.location import open_location
from examples.indexing.ranking import words_of
from examples.indexing.search import Answer
from examples.indexing.wal import Wal

console = Console(highlight=False, soft_wrap=True)
_LOOK_S = 0.03
_SNIPPET = 160
_SHORT = 3
_BLANKS = re.compile(r"\s+")


def say(what: str, text: str) -> None:
    """Print what happened."""
    console.print(f"[bold]{what:9}[/bold] {text}", markup=True)


@contextlib.contextmanager
def waiting(text: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on a terminal; call the yielded function to change its text."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(text) as status:
        yield lambda more: status.update(f"{text} {more}")


class Watch:
    """A bar of how many segments are indexed, read from the manifests.

    It reads them in a separate thread, because the handlers need the main thread. ``notice`` is
    called there with the number of indexed segments and of all segments.
    """

    def __init__(
        self, url: str, notice: Callable[[int, int], Awaitable[None]] | None = None
    ) -> None:
        """Show nothing yet."""
        self._url = url
        self._notice = notice
        self._progress = Progress(
            TextColumn("indexing"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("segments"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._look_on()), daemon=True)

    def __enter__(self) -> Self:
        """Begin to read the manifests."""
        if console.is_terminal:
            self._progress.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop reading."""
        self._is_over.set()
        self._thread.join()
        if console.is_terminal:
            self._progress.stop()

    async def _look_on(self) -> None:
        bar = self._progress.add_task("indexing", total=None)
        while not self._is_over.is_set():
            # A long outage is reported by the handlers.
            with contextlib.suppress(UnavailableError):
                covered, total = await coverage(self._url)
                self._progress.update(bar, completed=covered, total=total)
                if self._notice is not None:
                    await self._notice(covered, total)
            await asyncio.to_thread(self._is_over.wait, _LOOK_S)


async def coverage(url: str) -> tuple[int, int]:
    """Return how many segments of all namespaces are indexed, and how many there are."""
    covered = total = 0
    async with open_location(url) as location:
        for namespace in await location.namespaces():
            covered += len((await manifest.load(location, namespace)).segments)
            total += await Wal(location, namespace).last()
    return covered, total


def show(namespace: str, query: str, answer: Answer) -> None:
    """Print what was found."""
    terms = words_of(query)
    console.print(f'\n[bold]{escape(namespace)}[/bold]: "{escape(query)}"')
    for number, hit in enumerate(answer.hits, start=1):
        title = marked(hit.document.title, terms)
        console.print(f"  {number}. {title}  [dim]{hit.score:.2f}[/dim]")
        console.print(f"     {marked(snippet(hit.document.text, terms), terms)}")
    if not answer.hits:
        console.print("  nothing was found")
    read = f"{answer.files_read} of {answer.files} files, {answer.bytes_read / 1024:,.0f} of "
    console.print(
        f"  [dim]{answer.matching:,} of {answer.indexed + answer.tail:,} documents match: "
        f"{answer.indexed:,} were in the index ({read}{answer.bytes / 1024:,.0f} KiB read), "
        f"{answer.tail:,} in the tail of the log[/dim]"
    )


def snippet(text: str, terms: Sequence[str]) -> str:
    """Return the passage of a text that has most of some words."""
    flat = _BLANKS.sub(" ", text).strip()
    # Short words say little about where the answer is.
    wanted = {term for term in terms if len(term) > _SHORT} or set(terms)
    matches = [match for match in re.finditer(r"[^\W_]+", flat) if match[0].lower() in wanted]
    best = 0
    most = 0
    for match in matches:
        begin = max(0, match.start() - 20)
        inside = {
            other[0].lower() for other in matches if begin <= other.start() < begin + _SNIPPET
        }
        if len(inside) > most:
            best, most = begin, len(inside)
    if best:
        best = flat.rfind(" ", 0, best + 1) + 1
    end = best + _SNIPPET
    cut = flat[best:end] if end >= len(flat) else flat[best:end].rpartition(" ")[0]
    return f"{'… ' if best else ''}{cut}{' …' if end < len(flat) else ''}"


def marked(text: str, terms: Sequence[str]) -> str:
    """Return a text for the terminal, with some words in bold."""
    wanted = set(terms)
    return re.sub(
        r"[^\W_]+",
        lambda word: f"[bold]{word[0]}[/bold]" if word[0].lower() in wanted else word[0],
        escape(text),
    )
