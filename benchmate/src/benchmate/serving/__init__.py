"""Measuring a server of language models from outside: the driver of a sweep, its clients, a server with known times.

Imports the standard library only. A client's needs are imported by its adapter, from the benchmark's environment.
"""
