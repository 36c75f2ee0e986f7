"""Search: the best documents for some words, from the index and from the tail of the log.

The manifest is read once, and lists the segments of the index; all others are read from the log. So
each document is considered once, whatever is indexed or merged at the same time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from bucketq.errors import InvalidRequestError, UnavailableError
from bucketq.store.base import ObjectMissingError
from examples.indexing import manifest
from examples.indexing.location import Location
from examples.indexing.manifest import File, Manifest
from examples.indexing.parts import find_postings, find_texts, spell
from examples.indexing.ranking import Posting, Statistics, count_words, score, words_of
from examples.indexing.wal import Document, Place, Wal

_TRIES = 10


@dataclass(frozen=True)
class Hit:
    """A document that was found."""

    place: Place
    score: float
    document: Document


@dataclass
class Answer:
    """What was found, and how."""

    hits: list[Hit] = field(default_factory=list)
    matching: int = 0
    """How many documents have at least one of the words."""
    indexed: int = 0
    """How many documents the index has."""
    tail: int = 0
    """How many are not indexed yet, and were read from the log."""
    files_read: int = 0
    files: int = 0
    bytes_read: int = 0
    bytes: int = 0
    """Of the files of the index."""


async def search(location: Location, namespace: str, query: str, limit: int = 5) -> Answer:
    """Find the best documents of a namespace."""
    terms = list(dict.fromkeys(words_of(query)))
    if not terms:
        message = f"there is no word in {query!r}: search for words of letters and digits"
        raise InvalidRequestError(message)
    for _ in range(_TRIES):
        found = await manifest.load(location, namespace)
        try:
            answer = await _Search(location, namespace, found, terms).run(limit)
        except ObjectMissingError:
            continue  # Parts were merged while this was reading them; the manifest names others.
        if not answer.indexed + answer.tail:
            await _complain(location, namespace)
        return answer
    message = f"the index of {namespace} was changed {_TRIES} times while it was read: search again"
    raise UnavailableError(message)


class _Search:
    """One search in one state of the index."""

    def __init__(
        self, location: Location, namespace: str, found: Manifest, terms: list[str]
    ) -> None:
        self._home = location
        self._namespace = namespace
        self._manifest = found
        self._terms = terms
        self._statistics = Statistics(found.documents, found.words)
        self._postings: dict[Place, dict[str, Posting]] = {}
        self._tail: dict[Place, Document] = {}
        files = [file for part in found.parts for file in part.files]
        self._answer = Answer(files=len(files), bytes=sum(file.size_bytes for file in files))

    async def run(self, limit: int) -> Answer:
        answer = self._answer
        answer.indexed = self._manifest.documents
        await self._read_index()
        await self._read_tail()
        answer.matching = len(self._postings)
        scored = (
            (-score(self._terms, found, self._statistics), place)
            for place, found in self._postings.items()
        )
        best = heapq.nsmallest(limit, scored)
        documents = await self._read_texts([place for _, place in best])
        answer.hits = [Hit(place, -minus, documents[place]) for minus, place in best]
        return answer

    async def _read_index(self) -> None:
        """Look the words up."""
        files = [
            file
            for part in self._manifest.parts
            for file in part.postings
            if any(file.first <= term <= file.last for term in self._terms)
        ]
        self._count(files)
        for term, place, posting in await find_postings(self._home, files, self._terms):
            self._add(term, place, posting)

    async def _read_tail(self) -> None:
        """Count the words of what is not indexed."""
        wal = Wal(self._home, self._namespace)
        async for segment in wal.missing_from(self._manifest.segments):
            for line, document in enumerate(segment.documents):
                place = Place(segment.number, line)
                counts = count_words(document)
                length = counts.total()
                self._tail[place] = document
                self._statistics.documents += 1
                self._statistics.words += length
                for term in self._terms:
                    if counts[term]:
                        self._add(term, place, Posting(counts[term], length))
        self._answer.tail = len(self._tail)

    def _add(self, term: str, place: Place, posting: Posting) -> None:
        self._statistics.containing[term] += 1
        self._postings.setdefault(place, {})[term] = posting

    async def _read_texts(self, places: list[Place]) -> dict[Place, Document]:
        """The documents at some places."""
        wanted = [place for place in places if place not in self._tail]
        spelled = [spell(place) for place in wanted]
        files = [
            file
            for part in self._manifest.parts
            for file in part.texts
            if any(file.first <= each <= file.last for each in spelled)
        ]
        self._count(files)
        return {**self._tail, **await find_texts(self._home, files, wanted)}

    def _count(self, files: list[File]) -> None:
        self._answer.files_read += len(files)
        self._answer.bytes_read += sum(file.size_bytes for file in files)


async def _complain(location: Location, namespace: str) -> None:
    """Raise ``InvalidRequestError`` for a namespace without documents."""
    known = ", ".join(await location.namespaces()) or "none yet"
    message = f"namespace {namespace!r} has no documents: there are {known}"
    raise InvalidRequestError(message)
