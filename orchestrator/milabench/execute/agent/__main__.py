"""Run the agent: this file is given to Python by its path, here and on other machines.

It only loads the rest of the package as modules, whose byte code Python keeps. This file itself is compiled at every start.
"""

import gc
import os
import sys

# Objects. Imports make tens of thousands that all stay, and what steps leave is freed without the collector.
COLLECT_AFTER = 100_000


def load_package() -> None:
    """Let `milabench.execute.agent` be imported, with the devices, and nothing else of milabench.

    The packages above it get no code of their own: the control plane's `__init__` files need a newer Python, and a node that
    the agent was sent to does not have them.
    """
    path = os.path.dirname(os.path.abspath(__file__))
    for name in ("milabench.execute", "milabench"):
        path = os.path.dirname(path)
        package = type(sys)(name)
        package.__path__ = [path]
        sys.modules[name] = package


if __name__ == "__main__":
    gc.set_threshold(COLLECT_AFTER)
    load_package()
    os.umask(os.umask(0o077) | 0o002)  # as the control plane: nothing is made that everybody can write
    from milabench.execute.agent.verbs import main

    main()
