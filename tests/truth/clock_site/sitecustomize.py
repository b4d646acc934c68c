"""A clock inside an unmodified program, which knows nothing of the instruments: Python imports this file before all else.

Of one function, named by INDEPENDENT_CALL (`package.module.Class.method`), every end is stamped with `time.perf_counter_ns`,
and its items are counted by INDEPENDENT_ITEMS, an expression over `args`, `kwargs` and `result`. INDEPENDENT_CALL `optimizer`
stands for the hook that torch calls after each step of any optimizer. Each process writes a line `items since until` for each.

With INDEPENDENT_COMPILED the function is one that JAX traces into a compiled program, which comes back to Python at its end only.
What it returns then passes through a call of the host, at every execution: `value` is an array of it, over all that it is mapped
over.
"""

import contextlib
import functools
import importlib.abc
import importlib.machinery
import os
import pathlib
import sys
import time

CALL = os.environ.get("INDEPENDENT_CALL", "")
ITEMS = os.environ.get("INDEPENDENT_ITEMS", "1")
FOLDER = os.environ.get("INDEPENDENT_STAMPS", "")
IS_COMPILED = bool(os.environ.get("INDEPENDENT_COMPILED"))


class Stamps:
    """Where the lines of this process go; opened by the first of them, so that helpers without a loop leave no file."""

    def __init__(self):
        self.file = None
        self.since = time.perf_counter_ns()

    def write(self, items):
        if self.file is None:
            rank = os.environ.get("RANK", "0")
            self.file = (pathlib.Path(FOLDER) / f"stamps.{rank}.{os.getpid()}.txt").open("w", buffering=1)
            self.file.write(f"begin {self.since}\n")
        until = time.perf_counter_ns()
        self.file.write(f"{items} {self.since} {until}\n")
        self.since = until


STAMPS = Stamps()
COUNT = compile(ITEMS, "INDEPENDENT_ITEMS", "eval")


def stamped(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        result = function(*args, **kwargs)
        names = {"args": args, "kwargs": kwargs, "result": result}
        if IS_COMPILED:
            return through_the_host(result, names)
        STAMPS.write(eval(COUNT, {}, names))
        return result

    call.is_stamped = True
    return call


def through_the_host(result, names):
    """Return the same, of which one array comes from the host: the program cannot go on before that was stamped."""
    import jax

    def stamp(value):
        STAMPS.write(eval(COUNT, {}, {**names, "value": value}))
        return value

    # Behind the barrier all of the result is there, not only what is sent to the host.
    (first, *others), tree = jax.tree.flatten(jax.lax.optimization_barrier(result))
    first = jax.pure_callback(stamp, jax.ShapeDtypeStruct(first.shape, first.dtype), first, vmap_method="broadcast_all")
    return jax.tree.unflatten(tree, [first, *others])


def attach(module):
    """Put the clock on the function, in the module that holds it."""
    if CALL == "optimizer":
        module.register_optimizer_step_post_hook(
            lambda optimizer, args, kwargs: STAMPS.write(eval(COUNT, {}, {"optimizer": optimizer}))
        )
        return
    *path, name = CALL[len(module.__name__) + 1 :].split(".")
    owner = functools.reduce(getattr, path, module)
    function = getattr(owner, name)
    # A package that imports its module as it is executed itself comes by here after it.
    if not hasattr(function, "is_stamped"):
        setattr(owner, name, stamped(function))


class Finder(importlib.abc.MetaPathFinder):
    """Finds the module of the function as everybody does, and attaches the clock once it has been executed."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self.names:
            return None
        self.names = self.names - {fullname}
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            with contextlib.suppress(AttributeError):  # a package on the way to the module that holds it
                attach(module)

        spec.loader.exec_module = exec_module
        return spec


if CALL and FOLDER:
    parts = CALL.split(".")
    modules = {".".join(parts[:length]) for length in range(1, len(parts))}
    sys.meta_path.insert(0, Finder(frozenset({"torch.optim.optimizer"} if CALL == "optimizer" else modules)))
