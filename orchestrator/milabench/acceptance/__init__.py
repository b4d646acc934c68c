"""Criteria of a file, held against runs: PASS, FAIL or INCONCLUSIVE."""
