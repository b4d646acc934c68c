"""The version of milabench. The distribution reads it from here too."""

__version__ = "0.1.0"
