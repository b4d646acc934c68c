"""Starts Lightning's command line, which has no module of its own to be started by."""

from lightning.pytorch.cli import LightningCLI

if __name__ == "__main__":
    # Without a callback that would write the settings into the folder of the data, and refuse to do so again.
    LightningCLI(save_config_callback=None)
