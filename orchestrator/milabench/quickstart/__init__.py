"""All stages of a suite in a single command: `milabench quickstart`."""
