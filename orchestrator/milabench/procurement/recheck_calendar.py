"""When a system is to be checked again: dates at an interval."""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta

from milabench.errors import UsageError

DATES = 5
"""How many rechecks are named."""
_INTERVAL = re.compile(r"(?P<count>[1-9]\d{0,3})\s*(?P<unit>year|month|week|day)s?")
_MONTHS = {"year": 12, "month": 1}
_DAYS = {"week": 7, "day": 1}


def recheck_note(every: str, first: date) -> str:
    """Return the next dates in a sentence. Raises UsageError as `recheck_dates`."""
    return f"rechecks every {every}: {', '.join(map(str, recheck_dates(every, first)))}"


def recheck_dates(every: str, first: date, count: int = DATES) -> tuple[date, ...]:
    """Return the dates at an interval such as `2 years`, `6 months`, `90 days` after the first, which is none of them.

    A day that a month lacks is replaced by its last day. The next dates are counted from `first`, so they keep its day.
    """
    match = _INTERVAL.fullmatch(every.strip().lower())
    if match is None:
        raise UsageError(f"--every '{every}': is no interval. Give '2 years', '6 months', '8 weeks' or '90 days'")
    number, unit = int(match["count"]), match["unit"]
    try:
        if unit in _DAYS:
            return tuple(first + timedelta(days=_DAYS[unit] * number * k) for k in range(1, count + 1))
        return tuple(_months_later(first, _MONTHS[unit] * number * k) for k in range(1, count + 1))
    except (ValueError, OverflowError):
        raise UsageError(f"--every '{every}': leads beyond the year 9999. Give a shorter interval") from None


def _months_later(first: date, months: int) -> date:
    years, month = divmod(first.month - 1 + months, 12)
    year = first.year + years
    if year > date.max.year:
        raise ValueError(year)
    return date(year, month + 1, min(first.day, calendar.monthrange(year, month + 1)[1]))
