"""Summaries and comparisons as text, in several formats. Pure."""
