"""An old name of benchmate.ops."""

from benchmate import __version__ as __version__
