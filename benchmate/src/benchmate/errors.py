"""What can go wrong in an instrument, in words for the person who wrote the voirfile."""


class BenchmateError(Exception):
    """A mistake in how the instruments were used; the message says what, where and the way out."""


class ProbeError(BenchmateError):
    """A probe that cannot be placed, would change the program, or never fired."""


class BatchSizeError(BenchmateError):
    """A batch whose number of items cannot be told."""
