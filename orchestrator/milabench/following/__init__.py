"""Runs as they go, from their journals and records: a detached run, `milabench logs` and `replay`."""
