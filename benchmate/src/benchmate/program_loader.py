"""Loading and running the observed program: a script or module, loaded up to its last definition and then run to its end."""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib.util
import io
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import NamedTuple

from benchmate.errors import BenchmateError
from benchmate.line_loops import place_line_loops

# A flag that two features shared would be added twice: none does, each is a bit of its own.
_FUTURE_FLAGS = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


class Command(NamedTuple):
    """The target of a command line: a script, or a module as `python -m` finds it, and its own arguments."""

    script: str | None
    module: str | None
    arguments: Sequence[str]


class Program:
    """The script or module of a command. `paths` are searched for its imports.

    Raise BenchmateError when there is no such program. The program's own exceptions pass through, and its own part of the
    traceback is kept in `traceback`.
    """

    def __init__(self, command: Command, paths: Sequence[str]) -> None:
        script, module, arguments = command
        self.traceback: TracebackType | None = None
        self._spec: ModuleSpec | None = None
        if script is not None:
            self.file = script
            if not Path(script).is_file():
                raise BenchmateError(f"{script}: no such script")
            self._set_path([str(Path(script).resolve().parent), *paths])
        else:
            assert module is not None
            self._set_path([*paths, str(Path.cwd())])
            self._spec = _find_module(module)
            assert self._spec.origin is not None
            self.file = self._spec.origin
        sys.argv = [self.file, *arguments]

    def load(self) -> None:
        """Make the program `__main__` and run it up to and including its last top-level definition.

        Probes are placed after this: their functions exist, and the main part has not run yet.
        """
        module = ModuleType("__main__")
        namespace = vars(module)
        namespace.update(__file__=self.file, __builtins__=builtins, __spec__=self._spec, __cached__=None)
        if self._spec is None:
            namespace["__loader__"] = SourceFileLoader("__main__", self.file)
        else:
            namespace.update(__package__=self._spec.parent, __loader__=self._spec.loader, __cached__=self._spec.cached)
        # Before its code runs: pickle and multiprocessing look classes of the script up there.
        sys.modules["__main__"] = module
        self._namespace = namespace
        try:
            with io.open_code(str(Path(self.file).resolve())) as file:
                definitions, self._rest = split_after_definitions(file.read(), self.file, namespace)
        except SyntaxError:
            self.traceback = None
            raise
        self._execute(definitions)

    def run(self) -> None:
        """Run the part after the last definition."""
        self._execute(self._rest)

    def _execute(self, code: CodeType) -> None:
        try:
            exec(code, self._namespace)  # noqa: S102  (running the user's program is what this is for)
        except BaseException as error:
            # The first frame is this one: the user's own traceback begins below.
            self.traceback = error.__traceback__ and error.__traceback__.tb_next
            raise

    @staticmethod
    def _set_path(folders: list[str]) -> None:
        """Put the folders where `python -m benchmate.run` put the current folder, which the program would not have seen."""
        if not getattr(sys.flags, "safe_path", False):
            # Under `python -P` (safe_path) there is none to take away.
            del sys.path[0]
        sys.path[:0] = folders


def split_after_definitions(source: bytes, file: str, namespace: dict[str, object]) -> tuple[CodeType, CodeType]:
    """Compile everything up to the last top-level function or class, and the rest, under the file's own `__future__` imports.

    `namespace` is the program's, for its observed loops.
    """
    tree = place_line_loops(ast.parse(source, file), namespace)
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    end = max((index + 1 for index, statement in enumerate(tree.body) if isinstance(statement, definitions)), default=0)
    head = ast.Module(body=tree.body[:end], type_ignores=[])
    rest = ast.Module(body=tree.body[end:], type_ignores=[])
    # Else the flags of this very module, annotations above all, would become the program's.
    compiled = compile(head, file, "exec", dont_inherit=True)
    return compiled, compile(rest, file, "exec", compiled.co_flags & _FUTURE_FLAGS, dont_inherit=True)


def _find_module(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        raise BenchmateError(f"-m {name}: no module named {error.name!r}") from error
    if spec is None:
        raise BenchmateError(f"-m {name}: no module named {name!r}")
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise BenchmateError(f"-m {name}: not a module with Python source")
    return spec


def show_exception(error: BaseException, traceback: TracebackType | None) -> None:
    """Print an exception as Python prints an uncaught one, through the hook that the program may have set."""
    # The hook prints what the exception carries, which has our frames on top.
    error.__traceback__ = traceback
    try:
        sys.excepthook(type(error), error, traceback)
    except BaseException as other:
        sys.__excepthook__(type(other), other, other.__traceback__)
        sys.__excepthook__(type(error), error, traceback)
