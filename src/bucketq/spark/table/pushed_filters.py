"""Filters of a query that let a batch read leave out what they cannot match.

Spark offers its filters to a reader if ``spark.sql.python.filterPushdown.enabled`` is on. Those on
``kind``, ``status`` and ``finished_at`` narrow the options of the read, as if the query had given
them: hours of the archive that cannot match are not listed, and segments and files of other kinds
are not read. Spark filters the rows again, so filters that are not used here are applied as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from bucketq.spark.format_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_LISTS = {"kind": "kinds", "status": "statuses"}
"""The columns that have a few values, and the options that name them."""
_FINISHED = ("done", "dead")
"""The statuses of jobs that have finished."""
_US = timedelta(microseconds=1)
"""The times of jobs are exact to this."""

_Bounds = tuple[datetime | None, datetime | None]


class OptionalPushdown:
    """What a reader has as ``pushFilters``, which Spark calls only if its setting is on.

    It is off by default. Spark then refuses to use a reader that overrides ``pushFilters``, which
    it sees by ``__func__``. With that of the base class, a reader can be used either way.
    """

    if hasattr(datasource.DataSourceReader, "pushFilters"):  # Not in Spark 4.0.
        __func__ = staticmethod(datasource.DataSourceReader.pushFilters)

    def __init__(self, use: Callable[[list[Filter]], None]) -> None:
        self._use = use

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Use filters, and return all of them, to be applied by Spark too."""
        self._use(filters)
        return filters


def narrow(options: ReadOptions, filters: Iterable[Filter], now: datetime) -> ReadOptions:
    """Return options that leave out rows which do not pass all filters, as far as that is known."""
    for each in filters:
        match getattr(each, "attribute", ()):
            case (str(name),) if name.lower() in _LISTS:
                options = _choose(options, _LISTS[name.lower()], _values(each))
            case (str(name),) if name.lower() == "finished_at":
                options = _within(options, each, now)
    return options


def _values(each: Filter) -> list[Any] | None:
    """Return the values one of which a column must have; None: it may have any."""
    match each:
        case datasource.EqualTo(value=value) | datasource.EqualNullSafe(value=value):
            found = [value]
        case datasource.In(value=several):
            found = list(several)
        case _:
            return None
    return None if None in found else found


def _choose(options: ReadOptions, name: str, wanted: Iterable[Any] | None) -> ReadOptions:
    """Choose some of the kinds or statuses."""
    if wanted is None:
        return options
    chosen = tuple(dict.fromkeys(wanted))
    known: tuple[str, ...] = getattr(options, name)
    kept = tuple(each for each in known if each in chosen) if known else chosen
    changes: dict[str, Any] = {name: kept} if kept else {"is_empty": True}
    return replace(options, **changes)


def _within(options: ReadOptions, each: Filter, now: datetime) -> ReadOptions:
    """Choose some of the times at which jobs have finished."""
    first, end = _bounds(each)
    if first is None and end is None and not isinstance(each, datasource.IsNotNull):
        return options
    if options.table != "archive":
        return _choose(options, "statuses", _FINISHED)
    until = options.until or now
    since = options.since or until
    since, until = max(since, first or since), min(until, end or until)
    return replace(options, since=since, until=until, is_empty=options.is_empty or since >= until)


def _bounds(each: Filter) -> _Bounds:
    """Return the first time that passes a filter, and the first one after those that do."""
    moments = [value for value in _values(each) or [getattr(each, "value", None)] if value]
    if not moments or not all(isinstance(each, datetime) and each.tzinfo for each in moments):
        return None, None
    first = end = None
    exact = datasource.EqualTo | datasource.EqualNullSafe | datasource.In
    try:
        if isinstance(each, datasource.GreaterThan):
            first = min(moments) + _US
        elif isinstance(each, datasource.GreaterThanOrEqual | exact):
            first = min(moments)
        if isinstance(each, datasource.LessThan):
            end = max(moments)
        elif isinstance(each, datasource.LessThanOrEqual | exact):
            end = max(moments) + _US
    except OverflowError:  # It is the last moment there is.
        return None, None
    return first, end
