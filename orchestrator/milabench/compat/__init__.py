"""Benchmarks written for other systems, made values of ours; reached through bench/registry.py alone."""
