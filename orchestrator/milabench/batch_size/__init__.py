"""The largest batch size of a benchmark that fits, found by running it: `milabench size`."""
