"""Checks of suites, the resolved values of suites, and the JSON Schemas of files: `milabench config`."""
