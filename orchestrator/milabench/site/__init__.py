"""A static site about the runs of a base: `milabench report --site`.

Builds on: fleet, history, pages.
"""
