"""Unmodified programs, measured without a voirfile of their author: `milabench try`, `milabench new --from PROGRAM`.

Builds on: bench_command, driver, scaffold.
"""
