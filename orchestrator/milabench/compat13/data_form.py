"""The processes of a milabench 1.3 benchmark, recognised as data: values for our benchfile and its suite.

Pure over the words that its class answered (compat13/milabench13.py). Whoever writes the files compares the
plans of both forms.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Final

from milabench.bench.api import COMMIT_DIGITS, RUNNER, Benchmark, ForeignBenchmark, StartedProcess
from milabench.config.kinds import Argument
from milabench.plan.context import NodeBenchmark, PlanContext, ResolvedBenchmark, benchmark_on
from milabench.plan.environ import program_environment
from milabench.plan.placeholders import names_for
from milabench.plan.render import render_benchmark, render_text

# What a launcher of ours derives from the placement itself, by the option's name with hyphens.
_DERIVED: Final[Mapping[str, frozenset[str]]] = {
    "torchrun": frozenset(
        {"nnodes", "node-rank", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"}
        | {"local-addr", "master-addr", "master-port", "standalone"}
    ),
    "accelerate": frozenset(
        {"num-processes", "num-machines", "machine-rank", "main-process-ip", "main-process-port", "multi-gpu"}
    ),
}
_BY_PROGRAM: Final = {"torchrun": "torchrun", "benchrun": "torchrun", "accelerate": "accelerate"}
_BY_MODULE: Final = {"torch.distributed.run": "torchrun", "accelerate.commands.launch": "accelerate"}
_PYTHONS: Final = ("python", "python3")
# What only the benchfiles of milabench 1.3 provide, in files that the program reads.
_ONLY_THERE: Final = {
    "MILABENCH_CONFIG": "reads the variable MILABENCH_CONFIG",
    "DATA_FD": "writes records to DATA_FD itself",
    "SmuggleWriter": "hides records in its output itself",
}


class NotRecognised(ValueError):
    """Why a benchmark cannot be written as data. Its benchfile works as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataForm:
    """A benchmark as data.

    `script` or `module` is its program, under our runner where `has_runner`. `prepare` and `cwd` are from the benchfile.
    `argv` are its arguments in the suite, `env` the variables that it needs besides ours, as templates of the suite.
    `launcher` starts its ranks with `options`. Empty where nothing does.
    """

    script: str | None
    module: str | None
    has_runner: bool
    prepare: str | None
    cwd: str
    argv: tuple[Argument, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    launcher: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def program(self) -> tuple[Any, ...]:
        """The values that all benchmarks of a folder must share: its benchfile has each only once."""
        return self.script, self.module, self.has_runner, self.prepare, self.cwd


def why_a_class(folder: Path, answer: Mapping[str, Any]) -> str:
    """Return the part of a folder that only a class of milabench 1.3 can do. Empty without any. `answer` is its child's."""
    if answer.get("own_install"):
        return "; ".join(_clones(folder)) or "its class has an install of its own"
    if answer.get("own_prepare"):
        return "its class has a prepare of its own"
    requirements = answer.get("base_requirements") or []
    if requirements not in ([], ["requirements.in"]):
        return f"its requirements are in {' and '.join(requirements)}"
    for path in sorted(folder.rglob("*.py")):
        if path.name == "benchfile.py" and path.parent == folder:
            continue
        used = _words_of(path.read_text(errors="replace"))
        for word, what in _ONLY_THERE.items():
            if word in used:
                return f"{path.relative_to(folder)} {what}"
    return ""


def _words_of(program: str) -> set[str]:
    """Return the names and texts of a program. For a program that is not current Python: every word, in comments too."""
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError):
        return set(re.findall(r"\w+", program))
    words: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) | ast.Name(id=text) | ast.alias(name=text) | ast.Attribute(attr=text):
                words.add(text)
            case _:
                pass
    return words


def _clones(folder: Path) -> Iterable[str]:
    """Yield the benchfile's clones, and their replacement."""
    tree = ast.parse((folder / "benchfile.py").read_text())
    names = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def text(node: ast.expr) -> str:
        value = node.value if isinstance(node, ast.Constant) else names.get(getattr(node, "id", ""), ast.unparse(node))
        return str(value)

    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="clone_subtree"), args=[url, rev, *_]):
                address, commit = text(url), text(rev)
                written = commit if len(commit) == COMMIT_DIGITS else f"the full commit that {commit} is now"
                yield f'its class clones {address} at {commit}. As data: source=Git("{address}", "{written}")'
            case _:
                pass


def data_form(placed: Sequence[tuple[ResolvedBenchmark, PlanContext]]) -> DataForm:
    """Return the processes of a benchmark on several systems as a single value. Raises NotRecognised.

    Differences between devices are found when the plans of both forms are compared.
    """
    forms = [_on_system(bench, context) for bench, context in placed if _processes(bench)]
    if not forms:
        raise NotRecognised("it starts nothing")
    launched = [form for form in forms if form.launcher]
    if any((form.launcher, form.options) != (launched[0].launcher, launched[0].options) for form in launched):
        raise NotRecognised("the options of its launcher depend on the devices")
    first = launched[0] if launched else forms[0]
    return replace(first, env={name: value for form in forms for name, value in form.env.items()})


def _processes(bench: ResolvedBenchmark) -> Mapping[str, tuple[StartedProcess, ...]]:
    return bench.declared.processes if isinstance(bench.declared, ForeignBenchmark) else {}


def _on_system(bench: ResolvedBenchmark, context: PlanContext) -> DataForm:
    """Return the processes of a benchmark on a system, from the main node, where paths are real."""
    here = benchmark_on(context.facts.main, bench, context)
    mine = [each for key, each in _processes(bench).items() if key.partition("/")[0] == here.node.name]
    if not mine or any(len(each) != 1 for each in _processes(bench).values()):
        raise NotRecognised("it starts several programs for a placement")
    declared = bench.declared
    preparing = declared.preparing.get(here.node.name) if isinstance(declared, ForeignBenchmark) else None
    forms = [_started(process, preparing, here) for (process,) in mine]
    if any(form != forms[0] for form in forms[1:]):
        raise NotRecognised("it starts another program for each device")
    return forms[0]


def _started(process: StartedProcess, preparing: StartedProcess | None, here: NodeBenchmark) -> DataForm:
    launcher, options, words = _launched(process.words)
    has_runner = words[:1] == (RUNNER,)
    words = words[1:] if has_runner else words
    if not has_runner and words and PurePath(words[0]).name in _PYTHONS:
        words = words[1:]
    script, module, arguments = _program(words, here)
    cwd = {here.source: "definition", here.data_folder: "data"}.get(process.cwd)
    if cwd is None:
        raise NotRecognised(f"it is started in {_placeholders(process.cwd, here)}")
    prepared = {} if preparing is None else _needed(preparing, here)
    return DataForm(
        script=script,
        module=module,
        has_runner=has_runner,
        prepare=None if preparing is None else _prepare_script(preparing, here),
        cwd=cwd,
        argv=_suite_arguments(arguments, here),
        env={**prepared, **_needed(process, here)},
        launcher=launcher,
        options=options,
    )


def _launched(words: tuple[str, ...]) -> tuple[str, dict[str, object], tuple[str, ...]]:
    """Return the launcher in front of a program, its own options, and the words behind them."""
    name = PurePath(words[0]).name if words else ""
    launcher, rest = _BY_PROGRAM.get(name, ""), words[1:]
    if launcher == "accelerate" and rest[:1] == ("launch",):
        rest = rest[1:]
    if name in _PYTHONS and words[1:2] == ("-m",) and words[2:3]:
        launcher, rest = _BY_MODULE.get(words[2], ""), words[3:]
    if not launcher:
        return "", {}, words
    options: dict[str, Any] = {}
    while rest and rest[0].startswith("--") and rest[0] != "--":
        option, equals, value = rest[0][2:].partition("=")
        if option.replace("_", "-") not in _DERIVED[launcher]:
            options[option] = (int(value) if value.isdecimal() else value) if equals else True
        rest = rest[1:]
    if rest[:1] == ("--",):
        rest = rest[1:]
    if rest[:2] == ("-m", RUNNER):
        rest = rest[1:]
    return launcher, options, rest


def _program(words: tuple[str, ...], here: NodeBenchmark) -> tuple[str | None, str | None, tuple[str, ...]]:
    if words[:1] == ("-m",) and len(words) > 1:
        return None, words[1], words[2:]
    if words and PurePath(words[0]).is_relative_to(here.source) and words[0].endswith(".py"):
        return str(PurePath(words[0]).relative_to(here.source)), None, words[1:]
    raise NotRecognised(
        f"it starts {_placeholders(words[0], here) if words else 'nothing'}, which is no file of its own"
    )


def _prepare_script(preparing: StartedProcess, here: NodeBenchmark) -> str:
    is_python = bool(preparing.words) and PurePath(preparing.words[0]).name in _PYTHONS
    script, _, _ = _program(preparing.words[is_python:], here)
    if script is None:
        raise NotRecognised("a module prepares it")
    return script


def _needed(process: StartedProcess, here: NodeBenchmark) -> dict[str, str]:
    """Return the variables of a process that are not as ours, and not the suite's, as templates."""
    ours = program_environment(replace(here, declared=Benchmark(script="")), {})
    return {
        name: as_placed_here(_placeholders(value, here), here.config.group)
        for name, value in process.env.items()
        if name != "MILABENCH_CONFIG" and ours.get(name) != value and name not in here.config.env
    }


def _suite_arguments(arguments: tuple[str, ...], here: NodeBenchmark) -> tuple[Argument, ...]:
    """Return arguments as the suite is to have them: as it has them now, where they are the same or begin so."""
    names = names_for(here)
    rendered = tuple(render_text(word, names, here.config) for word in arguments)
    own = render_benchmark(here.config, names).arguments
    more = tuple(as_placed_here(_placeholders(word, here), here.config.group) for word in arguments[len(own) :])
    if rendered[: len(own)] == own and (not more or here.config.argv):
        argv = here.config.argv
        if not more:
            return argv
        if isinstance(argv[0], str):
            return (*argv, *more)
        pairs = [argument for argument in argv if not isinstance(argument, str)]
        tail = next((value for option, value in pairs if option == "--"), ())
        return (*(pair for pair in pairs if pair[0] != "--"), ("--", (*tail, *more)))
    return tuple(as_placed_here(_placeholders(word, here), here.config.group) for word in arguments)


def as_placed_here(text: str, group: str) -> str:
    """Return a template of a suite of milabench 1.3 with the placeholders that have its values for a benchfile of ours."""
    extra = f"{{milabench_base}}/extra/{group}"
    return text.replace("{milabench_code}", "{benchmark_folder}").replace("{milabench_extra}", extra)


def _placeholders(text: str, here: NodeBenchmark) -> str:
    """Return a text with placeholders for the folders of this machine."""
    dirs = here.dirs
    places = {
        here.source: "{benchmark_folder}",
        here.venv: "{milabench_venv}",
        **{getattr(dirs, name): f"{{milabench_{name}}}" for name in ("data", "cache", "runs", "base")},
    }
    for place, name in sorted(places.items(), key=lambda each: -len(each[0])):
        text = re.sub(rf"{re.escape(place)}(?![\w.-])", name, text)
    return text
