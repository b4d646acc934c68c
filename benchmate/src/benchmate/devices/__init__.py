"""Accelerators as the instruments see them: one protocol, a vendor's library or tool behind each."""
