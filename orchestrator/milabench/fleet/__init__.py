"""Expected numbers of the nodes and devices of a fleet, and outliers among them: `milabench baseline` and `outliers`."""
