"""What was written for milabench 1.3: benchfiles as values of ours, suites imported, options on our command line.

Builds on: scaffold, suite_check.
"""
