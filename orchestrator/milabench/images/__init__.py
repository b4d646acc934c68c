"""Recipes of container images: from the wheel that goes into them and the locks of the suite; nothing is built here.

Builds on: archives.
"""
