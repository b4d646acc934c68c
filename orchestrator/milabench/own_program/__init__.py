"""Programs that know nothing of milabench, measured as they are: `milabench try`, and `milabench new --from PROGRAM`.

Builds on: bench_command, driver.
"""
