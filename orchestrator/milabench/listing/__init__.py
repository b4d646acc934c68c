"""The benchmarks of a suite, and their requirements: `milabench list`."""
