"""The version of milabench; the distribution reads it from here too."""

__version__ = "0.1.0"
