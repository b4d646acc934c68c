"""Sweeps over the loads of a served model: their fold, curve and repeats, and how curves are compared, checked and drawn.

Builds on: acceptance, pages.
"""
