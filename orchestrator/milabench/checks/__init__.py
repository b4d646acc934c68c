"""Folds over events that end in a verdict."""
