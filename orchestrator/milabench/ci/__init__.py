"""A build server's job: all stages of a suite, JUnit XML, and the exit code that decides.

Builds on: acceptance, doctor, quickstart.
"""
