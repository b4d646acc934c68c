"""Whether suites can be used, what their values become, and the JSON Schemas of files: `milabench config`."""
