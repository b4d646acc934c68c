"""Support for milabench 1.3: its benchfiles as our values, suites imported, options on our command line.

Builds on: scaffold, suite_check.
"""
