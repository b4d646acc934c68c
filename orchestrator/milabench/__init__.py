"""milabench: plans, runs, records and reports machine learning benchmarks."""

__version__ = "0.1.0"
