"""Declarations of stored and exchanged values that several layers share. No behaviour."""
