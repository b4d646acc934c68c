"""An experiment about timing: the readings of each way to time the calls of a model, and why (`milabench timing-audit`).

Builds on: following.
"""
