"""A shell or a command in the environment of a benchmark: `milabench dev` and `ops`."""
