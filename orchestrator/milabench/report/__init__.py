"""Numbers, turned into text. Pure."""
