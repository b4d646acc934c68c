"""When a system is to be checked again: dates at an interval, and an iCalendar file of them (RFC 5545)."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from milabench.errors import UsageError

DATES = 5
"""How many rechecks a calendar has."""
_INTERVAL = re.compile(r"(?P<count>[1-9]\d{0,3})\s*(?P<unit>year|month|week|day)s?")
_MONTHS = {"year": 12, "month": 1}
_DAYS = {"week": 7, "day": 1}
_LINE = 75  # octets of a line of a calendar, after which it is folded


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckCalendar:
    """A system that is checked again at these dates; `first` is the day of its acceptance."""

    system: str
    every: str
    first: date
    limit: float | None = None

    @property
    def dates(self) -> tuple[date, ...]:
        """The next dates. Raises UsageError for an interval that is none, or that leads beyond the year 9999."""
        return recheck_dates(self.every, self.first)

    @property
    def note(self) -> str:
        """The dates in a sentence."""
        return f"rechecks every {self.every}: {', '.join(map(str, self.dates))}"

    def to_ics(self) -> str:
        """Return an iCalendar file with an all-day event for each date; the same values give the same bytes."""
        lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//milabench//recheck//EN"]
        asked = "" if self.limit is None else f" Each benchmark has to reach {self.limit:g} of what it reached then."
        about = f"Run the suite of {self.first} again and compare it with the accepted run: milabench accept --recheck.{asked}"
        for number, day in enumerate(self.dates, start=1):
            lines += [
                "BEGIN:VEVENT",
                f"UID:recheck-{number}-{self.first:%Y%m%d}-{re.sub(r'[^A-Za-z0-9]', '-', self.system)}@milabench",
                f"DTSTAMP:{self.first:%Y%m%d}T000000Z",
                f"DTSTART;VALUE=DATE:{day:%Y%m%d}",
                f"SUMMARY:{_escaped(f'Recheck of {self.system}')}",
                f"DESCRIPTION:{_escaped(about)}",
                "TRANSP:TRANSPARENT",
                "END:VEVENT",
            ]
        lines.append("END:VCALENDAR")
        return "".join(f"{part}\r\n" for line in lines for part in _folded(line))


def recheck_dates(every: str, first: date, count: int = DATES) -> tuple[date, ...]:
    """Return the dates at an interval such as `2 years`, `6 months`, `90 days` after the first, which is none of them.

    A day that a month lacks is its last one; the next dates are counted from `first`, so they keep its day.
    """
    match = _INTERVAL.fullmatch(every.strip().lower())
    if match is None:
        raise UsageError(f"--every '{every}': is no interval; give '2 years', '6 months', '8 weeks' or '90 days'")
    number, unit = int(match["count"]), match["unit"]
    try:
        if unit in _DAYS:
            return tuple(first + timedelta(days=_DAYS[unit] * number * k) for k in range(1, count + 1))
        return tuple(_months_later(first, _MONTHS[unit] * number * k) for k in range(1, count + 1))
    except (ValueError, OverflowError):
        raise UsageError(f"--every '{every}': leads beyond the year 9999; give a shorter interval") from None


def _months_later(first: date, months: int) -> date:
    years, month = divmod(first.month - 1 + months, 12)
    year = first.year + years
    if year > date.max.year:
        raise ValueError(year)
    return date(year, month + 1, min(first.day, calendar.monthrange(year, month + 1)[1]))


def _escaped(text: str) -> str:
    return re.sub(r"([\\;,])", r"\\\1", " ".join(text.split()))


def _folded(line: str) -> Iterator[str]:
    """Yield a line in parts of at most 75 octets, none of which ends within a character."""
    part = ""
    for character in line:
        if len((part + character).encode()) > _LINE:
            yield part
            part = " "
        part += character
    yield part
