"""Runs as they go: `milabench runs`, `status`, `logs`, `replay` and `cancel`, and detached runs that are watched again."""
