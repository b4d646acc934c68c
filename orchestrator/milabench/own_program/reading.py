"""Reads a training script and its own modules, without running them: packages, loop, loader, loss, optimizer, pauses, length."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from milabench.errors import UsageError, os_reason
from milabench.own_program.script import MAIN, Found, ImportedName, Loop, Script, ScriptCall

MOST_FILES = 200

# A call that ends a step of training, by the last part of its name.
_STEPS = re.compile(
    r"(?:\w*_)?(?:train|update|optimi[sz]er?|sgd|grad)\w*_?step\w*|partial_fit|train_on_batch|\w*update\w*"
)
_NO_STEPS = re.compile(r"(?:pbar|bar|params|progress|meter|metrics?|args|config|dict|log\w*|os\.environ)\w*\.update")
_LOOP_NAMES = re.compile(r"epoch|step|iter|batch|round|episode|update")
_LOOP_SOURCES = re.compile(r"epoch|step|batch|round|episode|loader")
_NUMBERS = re.compile(r"(?:.*\.)?(?:range|arange|trange)")
_OPTIMIZERS = r"(?:torch\.optim|optax|transformers\.optimization|keras\.optimizers|flax\.nnx\.Optimizer)\b.*"
_WORK = re.compile(
    r"(?:num_?)?(?:train_?)?(?:max_?)?(?:epochs?|steps|iters?|iterations|rounds|timesteps)|\w+_(?:epochs|steps|iters)|n_iter\w*"
)
# Names of functions that are called in a loop, and do not belong to the rate.
_PAUSES = {
    "validation": re.compile(r"(?:^|_)(?:eval|evaluate|evaluation|valid|validate|validation|test)(?:_|$)"),
    "checkpoint": re.compile(r"(?:^|_)(?:save|checkpoint|ckpt)(?:_|$)"),
}
_HELD_OUT = re.compile(r"(?:^|_)(?:val|dev|eval\w*|valid\w*|test\w*)(?:_|$)")
_WRITTEN = (ast.List, ast.Tuple, ast.Set, ast.Dict)
_SAVES = frozenset({"torch.save", "numpy.save", "pickle.dump"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPause:
    """A pause, which does not count in the rate: the dotted path of a function, and its name in reports."""

    target: str
    name: str
    found: Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The parts of a program that were found. `imports` are top-level packages with the line of their first import.

    `work` decides how long it trains: an option of its parser, or a constant. `step` is a function of an imported module that
    the module calls in a loop, by its dotted path.
    """

    imports: Mapping[str, int]
    loop: Found | None = None
    loader: Found | None = None
    step: Found | None = None
    loss: Found | None = None
    optimizer: Found | None = None
    pauses: tuple[FoundPause, ...] = ()
    work: Found | None = None
    scripts: tuple[Script, ...] = ()

    @property
    def needed(self) -> dict[str, int]:
        """The packages without which the program does not begin: imported at module level, with the line of each."""
        statements = {node.lineno for node in self.scripts[0].tree.body}
        packages = _packages(each for each in self.scripts[0].imported if each.line in statements)
        return {name: line for name, line in packages.items() if name in self.imports}

    def first_call(self, pattern: str) -> Found | None:
        """Return the first call of a function whose full name matches the pattern."""
        return next(_calls(self.scripts, pattern), None)

    @property
    def has_several_optimizers(self) -> bool:
        """Whether it gives optimizers to more than one name: a step of its loop may be a step of each."""
        made = (each for script in self.scripts for each in script.made_by.values())
        return sum(re.fullmatch(_OPTIMIZERS, name) is not None for name in made) > 1

    def first_name(self, name: str) -> Found | None:
        """Return the first use of a name."""
        names = ((script, node) for script in self.scripts for node in ast.walk(script.tree))
        return next(
            (script.found(name, node) for script, node in names if isinstance(node, ast.Name) and node.id == name), None
        )


def read_source(file: Path, root: Path | None = None) -> Reading:
    """Read a script and its own modules, which are looked for in `root`, by default the folder of the script.

    Raises UsageError for a file that cannot be read, or is no Python.
    """
    root = file.parent if root is None else root
    scripts = {MAIN: _script(file, MAIN)}
    waiting = [scripts[MAIN]]
    while waiting and len(scripts) < MOST_FILES:
        for module, found in _local_modules(waiting.pop(0), root):
            if module not in scripts and found != file:
                scripts[module] = _script(found, module)
                waiting.append(scripts[module])
    return read_program(tuple(scripts.values()))


def _script(file: Path, module: str) -> Script:
    if file.is_dir():
        raise UsageError(f"{file}: is a folder. Name the script that it starts")
    try:
        return Script(ast.parse(file.read_text(encoding="utf-8", errors="replace")), module, file)
    except OSError as error:
        raise UsageError(f"{file}: {os_reason(error)}") from None
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise UsageError(f"{file}{line}: is no Python: {getattr(error, 'msg', error)}") from None


def _local_modules(script: Script, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the modules below a folder that a script imports, and the packages that they are in, with their files."""
    folder = script.file.parent
    package = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    for imported in script.imported:
        name = imported.name.lstrip(".")
        level = len(imported.name) - len(name)
        parts = (*package[: len(package) + 1 - level], *name.split(".")) if level else name.split(".")
        for length in range(1, len(parts) + 1):
            path = root.joinpath(*parts[:length])
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    yield ".".join(parts[:length]), file


def _calls(scripts: Sequence[Script], pattern: str) -> Iterator[Found]:
    matches = re.compile(pattern).fullmatch
    for script in scripts:
        yield from (script.found(ast.unparse(call.node.func), call.node) for call in script.calls if matches(call.name))


def read_program(scripts: tuple[Script, ...]) -> Reading:
    """Return the parts of a program that are found in its scripts, of which the first is the program itself."""
    own = {"", *(script.module.partition(".")[0] for script in scripts)}
    imports = _packages(each for script in scripts for each in script.imported)
    at = next(((script, loop) for script in scripts if (loop := training_loop(script)) is not None), None)
    return Reading(
        imports={name: line for name, line in imports.items() if name not in own},
        loop=None if at is None else at[0].found(ast.unparse(at[1]).partition("\n")[0].removesuffix(":"), at[1]),
        loader=None if at is None else _loader(*at),
        step=next(_imported_steps(scripts[1:]), None),
        loss=next(_losses(scripts), None),
        optimizer=next(_calls(scripts, _OPTIMIZERS), None),
        pauses=tuple(_pauses(scripts[0])),
        work=next(_work(scripts), None),
        scripts=scripts,
    )


def _packages(imported: Iterable[ImportedName]) -> dict[str, int]:
    """Return the top-level packages, each with the line of its first import."""
    lines: dict[str, int] = {}
    for each in imported:
        lines.setdefault(each.name.partition(".")[0], each.line)
    return lines


def training_loop(script: Script) -> Loop | None:
    """Return the innermost loop whose every iteration trains. None where there is none.

    A loop over written values is over models or settings, not over steps.
    """
    for is_step in (_is_torch_step, _is_named_step):
        for call in script.calls:
            loops = (loop for loop in script.loops_around(call.node) if not isinstance(script.iterated(loop), _WRITTEN))
            if is_step(script, call) and not script.is_compiled(call.node) and (loop := next(loops, None)) is not None:
                return loop
    return _named_loop(script)


def _is_torch_step(script: Script, call: ScriptCall) -> bool:
    owner, _, name = call.name.rpartition(".")
    if name == "backward":
        return True
    return name == "step" and ("optim" in owner.lower() or "optim" in script.made_by.get(owner, ""))


def _imported_steps(modules: Sequence[Script]) -> Iterator[Found]:
    for module in modules:
        for call in module.calls:
            if call.name in module.functions and module.loops_around(call.node) and _is_named_step(module, call):
                yield module.found(f"{module.module}.{call.name}", call.node)


def _is_named_step(script: Script, call: ScriptCall) -> bool:
    if _NO_STEPS.fullmatch(call.name) or _PAUSES["validation"].search(call.name.rpartition(".")[2]):
        return False
    return call.name in script.jitted or _STEPS.fullmatch(call.name.rpartition(".")[2]) is not None


def _named_loop(script: Script) -> Loop | None:
    """Return the loop over epochs, steps or batches, the inner loop of two. None where no loop has such a name."""
    loops = [node for node in ast.walk(script.tree) if isinstance(node, Loop) and _is_named(node)]
    loops = [loop for loop in loops if not script.is_compiled(loop) and not _is_validation(script, loop)]
    if not loops:
        return None
    outer = min(loops, key=lambda loop: (len(script.loops_around(loop)), loop.lineno))
    return next((loop for loop in loops if outer in script.loops_around(loop)), outer)


def _is_named(loop: Loop) -> bool:
    text = ast.unparse(loop.test if isinstance(loop, ast.While) else loop.target)
    return any(names.search(words.lower()) for names, words in ((_LOOP_NAMES, text), (_LOOP_SOURCES, _source(loop))))


def _is_validation(script: Script, loop: Loop) -> bool:
    around = [node.name for node in script.above(loop) if isinstance(node, ast.FunctionDef)]
    return any(map(_HELD_OUT.search, (*around, *re.findall(r"\w+", _source(loop)))))


def _source(loop: Loop) -> str:
    """Return the text of what a loop goes over. Empty for a `while`."""
    return "" if isinstance(loop, ast.While) else ast.unparse(loop.iter)


def _loader(script: Script, loop: Loop) -> Found | None:
    """Return the source of the batches in the training loop. None: the loop counts."""
    iterated = script.iterated(loop)
    if iterated is None or (isinstance(iterated, ast.Call) and _NUMBERS.fullmatch(script.full_name(iterated.func))):
        return None
    return script.found(ast.unparse(iterated), iterated)


def _losses(scripts: Sequence[Script]) -> Iterator[Found]:
    """Yield the objects of `backward()`, then the assigned names like `loss`."""
    for script in scripts:
        for call in script.calls:
            if isinstance(call.node.func, ast.Attribute) and call.node.func.attr == "backward":
                # The one of accelerate takes the loss as its argument.
                of = call.node.args[0] if call.node.args else call.node.func.value
                yield script.found(ast.unparse(of), call.node)
    for script in scripts:
        for node in ast.walk(script.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and "loss" in node.id.lower():
                yield script.found(node.id, node)


def _pauses(script: Script) -> Iterator[FoundPause]:
    """Yield the validations and checkpoints that are called in a loop of the program, by functions that have a name there."""
    firsts: dict[str, ScriptCall] = {}
    for call in script.calls:
        if script.loops_around(call.node):
            firsts.setdefault(call.name, call)
    for call in firsts.values():
        found = script.found(call.name, call.node)
        if call.name in _SAVES:
            yield FoundPause(target=call.name, name="checkpoint", found=found)
        elif isinstance(call.node.func, ast.Name) and call.node.func.id not in script.jitted:
            name = call.node.func.id
            # A function of the program, or imported into it: not one that is made while it runs.
            kind = next((kind for kind, pattern in _PAUSES.items() if pattern.search(name)), None)
            if kind is not None and (name in script.functions or "." in call.name):
                yield FoundPause(target=f"__main__.{name}", name=kind, found=found)


def _work(scripts: Sequence[Script]) -> Iterator[Found]:
    """Yield the options of parsers, then the constants at module level, that decide how long a program trains."""
    for script in scripts:
        for call in script.calls:
            if call.name.rpartition(".")[2] == "add_argument":
                names = [str(arg.value) for arg in call.node.args if isinstance(arg, ast.Constant)]
                name = next((name for name in names if name.startswith("--")), "".join(names[:1]))
                if _WORK.fullmatch(name.lstrip("-").replace("-", "_").lower()):
                    yield script.found(name, call.node)
    for node in ast.walk(scripts[0].tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
            name = ast.unparse(node.targets[0])
            if _WORK.fullmatch(name.lower()):
                yield scripts[0].found(f"{name} = {node.value.value}", node)
