"""An old name of benchmate.ops: its programs call it before they begin."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from types import ModuleType


def get_logger() -> logging.Logger:
    """Return the logger of operators."""
    return logging.getLogger("benchmate.ops")


def init_logging(level: int = logging.INFO) -> logging.Logger:
    """Show log messages from `level` on. Return the logger."""
    logging.basicConfig(format="%(message)s")
    get_logger().setLevel(level)
    return get_logger()


def load_package(package: str) -> bool:
    """Import a package by name. Return whether it is there."""
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        get_logger().warning("%s: %s", package, error)
        return False
    return True


def load_modules(package: ModuleType) -> None:
    """Import every module of a package, which registers its contents. A module with missing packages is left out."""
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        load_package(module.name)
