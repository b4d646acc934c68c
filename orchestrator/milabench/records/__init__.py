"""Declarations of stored and exchanged values that several layers share; no behaviour."""
