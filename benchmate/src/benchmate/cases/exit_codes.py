"""The exit codes of a program of cases (cases.md)."""

from __future__ import annotations

PASSED = 0
FAILED = 1
USAGE = 2
NOTHING_MATCHED = 3
INTERRUPTED = 130
