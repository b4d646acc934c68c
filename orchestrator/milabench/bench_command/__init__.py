"""Commands measured from the command line, without a suite that names them: `milabench bench`.

Builds on: driver.
"""
