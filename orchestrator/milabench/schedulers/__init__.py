"""Batch schedulers: what each has to be, and a package for each of them."""
