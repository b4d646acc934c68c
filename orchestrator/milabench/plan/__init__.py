"""Suites and facts, turned into the exact steps that will be carried out. Pure."""
