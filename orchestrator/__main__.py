"""`python -m orchestrator` is `milabench`."""

from orchestrator.cli import program

program()
