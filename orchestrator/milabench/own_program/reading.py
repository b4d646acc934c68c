"""Reads a training script without running it: its packages, options, training loop, loader, loss, optimizer and pauses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from milabench.own_program.script import Loop, Script, ScriptCall

# A call that ends a step of training, by the last part of its name.
_STEPS = re.compile(
    r"(?:\w*_)?(?:train|update|optimi[sz]er?|sgd|grad)\w*_?step\w*|partial_fit|train_on_batch|\w*update\w*"
)
_NO_STEPS = re.compile(r"(?:pbar|bar|progress|meter|metrics?|args|config|dict|log\w*|os\.environ)\w*\.update")
_LOOP_NAMES = re.compile(r"epoch|step|iter|batch|round|episode|update")
_VALIDATION = re.compile(r"(?:^|_)(?:eval|evaluate|evaluation|valid|validate|validation|test)(?:_|$)")
_CHECKPOINT = re.compile(r"(?:^|_)(?:save|checkpoint|ckpt)(?:_|$)")
_SAVES = {"torch.save": "torch.save", "numpy.save": "numpy.save", "pickle.dump": "pickle.dump"}
_WORK = re.compile(
    r"(?:num_?)?(?:train_?)?(?:max_?)?(?:epochs?|steps|iters?|iterations|rounds|timesteps)|\w+_(?:epochs|steps|iters)|n_iter\w*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something that a script has, and the line where it stands; `file` is empty for the program itself."""

    what: str
    line: int
    file: str = ""

    def __str__(self) -> str:
        """Return it with its place, for a person."""
        return f"`{self.what}`, {f'{self.file} ' if self.file else ''}line {self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of its argparse parser; `default` is its source text, empty where there is none."""

    name: str
    default: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPause:
    """A pause, which does not count in the rate: the dotted path of a function, and its name in reports."""

    target: str
    name: str
    found: Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The parts of a program that were found. `imports` are top-level packages with the line of their first import."""

    imports: Mapping[str, int]
    options: tuple[Option, ...] = ()
    loop: Found | None = None
    loader: Found | None = None
    loss: Found | None = None
    optimizer: Found | None = None
    pauses: tuple[FoundPause, ...] = ()
    work: Found | None = None
    """Decides how long it trains: an option of `options`, or a constant."""
    scripts: tuple[Script, ...] = ()

    def calls(self, pattern: str) -> Iterator[tuple[Script, ScriptCall]]:
        """Yield the calls of functions whose full name matches the pattern."""
        matches = re.compile(pattern).fullmatch
        return ((script, call) for script in self.scripts for call in script.calls if matches(call.name))


def read_program(sources: Mapping[str, str]) -> Reading:
    """Return the parts of a program that are found in its sources, by module, `__main__` first. Raises SyntaxError."""
    scripts = tuple(Script(ast.parse(text), module) for module, text in sources.items())
    own = {name.partition(".")[0] for name in sources}
    imports: dict[str, int] = {}
    for script in scripts:
        for name, line in script.imports.items():
            top = name.partition(".")[0]
            if top and top not in own:
                imports.setdefault(top, line)
    at = next(((script, loop) for script in scripts if (loop := training_loop(script)) is not None), None)
    options = tuple(option for script in scripts for option in _options(script))
    return Reading(
        imports=imports,
        options=options,
        loop=None if at is None else Found(what=_head(at[1]), line=at[1].lineno, file=_file(at[0])),
        loader=None if at is None else _loader(*at),
        loss=_loss(scripts),
        optimizer=_optimizer(scripts),
        pauses=tuple(_pauses(scripts[0])),
        work=_work(scripts[0], options),
        scripts=scripts,
    )


def training_loop(script: Script) -> Loop | None:
    """Return the innermost loop whose every iteration trains; None where there is none."""
    for is_step in (_is_torch_step, _is_named_step):
        for call in script.calls:
            if (
                is_step(script, call)
                and not script.is_compiled(call.node)
                and (loops := script.loops_around(call.node))
            ):
                return loops[0]
    return _named_loop(script)


def _is_torch_step(script: Script, call: ScriptCall) -> bool:
    owner, _, name = call.name.rpartition(".")
    if name == "backward":
        return True
    made = script.made_by.get(owner)
    return name == "step" and ("optim" in owner.lower() or (made is not None and "optim" in made.name))


def _is_named_step(script: Script, call: ScriptCall) -> bool:
    if _NO_STEPS.fullmatch(call.name):
        return False
    return call.name in script.jitted or _STEPS.fullmatch(call.name.rpartition(".")[2]) is not None


def _named_loop(script: Script) -> Loop | None:
    """Return the loop over epochs, steps or batches, the inner one of two; None where no loop has such a name."""
    loops = [node for node in ast.walk(script.tree) if isinstance(node, Loop) and _is_named(node)]
    loops = [loop for loop in loops if not script.is_compiled(loop)]
    if not loops:
        return None
    outer = min(loops, key=lambda loop: (len(script.loops_around(loop)), loop.lineno))
    inner = [loop for loop in loops if outer in script.loops_around(loop)]
    return inner[0] if inner else outer


def _is_named(loop: Loop) -> bool:
    text = ast.unparse(loop.test if isinstance(loop, ast.While) else loop.target)
    return _LOOP_NAMES.search(text.lower()) is not None


def _head(loop: Loop) -> str:
    """Return the first line of a loop."""
    return ast.unparse(loop).partition("\n")[0].removesuffix(":")


def _file(script: Script) -> str:
    return "" if script.module == "__main__" else f"{script.module.replace('.', '/')}.py"


def _loader(script: Script, loop: Loop) -> Found | None:
    """Return the source of the batches in the training loop. None: the loop counts."""
    iterated = script.iterated(loop)
    if iterated is None or (isinstance(iterated, ast.Call) and script.full_name(iterated.func) == "range"):
        return None
    return Found(what=ast.unparse(iterated), line=iterated.lineno, file=_file(script))


def _loss(scripts: Sequence[Script]) -> Found | None:
    """Return the object of `backward()`, else the first assigned name like `loss`."""
    for script in scripts:
        for call in script.calls:
            name = call.name.rpartition(".")[2]
            if name == "backward" and isinstance(call.node.func, ast.Attribute):
                of_accelerate = bool(call.node.args)
                what = ast.unparse(call.node.args[0]) if of_accelerate else ast.unparse(call.node.func.value)
                return Found(what=what, line=call.line, file=_file(script))
    for script in scripts:
        for node in ast.walk(script.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and "loss" in node.id.lower():
                return Found(what=node.id, line=node.lineno, file=_file(script))
    return None


def _optimizer(scripts: Sequence[Script]) -> Found | None:
    for script in scripts:
        for call in script.calls:
            if re.match(
                r"(?:torch\.optim|optax|transformers\.optimization|keras\.optimizers|flax\.nnx\.Optimizer)\b", call.name
            ):
                return Found(what=ast.unparse(call.node.func), line=call.line, file=_file(script))
    return None


def _pauses(script: Script) -> Iterator[FoundPause]:
    """Yield the validations and checkpoints that are called in a loop of the program, by functions that have a name there."""
    seen: set[str] = set()
    for call in script.calls:
        if not script.loops_around(call.node) or call.name in seen:
            continue
        seen.add(call.name)
        found = Found(what=call.name, line=call.line)
        if call.name in _SAVES:
            yield FoundPause(target=_SAVES[call.name], name="checkpoint", found=found)
        elif isinstance(call.node.func, ast.Name) and call.node.func.id not in script.jitted:
            name = call.node.func.id
            for pattern, pause in ((_VALIDATION, "validation"), (_CHECKPOINT, "checkpoint")):
                # A function of the program, or imported into it: not one that is made while it runs.
                if pattern.search(name) and (name in script.functions or "." in call.name):
                    yield FoundPause(target=f"__main__.{name}", name=pause, found=found)
                    break


def _options(script: Script) -> Iterator[Option]:
    for call in script.calls:
        if call.name.rpartition(".")[2] != "add_argument":
            continue
        names = [arg.value for arg in call.node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if names:
            default = call.keywords.get("default")
            name = next((name for name in names if name.startswith("--")), names[0])
            yield Option(name=name, default="" if default is None else ast.unparse(default), line=call.line)


def _work(script: Script, options: Sequence[Option]) -> Found | None:
    """Return the option, or the constant at module level, that decides how long a program trains."""
    for option in options:
        if _WORK.fullmatch(option.name.lstrip("-").replace("-", "_").lower()):
            return Found(what=option.name, line=option.line)
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
            name = ast.unparse(node.targets[0])
            if _WORK.fullmatch(name.lower()):
                return Found(what=f"{name} = {node.value.value}", line=node.lineno)
    return None
