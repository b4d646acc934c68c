"""From measurements to a decision about systems: scores, costs and projections, pure, over values with uncertainty."""
