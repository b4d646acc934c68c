"""Errors of instruments, with messages for the author of the voirfile."""


class BenchmateError(Exception):
    """A mistake in how the instruments were used. The message names it, its place and the correction."""


class ProbeError(BenchmateError):
    """A probe that cannot be placed, would change the program, or never fired."""


class BatchSizeError(BenchmateError):
    """A batch whose number of items cannot be determined."""
