"""Criteria of a file, checked against runs: PASS, FAIL or INCONCLUSIVE."""
