"""Batch schedulers: their interface. Each is a feature."""
