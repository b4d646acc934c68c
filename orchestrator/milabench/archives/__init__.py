"""Tamper-evident archives of runs, and runs that lie in one: `milabench bundle` and `verify`."""
