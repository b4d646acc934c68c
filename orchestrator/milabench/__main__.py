"""`python -m milabench` is `milabench`."""

from milabench.cli import program

program()
