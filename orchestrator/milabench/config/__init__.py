"""YAML suites and system files, turned into values that remember where they came from."""
