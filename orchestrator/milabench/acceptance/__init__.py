"""Criteria of a file, checked against runs: PASS, FAIL or INCONCLUSIVE. `milabench accept`.

Builds on: suite_check.
"""
