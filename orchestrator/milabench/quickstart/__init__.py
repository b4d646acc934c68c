"""All stages of a suite in one command: `milabench quickstart`."""
