"""The lock files of benchmarks: written from their requirements, and newer ones tried: `milabench pin`.

Builds on: quickstart.
"""
