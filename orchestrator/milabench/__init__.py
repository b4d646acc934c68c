"""milabench: plans, runs, records and reports machine learning benchmarks."""

from milabench.version import __version__ as __version__
