"""What a word is, and how well a document matches a query: Okapi BM25.

The index and the tail of the log are counted by the same functions, and the score is computed from
whole numbers alone, in the order of the words of the query. So it is equal to the last bit,
wherever a document was found.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from examples.indexing.wal import Document

K1 = 1.2
"""How soon repetitions of a word stop to count."""
B = 0.75
"""How much a long document is penalised."""
_WORD = re.compile(r"[^\W_]+")
_LONGEST_WORD = 40


def words_of(text: str) -> list[str]:
    """Return the words of a text. A name like ``max_size`` is two."""
    return [word for word in _WORD.findall(text.lower()) if len(word) <= _LONGEST_WORD]


def count_words(document: Document) -> Counter[str]:
    """Return how often each word occurs in a document."""
    return Counter(words_of(f"{document.title}\n{document.text}"))


@dataclass(frozen=True)
class Posting:
    """One word in one document."""

    frequency: int
    length: int
    """How many words the document has."""


@dataclass
class Statistics:
    """What BM25 needs of all documents together."""

    documents: int = 0
    words: int = 0
    containing: Counter[str] = field(default_factory=Counter)
    """In how many documents each word of the query occurs."""


def score(terms: Sequence[str], found: Mapping[str, Posting], statistics: Statistics) -> float:
    """Return how well a document matches a query."""
    average = statistics.words / statistics.documents
    total = 0.0
    for term in terms:
        posting = found.get(term)
        if posting is None:
            continue
        containing = statistics.containing[term]
        rarity = math.log(1 + (statistics.documents - containing + 0.5) / (containing + 0.5))
        held_back = K1 * (1 - B + B * posting.length / average)
        total += rarity * posting.frequency * (K1 + 1) / (posting.frequency + held_back)
    return total
