"""Located values into the frozen values of schema.py, with every problem at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from milabench.config import expr
from milabench.config.interpolate import Interpolator
from milabench.config.layers import Folded, Problems, near
from milabench.config.schema import (
    BENCHMARK,
    MULTIRUN,
    PROFILE,
    SYSTEM,
    Anything,
    Argument,
    Arguments,
    BenchmarkConfig,
    Capacity,
    Choice,
    ClientConfig,
    ContainerConfig,
    Definition,
    DefinitionKind,
    Expression,
    Flag,
    GitDefinition,
    GpuConfig,
    Kind,
    ListOf,
    MapOf,
    MetricConfig,
    Multirun,
    NodeConfig,
    Number,
    Origins,
    Pattern,
    PlanConfig,
    Profile,
    PyPIDefinition,
    Record,
    ServerConfig,
    Suite,
    SystemConfig,
    Text,
    Whole,
)
from milabench.config.source_map import (
    BUILT_IN,
    Located,
    Mark,
    MergeError,
    SourceLocation,
    display_value,
    mapping_at,
    merge_documents,
    plain,
    scalar,
)
from milabench.config.yaml_reader import resolve_scalar
from milabench.errors import ConfigError, Problem

if TYPE_CHECKING:
    from milabench.config.tasks import TaskFile

Tasks = Callable[[Path], "TaskFile"]
"""The task file at a path. Raises ConfigError where it cannot be read."""
Declared = Callable[[Path], frozenset[str] | None]
"""The extra keys that the benchfile in a folder declares; None where there is no benchfile to ask."""

_WRONG: Final = object()
_CAPACITY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGTP]?)(i?)([Bbo]?)\s*\Z")
_MIB: Final = 2**20
_DEFAULT_DIRS: Final = {
    "base": "{milabench_base}",
    "venv": "{milabench_venv}",
    "data": "{milabench_data}",
    "runs": "{milabench_runs}",
    "extra": "{milabench_extra}",
    "cache": "{milabench_cache}",
}


def parse_suite(
    folded: Folded,
    problems: Problems,
    *,
    arch: str,
    env: Mapping[str, str],
    declared: Declared | None = None,
    tasks: Tasks | None = None,
    warnings: tuple[Problem, ...] = (),
    files: tuple[Path, ...] = (),
) -> Suite:
    """The suite as values.

    `arch` stands where the system has none. Without `declared`, a key that is not ours is an error in every
    benchmark; without `tasks`, a driver is. Raises ConfigError with every problem, those noted before included.
    """
    reader = _Reader(problems, env.get("HOME", ""))
    system_node = folded.system or mapping_at({}, Mark(SourceLocation("", ""), 0, 0))
    given_arch = system_node.value.get("arch") if type(system_node.value) is dict else None
    interpolator = Interpolator(_with_arch(system_node, given_arch, arch), env)
    problems.extend(interpolator.system_problems)
    system = _system(interpolator.system, given_arch is not None, reader)
    suite_parser = _Benchmarks(reader, interpolator, system.arch or arch, declared, tasks=tasks, env=env)
    benchmarks = {}
    for name, node in folded.benchmarks.items():
        made = suite_parser.benchmark(name, node)
        if made is not None:
            benchmarks[name] = made
    suite_parser.check_templates(folded.templates)
    profile = _profile(folded.profile, reader)
    multirun = _multirun(folded.multirun, reader)
    problems.raise_any()
    seen = Problems()
    seen.extend((*warnings, *folded.warnings, *suite_parser.warnings.found.values()))
    return Suite(
        benchmarks=benchmarks,
        system=system,
        profile=profile,
        multirun=multirun,
        warnings=tuple(seen.found.values()),
        files=files,
    )


def capacity_mib(text: str) -> int | None:
    """An amount of memory in MiB; `GB` and `Go` are powers of ten, `GiB` and `Gio` of two, a bare number is MiB.

    None where the text is no amount.
    """
    found = _CAPACITY.match(text[:64])
    if found is None:
        return None
    number, prefix, binary, unit = found.groups()
    if not prefix and not unit:
        return int(float(number)) if not binary else None
    power = "kMGTP".index(prefix.replace("K", "k")) + 1 if prefix else 0
    return int(float(number) * (1024 if binary else 1000) ** power / _MIB)


class _Reader:
    """Reads nodes as the kinds that the schema gives them; what is shared by many benchmarks is read once."""

    def __init__(self, problems: Problems, home: str) -> None:
        self.problems = problems
        self.home = home
        self.unresolved: set[str] = set()
        """Places whose interpolation failed, of which enough has been said."""
        self.known: dict[tuple[int, int], tuple[Located, Any]] = {}

    def problem(self, node: Located, path: str, what: str, way_out: str = "", mark: Mark | None = None) -> Any:
        """Note a problem with a value, at `mark` or at the value; returns _WRONG."""
        if str(node.mark) in self.unresolved:
            return _WRONG
        old = next((before for before in node.replaced if type(before.value) not in (dict, list)), None)
        replaces = f"it replaces {display_value(old)}, set at {old.mark}" if old is not None else ""
        self.problems.add(
            Problem(where=str(mark or node.mark), path=path, what=what, way_out=way_out, replaces=replaces)
        )
        return _WRONG

    def read(self, kind: Kind, node: Located, path: str) -> Any:
        """The value as this kind has it, or _WRONG after noting the problem."""
        value = node.value
        if type(value) is not dict and type(value) is not list:
            return self._read(kind, node, path)
        key = (id(node), id(kind))
        found = self.known.get(key)
        if found is None:
            # The node is kept with the answer, so that its id is not given to another one.
            found = self.known[key] = (node, self._read(kind, node, path))
        return found[1]

    def _read(self, kind: Kind, node: Located, path: str) -> Any:
        value = node.value
        if node.formatted and isinstance(value, str) and isinstance(kind, Number | Whole | Flag):
            # A matrix puts its values in as text; where a number is wanted, the text of one is meant.
            node = Located(resolve_scalar(value.strip() or "~")[0], node.mark, node.replaced)
            value = node.value
        match kind:
            case Anything():
                return plain(node)
            case Text():
                return self._text(kind.what, node, path)
            case Number():
                return self._number(kind, node, path)
            case Whole():
                return self._whole(kind, node, path)
            case Flag():
                return value if isinstance(value, bool) else self._expected(kind.what, node, path)
            case Choice():
                return self._choice(kind, node, path)
            case Capacity():
                amount = capacity_mib(str(value)) if isinstance(value, str | int | float) else None
                return amount if amount is not None else self._expected(kind.what, node, path)
            case Expression() | Pattern():
                return self._checked(kind, node, path)
            case ListOf():
                return self._list(kind, node, path)
            case MapOf():
                return self._map(kind, node, path)
            case Record():
                return self._record(kind, node, path)
            case Arguments():
                return self._arguments(node, path)
            case DefinitionKind():
                return self._definition(node, path)
            case _:
                assert_never(kind)

    def _expected(self, what: str, node: Located, path: str, way_out: str = "") -> Any:
        return self.problem(node, path, f"expected {what}, got {display_value(node)}", way_out)

    def _text(self, what: str, node: Located, path: str) -> Any:
        value = node.value
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value) if not isinstance(value, int) or value.bit_length() < 4096 else _WRONG
        return self._expected(what, node, path)

    def _number(self, kind: Number, node: Located, path: str) -> Any:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124  not a number
            return self._expected(kind.what, node, path)
        if kind.at_least is not None and value < kind.at_least:
            return self._expected(f"{kind.what} that is at least {kind.at_least:g}", node, path)
        if kind.at_most is not None and value > kind.at_most:
            return self._expected(f"{kind.what} that is at most {kind.at_most:g}", node, path)
        if kind.above is not None and value <= kind.above:
            return self._expected(f"{kind.what} above {kind.above:g}", node, path)
        if value > 1e300:
            return self._expected(f"{kind.what} that is not beyond all measure", node, path, "leave the key out")
        return value

    def _whole(self, kind: Whole, node: Located, path: str) -> Any:
        value = node.value
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return self._expected(kind.what, node, path)
        if kind.at_least is not None and value < kind.at_least:
            return self._expected(f"{kind.what} that is at least {kind.at_least}", node, path)
        if value > (kind.at_most if kind.at_most is not None else 2**53):
            return self._expected(f"{kind.what} that is at most {kind.at_most or 2**53}", node, path)
        return value

    def _choice(self, kind: Choice, node: Located, path: str) -> Any:
        value = node.value
        if isinstance(value, str):
            # The reference suites also write per-gpu.
            word = value if value in kind.words else value.replace("-", "_")
            if word in kind.words:
                return word
            return self._expected(kind.what, node, path, near(value, kind.words))
        return self._expected(kind.what, node, path)

    def _checked(self, kind: Expression | Pattern, node: Located, path: str) -> Any:
        text = self._text(kind.what, node, path)
        if text is _WRONG:
            return _WRONG
        if isinstance(kind, Expression):
            try:
                expr.check_expression(text, where=str(node.mark), path=path)
            except ConfigError as error:
                self.problems.take(error)
                return _WRONG
            return text
        try:
            re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            return self.problem(node, path, f"not a regular expression: {error}")
        return text

    def _list(self, kind: ListOf, node: Located, path: str) -> Any:
        value = node.value
        if type(value) is not list:
            if not kind.lone or type(value) is dict or value is None:
                return self._expected(kind.what, node, path)
            value = [node]
        items = [self.read(kind.item, item, f"{path}.{index}") for index, item in enumerate(value)]
        return _WRONG if any(item is _WRONG for item in items) else tuple(items)

    def _map(self, kind: MapOf, node: Located, path: str) -> Any:
        if type(node.value) is not dict:
            return self._expected(kind.what, node, path)
        made = {key: self.read(kind.item, child, f"{path}.{key}") for key, child in node.value.items()}
        return _WRONG if any(item is _WRONG for item in made.values()) else made

    def _record(self, kind: Record, node: Located, path: str) -> Any:
        if kind.lone and type(node.value) not in (dict, list):
            return {kind.lone: self.read(kind.keys[kind.lone].kind, node, path)}
        if type(node.value) is not dict:
            return self._expected(kind.what, node, path)
        made: dict[str, Any] = {}
        for key, child in node.value.items():
            known = kind.keys.get(key)
            if known is not None:
                if child.value is not None:
                    made[key] = self.read(known.kind, child, f"{path}.{key}")
            elif not kind.open or is_slip(key, kind, node.value):
                self.unknown_key(child, path, key, kind)
            else:
                made[key] = plain(child)
        for key in kind.required:
            if key not in made:
                self.problem(node, path, f"the key {key!r} is missing")
        return _WRONG if any(item is _WRONG for item in made.values()) or set(kind.required) - set(made) else made

    def unknown_key(self, child: Located, path: str, key: str, kind: Record) -> None:
        """Note a key that nothing knows, with the nearest one that is known."""
        self.problem(
            child, path, f"unknown key {key!r}", near(key, kind.keys) or f"known: {', '.join(sorted(kind.keys))}"
        )

    def _arguments(self, node: Located, path: str) -> Any:
        value = node.value
        if type(value) is list:
            items: list[Argument] = []
            for index, child in enumerate(value):
                if type(child.value) in (dict, list) or child.value is None:
                    return self._expected("an argument", child, f"{path}.{index}")
                items.append(_argument_text(child.value))
            return tuple(items)
        if type(value) is not dict:
            return self._expected(Arguments().what, node, path)
        pairs: list[Argument] = []
        for key, child in value.items():
            given = child.value
            if type(given) is dict:
                return self._expected("a value or a list", child, f"{path}.{key}", "quote it, if it is meant as JSON")
            if type(given) is list:
                if any(type(item.value) in (dict, list) or item.value is None for item in given):
                    return self._expected("a list of values", child, f"{path}.{key}")
                given = tuple(item.value for item in given)
            elif key == "--" and given is not None:
                given = (given,)
            pairs.append((key, given))
        return tuple(pairs)

    def _definition(self, node: Located, path: str) -> Any:
        value = node.value
        if isinstance(value, str) and value:
            folder = Path(self.home + value[1:]) if value.startswith("~/") and self.home else Path(value)
            return folder if folder.is_absolute() else _normal(Path(node.mark.source.folder) / folder)
        if type(value) is not dict:
            return self._expected(DefinitionKind().what, node, path)
        given: dict[str, str] = {}
        for key, child in value.items():
            if key not in ("git", "rev", "branch", "pypi", "version"):
                way_out = near(key, ("git", "rev", "branch", "pypi", "version"))
                return self.problem(child, path, f"unknown key {key!r}", way_out, child.key)
            text = self._text("text", child, f"{path}.{key}")
            if text is _WRONG:
                return _WRONG
            given[key] = text
        match sorted(given):
            case ["git", "rev"]:
                return GitDefinition(url=given["git"], rev=given["rev"])
            case ["branch", "git"]:
                return GitDefinition(url=given["git"], branch=given["branch"])
            case ["pypi", "version"]:
                return PyPIDefinition(project=given["pypi"], version=given["version"])
            case _:
                return self._expected(DefinitionKind().what, node, path, f"it has {', '.join(given) or 'no key'}")


def is_slip(key: str, kind: Record, given: Mapping[str, Any]) -> bool:
    """Whether a key that is not known looks like one that is, and that is not given beside it."""
    missing = [known for known in kind.keys if known not in given]
    folded = key.lower().replace("-", "_")
    return folded in missing or any(_one_slip(folded, known) for known in missing if len(known) >= 4)


def _one_slip(key: str, known: str) -> bool:
    """Whether one letter more, less, other or swapped with its neighbour makes the one of the other."""
    if abs(len(key) - len(known)) > 1 or key == known:
        return False
    start = 0
    while start < min(len(key), len(known)) and key[start] == known[start]:
        start += 1
    rest, wanted = key[start:], known[start:]
    swapped = len(rest) >= 2 and rest[1] + rest[0] + rest[2:] == wanted
    return swapped or rest[1:] == wanted[1:] or rest[1:] == wanted or rest == wanted[1:]


def _path(node: Located) -> Path:
    """The path that a text stands for, relative to the file it is written in."""
    path = Path(str(node.value))
    return path if path.is_absolute() else _normal(Path(node.mark.source.folder) / path)


def _normal(path: Path) -> Path:
    """The path without `..`, as text: no link is followed, nothing is looked up."""
    made: list[str] = []
    for part in path.parts:
        if part == ".." and made and made[-1] not in ("/", ".."):
            made.pop()
        elif part != ".":
            made.append(part)
    return Path(*made) if made else Path()


def _argument_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _with_arch(system: Located, given: Located | None, arch: str) -> Located:
    if type(system.value) is not dict or (given is not None and given.value is not None):
        return system
    return Located({**system.value, "arch": scalar(arch, BUILT_IN)}, system.mark, system.replaced, system.flags)


class _Benchmarks:
    """Resolves and parses benchmarks one after the other."""

    def __init__(
        self,
        reader: _Reader,
        interpolator: Interpolator,
        arch: str,
        declared: Declared | None,
        *,
        tasks: Tasks | None,
        env: Mapping[str, str],
    ) -> None:
        self.reader = reader
        self.interpolator = interpolator
        self.declared = declared
        self.asked: dict[Path, frozenset[str] | None] = {}
        self.warnings = Problems()
        self.variant = scalar(arch, BUILT_IN)
        self.dirs = {key: scalar(text, BUILT_IN) for key, text in _DEFAULT_DIRS.items()}
        self.more = {"run_name": scalar("{run_name}", BUILT_IN)}
        self.count = 0
        self.tasks = tasks
        self.env = env

    def benchmark(self, name: str, node: Located) -> BenchmarkConfig | None:
        """The benchmark as a value; None where it is left out, with the problem or the warning noted."""
        whole = self._with_task(name, self._resolved(name, node))
        if whole is None:
            return None
        node = whole
        values = self._values(name, node)
        if values is None:
            return None
        if "job" in node.value and node.value["job"].value is not None:
            what = "matrix and job are expanded where they are written, and are not inherited"
            self.reader.problem(node.value["job"], f"{name}.job", what, "write them in this benchmark")
            return None
        if "job" not in node.value and any(isinstance(value, list) for value in values.get("matrix", {}).values()):
            what = "a matrix needs a job, whose keys its values are put into"
            self.reader.problem(node.value["matrix"], f"{name}.matrix", what, "write job: {name: ..., ...} beside it")
            return None
        if not self._metrics_have_patterns(name, node, values.get("metrics", {})):
            return None
        if "definition" not in values and "command" not in values:
            what = "it has neither a definition nor a command, and is left out"
            self.warnings.add(Problem(where=str(node.mark), path=name, what=what, way_out="is its name right?"))
            return None
        made = self._made(name, node, values)
        for key, said in (("", name), ("group", made.group), ("install_group", made.install_group)):
            if not _is_name(said):
                what = f"{said!r} cannot be a name: files and folders are named after it"
                where = node.value.get(key, node)
                self.reader.problem(
                    where, f"{name}.{key}" if key else name, what, "leave out /, leading dots and line ends"
                )
                return None
        return made

    def _with_task(self, name: str, node: Located) -> Located | None:
        """The benchmark with what the task of its driver says below what it says itself; None after noting a problem."""
        if "driver" not in node.value and "task" not in node.value:
            return node
        children = dict(node.value)
        given = {key: children.pop(key) for key in ("driver", "task") if key in children}
        driver, asked = (
            given[key] if key in given and given[key].value is not None else None for key in ("driver", "task")
        )
        if driver is None:
            if asked is None or "definition" in children:  # a benchfile may have a key of its own that is called so
                return node
            self.reader.problem(asked, f"{name}.task", "a task needs its driver", "write driver: FILE.cfg")
            return None
        if children.get("definition") is not None:
            what = "a definition has a program of its own, and no driver"
            self.reader.problem(children["definition"], f"{name}.definition", what, "leave one of them out")
            return None
        section = name if asked is None else self.reader.read(Text(), asked, f"{name}.task")
        if self.reader.read(Text(), driver, f"{name}.driver") is _WRONG or section is _WRONG:
            return None
        task = self._task(name, driver, section)
        if task is None:
            return None
        own = {key for key, child in children.items() if child.value is not None}
        if "command" in own:
            task = {key: child for key, child in task.items() if key not in ("command", "shell")}
        elif "command" not in task:
            what = f"the task {section!r} has metrics only, and no command_to_execute"
            self.reader.problem(driver, f"{name}.driver", what, "give a command beside the driver")
            return None
        if "plan" in own:
            task.pop("plan")
        try:
            return merge_documents(Located(task, driver.mark), Located(children, node.mark, node.replaced))
        except MergeError as error:
            self.reader.problems.add(error.problem())
            return None

    def _task(self, name: str, driver: Located, section: str) -> dict[str, Located] | None:
        """What a task stands for, in the suite's own keys, with the places in its file; None after noting the problem."""
        if self.tasks is None:
            self.reader.problem(driver, f"{name}.driver", "no task file can be read here")
            return None
        from milabench.config.tasks import WORKERS, as_nodes, workers_of

        file = _path(driver)
        try:
            task = self.tasks(file).task(section)
            made = as_nodes(task, str(file.parent), workers_of(self.env.get(WORKERS, "")))
        except ConfigError as error:
            self.reader.problems.take(error)
            return None
        for warning in task.warnings:
            self.warnings.add(warning)
        plan = {"method": scalar("njobs", BUILT_IN), "n": scalar(1, BUILT_IN)}
        return {**made, "plan": mapping_at(plan, BUILT_IN)}

    def _metrics_have_patterns(self, name: str, node: Located, metrics: Mapping[str, Any]) -> bool:
        """Whether each metric says what to look for; notes the problem of one that does not."""
        for metric, about in metrics.items():
            if "pattern" not in about:
                known = [other for other in metrics if "pattern" in metrics[other]]
                place = node.value["metrics"].value[metric]
                self.reader.problem(
                    place, f"{name}.metrics.{metric}", "the key 'pattern' is missing", near(metric, known)
                )
                return False
        return True

    def check_templates(self, templates: Mapping[str, Located]) -> None:
        """Note the unknown keys of templates, which may have no child to show them."""
        for name, node in templates.items():
            for key, child in node.value.items():
                if key not in BENCHMARK.keys and key not in ("job", "name"):
                    self._extra_key(name, node, key, child, None if "definition" not in node.value else node)

    def _resolved(self, name: str, node: Located) -> Located:
        own: dict[str, Located] = node.value
        if not node.flags & 1:
            return node
        more = dict(self.more)
        more["name"] = scalar(name, BUILT_IN)
        group = own.get("group")
        more["group"] = group if group is not None and group.value is not None else more["name"]
        more["install_group"] = more["group"]
        more["install_variant"] = self.variant
        more["num_machines"] = scalar(1, BUILT_IN)
        given = own.get("dirs")
        own_dirs = given.value if given is not None and type(given.value) is dict else {}
        children = {**own, "dirs": Located({**self.dirs, **own_dirs}, node.mark, flags=node.flags)}
        resolved, problems = self.interpolator.benchmark(name, Located(children, node.mark, flags=node.flags), more)
        self.reader.problems.extend(problems)
        self.reader.unresolved.update(problem.where for problem in problems)
        made = dict(resolved.value)
        if given is None:
            made.pop("dirs", None)
        elif type(given.value) is not dict:
            made["dirs"] = given
        elif "dirs" in made:
            kept = {key: child for key, child in made["dirs"].value.items() if key in given.value}
            made["dirs"] = Located(kept, given.mark, given.replaced)
        return Located(made, node.mark, node.replaced)

    def _values(self, name: str, node: Located) -> dict[str, Any] | None:
        values: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        wrong = False
        for key, child in node.value.items():
            known = BENCHMARK.keys.get(key) if key != "task" else None
            if known is not None:
                if child.value is None:
                    continue
                value = self.reader.read(known.kind, child, f"{name}.{key}")
                if value is _WRONG:
                    wrong = True
                else:
                    values[key] = value
            elif key == "name":
                wrong = self._name_key(name, child) or wrong
            elif key != "job":
                extra[key] = child
        for key, child in extra.items():
            wrong = not self._extra_key(name, node, key, child, node) or wrong
        values["options"] = {key: plain(child) for key, child in extra.items()}
        return None if wrong else values

    def _name_key(self, name: str, child: Located) -> bool:
        if child.value == name:
            return False
        what = f"a benchmark is named by its key, {name!r}, not by 'name'"
        self.reader.problem(child, f"{name}.name", what, "remove it")
        return True

    def _extra_key(self, name: str, node: Located, key: str, child: Located, asked: Located | None) -> bool:
        """Whether a key that is not ours is the benchfile's; where nobody can say, it is kept with a warning."""
        folder = None
        if asked is not None and "definition" in asked.value:
            folder = self.reader.read(
                BENCHMARK.keys["definition"].kind, asked.value["definition"], f"{name}.definition"
            )
        declared = self._declared(folder) if self.declared is not None else frozenset()
        if asked is not None and "definition" not in asked.value and asked.value.keys() & {"command", "driver"}:
            declared = frozenset()  # no benchfile will ever be there
        if declared is not None and key in declared:
            return True
        if declared is None and not is_slip(key, BENCHMARK, node.value):
            what = f"unknown key {key!r}; its definition is not there to say whether it declares it"
            self.warnings.add(Problem(where=str(child.key or child.mark), path=name, what=what))
            return True
        known = [*BENCHMARK.keys, *(declared or ())]
        way_out = near(key, known) or "`milabench config schema` lists the keys"
        self.reader.problem(child, name, f"unknown key {key!r}", way_out, child.key)
        return False

    def _declared(self, folder: Any) -> frozenset[str] | None:
        if not isinstance(folder, Path) or self.declared is None:
            return None
        if folder not in self.asked:
            try:
                self.asked[folder] = self.declared(folder)
            except ConfigError:
                # The benchfile's own problems are told by whoever loads it.
                self.asked[folder] = None
        return self.asked[folder]

    def _made(self, name: str, node: Located, values: dict[str, Any]) -> BenchmarkConfig:
        group = values.pop("group", name)
        plan = values.pop("plan", None)
        server = values.pop("server", None)
        client = values.pop("client", None)
        tags = values.pop("tags", ())
        container = ContainerConfig(**values.pop("container", {}))
        definition: Definition | None = values.pop("definition", None)
        metrics = values.pop("metrics", {})
        return BenchmarkConfig(
            name=name,
            definition=definition,
            group=group,
            install_group=values.pop("install_group", group),
            install_variant=values.pop("install_variant", self.variant.value),
            tags=tuple(dict.fromkeys(tags)),
            plan=_plan(plan),
            container=container,
            server=_server(server) if server is not None else None,
            client=ClientConfig(**client) if client is not None else None,
            cwd=_path(node.value["cwd"]) if values.pop("cwd", None) is not None else None,
            metrics={key: MetricConfig(**value) for key, value in metrics.items()},
            origin=Origins(node),
            **values,
        )


def _server(given: Mapping[str, Any]) -> ServerConfig:
    ready = given.get("ready", {})
    return ServerConfig(
        argv=given.get("argv", ()),
        ready=ready.get("port", ready.get("pattern", "")),
        timeout=ready.get("timeout"),
    )


def _plan(given: Mapping[str, Any] | None) -> PlanConfig:
    if given is None:
        return PlanConfig()
    ours = ("method", "n", "launcher", "nodes")
    extra = {key: value for key, value in given.items() if key not in ours}
    known = {key: value for key, value in given.items() if key in ours}
    return PlanConfig(**known, extra=extra)


def _gpu(given: Mapping[str, Any] | None) -> GpuConfig:
    if given is None:
        return GpuConfig()
    extra = {key: value for key, value in given.items() if key not in ("count", "capacity", "name")}
    return GpuConfig(
        count=given.get("count"), capacity_mib=given.get("capacity"), name=given.get("name", ""), extra=extra
    )


def _system(node: Located, arch_is_given: bool, reader: _Reader) -> SystemConfig:
    values = reader.read(SYSTEM, node, "system")
    if values is _WRONG:
        return SystemConfig(origin=Origins(mapping_at({}, node.mark)))
    nodes = tuple(_node(item) for item in values.get("nodes", ()))
    _check_nodes(nodes, node.value.get("nodes"), reader)
    if nodes and not any(one.main for one in nodes):
        nodes = (replace(nodes[0], main=True), *nodes[1:])
    return SystemConfig(
        arch=values.get("arch") if arch_is_given else None,
        gpu=_gpu(values.get("gpu")),
        cpu_count=values.get("cpu_count"),
        nodes=tuple(sorted(nodes, key=lambda one: not one.main)),
        sshkey=values.get("sshkey", ""),
        known_hosts=values.get("known_hosts", ""),
        transport=values.get("transport", "asyncssh"),
        sync=values.get("sync", ()),
        docker_image=values.get("docker_image"),
        container=ContainerConfig(**values.get("container", {})),
        dirs=values.get("dirs", {}),
        options=values.get("options", {}),
        reference=values.get("reference", ""),
        costs=values.get("costs", {}),
        extra={key: value for key, value in values.items() if key not in SYSTEM.keys},
        raw=plain(node),
        origin=Origins(node),
    )


def _node(given: Mapping[str, Any]) -> NodeConfig:
    return NodeConfig(
        name=given.get("name", given["ip"]),
        ip=given["ip"],
        hostname=given.get("hostname", given["ip"]),
        port=given.get("port", given.get("sshport", 22)),
        user=given.get("user", ""),
        main=given.get("main", False),
        gpu=_gpu(given["gpu"]) if "gpu" in given else None,
        cpu_count=given.get("cpu_count"),
        memory_mib=given.get("memory"),
        base=given.get("base", ""),
        python=given.get("python", ""),
        proxy_jump=given.get("proxy_jump", ""),
        extra={key: value for key, value in given.items() if key not in _NODE_KEYS},
    )


_NODE_KEYS: Final = frozenset(
    [
        "name",
        "ip",
        "hostname",
        "port",
        "sshport",
        "user",
        "main",
        "gpu",
        "cpu_count",
        "memory",
        "base",
        "python",
        "proxy_jump",
    ]
)


_PLAIN: Final = {
    "name": re.compile(r"\w[\w.@:-]*"),
    "ip": re.compile(r"[\w:\[][\w.:%\[\]-]*"),
    "user": re.compile(r"\w[\w.@+\\-]*\$?"),
    "proxy_jump": re.compile(r"[\w\[][\w.@:%,\[\]-]*"),
}
_CALLED: Final = {"name": "name of a node", "ip": "address", "user": "user", "proxy_jump": "machine to go through"}


def _check_nodes(nodes: tuple[NodeConfig, ...], located_nodes: Located | None, reader: _Reader) -> None:
    if located_nodes is None:
        return
    names: dict[str, int] = {}
    mains = [index for index, one in enumerate(nodes) if one.main]
    if len(mains) > 1:
        what = f"{len(mains)} nodes are main"
        reader.problem(located_nodes.value[mains[1]], f"system.nodes.{mains[1]}.main", what, "leave one")
    if not mains and len(nodes) > 1 and any("main" in one.value for one in located_nodes.value):
        what = f"none of {', '.join(one.name for one in nodes)} is main"
        reader.problem(
            located_nodes, "system.nodes", what, "say `main: true` of one; the first is where none says anything"
        )
    for index, one in enumerate(nodes):
        _check_node(one, located_nodes.value[index], f"system.nodes.{index}", reader)
        first = names.setdefault(one.name, index)
        if first != index:
            item = located_nodes.value[index]
            what = f"two nodes are named {one.name!r}"
            reader.problem(
                item, f"system.nodes.{index}.name", what, f"the other is at {located_nodes.value[first].mark}"
            )
    places: dict[tuple[str, int], int] = {}
    for index, one in enumerate(nodes):
        first = places.setdefault((one.ip, one.port), index)
        if first != index and nodes[first].name != one.name:
            what = f"{one.name!r} and {nodes[first].name!r} are one machine, {one.ip} port {one.port}"
            way_out = f"the other is at {located_nodes.value[first].mark}"
            reader.problem(located_nodes.value[index], f"system.nodes.{index}.ip", what, way_out)


def _check_node(node: NodeConfig, located: Located, path: str, reader: _Reader) -> None:
    """What becomes part of paths, markers and command lines holds nothing that means something else there."""
    for key, text in (("name", node.name), ("ip", node.ip), ("user", node.user), ("proxy_jump", node.proxy_jump)):
        given = located.value.get(key)
        may_be_empty = key in ("user", "proxy_jump")
        if given is not None and not (_PLAIN[key].fullmatch(text) or (may_be_empty and not text)):
            what = (
                f"{node.name}: {text!r} can be no {_CALLED[key]}" if node.name else f"{text!r} can be no {_CALLED[key]}"
            )
            reader.problem(
                given, f"{path}.{key}", what, "letters, digits and . _ - : @ may stand in it, and no - at its start"
            )
    if node.base and not node.base.startswith("/"):
        what = f"{node.name}: {node.base!r} is no absolute path"
        reader.problem(located.value.get("base") or located, f"{path}.base", what, "begin it with /")


def _profile(node: Located | None, reader: _Reader) -> Profile:
    if node is None:
        return "default"
    value = reader.read(PROFILE, node, "profile")
    return "default" if value is _WRONG else value


def _multirun(node: Located | None, reader: _Reader) -> tuple[Multirun, ...]:
    if node is None:
        return ()
    values = reader.read(MULTIRUN, node, "multirun")
    if values is _WRONG:
        return ()
    return tuple(Multirun(name=run["name"], matrix=run["matrix"]) for run in values.get("runs", ()))


def _is_name(text: str) -> bool:
    """Whether files and folders can be named so, and a terminal can show it."""
    return bool(text) and text.isprintable() and "/" not in text and not text.startswith(".")
