"""New benchmarks and suites, made from templates and releases for people to edit: `milabench init` and `new`.

Builds on: suite_check.
"""
