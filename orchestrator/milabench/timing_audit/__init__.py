"""An experiment about timing: what each way to time the calls of a model reads, and why; `milabench timing-audit`.

Builds on: following.
"""
