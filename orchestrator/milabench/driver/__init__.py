"""Tasks of .cfg files, which are any commands, and the metrics in their logs. `milabench driver`."""
