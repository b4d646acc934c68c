"""Tamper-evident archives of runs, and runs in archives: `milabench bundle` and `verify`."""
