"""An old name of a model of benchmate.ops."""

from benchmate.ops.models import AlexNet  # noqa: F401
