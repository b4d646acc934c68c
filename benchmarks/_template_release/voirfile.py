"""What is measured in @NAME@. Which probe fits which program is in the README of benchmate, under "Which way in"."""

from benchmate import probes


def instrument_main(ov):
    """Observe the steps of the program."""
    probes.calls(ov, "__main__.train_step", units="steps/s")
