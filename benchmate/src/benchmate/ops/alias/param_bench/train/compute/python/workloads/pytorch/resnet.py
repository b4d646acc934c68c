"""An old name of a model of benchmate.ops."""

from benchmate.ops.models import ResNet50  # noqa: F401
