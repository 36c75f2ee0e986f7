"""Reads enough of PromQL to find what an expression refers to."""

from __future__ import annotations

import re
from typing import NamedTuple

FUNCTIONS = {"rate", "increase", "histogram_quantile", "topk"}
AGGREGATIONS = {"sum", "max", "min", "avg", "count"}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*") |
    (?P<range>\[(?:\d+[smhd]|\$__rate_interval)\]) |
    (?P<number>\d+(?:\.\d+)?) |
    (?P<name>[a-zA-Z_]\w*) |
    (?P<match>=~|!~|!=|==|>=|<=) |
    (?P<sign>[-+*/<>=(){},])
    )""",
    re.VERBOSE,
)
_PAIRS = {")": "(", "}": "{"}


class Used(NamedTuple):
    """What an expression refers to."""

    metrics: set[str]
    labels: set[str]


def parse(expression: str) -> Used:
    """Parse an expression. Raises ``ValueError`` on what is not PromQL, or is not known here."""
    tokens = _tokens(expression)
    used = Used(set(), set())
    open_brackets: list[str] = []
    is_grouping = False
    calls = FUNCTIONS | AGGREGATIONS
    for place, (kind, text) in enumerate(tokens):
        after = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        if text in {"(", "{"}:
            open_brackets.append(text)
        elif text in _PAIRS:
            if not open_brackets or open_brackets.pop() != _PAIRS[text]:
                raise ValueError(f"unbalanced {text} in {expression}")
            is_grouping = is_grouping and text != ")"
        elif text in {"by", "without"}:
            is_grouping = True
        elif text in calls and after not in {"(", "by", "without"}:
            raise ValueError(f"{text} is not called in {expression}")
        elif kind == "name" and text not in calls:
            is_label = is_grouping or open_brackets[-1:] == ["{"]
            (used.labels if is_label else used.metrics).add(text)
    if open_brackets or not used.metrics:
        raise ValueError(f"incomplete: {expression}")
    return used


def _tokens(expression: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place = 0
    while place < len(expression.rstrip()):
        found = _TOKEN.match(expression, place)
        if found is None or found.lastgroup is None:
            raise ValueError(f"cannot be read from {expression[place:]!r} on")
        tokens.append((found.lastgroup, found[found.lastgroup]))
        place = found.end()
    return tokens
