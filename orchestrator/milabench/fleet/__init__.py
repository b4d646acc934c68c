"""What is expected of the nodes and devices of a fleet, and which of them differ: `milabench baseline` and `outliers`."""
