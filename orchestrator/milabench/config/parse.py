"""Located values into the frozen values of schema.py, with every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from milabench.config import schema
from milabench.config.interpolate import Interpolator
from milabench.config.kinds import INVALID, ValueParser, is_slip, record_of
from milabench.config.layers import Folded
from milabench.config.matrix import require_few
from milabench.config.problems import Problems, did_you_mean
from milabench.config.sizes import SIZES_KEY, ChosenSize, layers_of, sizes_by_name
from milabench.config.source_map import BUILT_IN, DYNAMIC, Located, Mark, Origins, built_in, mapping_at, plain, settled
from milabench.errors import ConfigError, Problem
from milabench.seams import handler, missing
from milabench.shown import some_of

Declared = Callable[[Path], frozenset[str] | None]
"""Return the extra keys that the benchfile in a folder declares. None where there is no benchfile to ask.

A benchfile of another system, whose code may read any key, declares every key, even the empty key.
"""

MAX_DEVICES: Final = 100_000
_EVERY_KEY: Final = ""
# What milabench 1.3 reads from nobody: a benchmark of that system would be another one with it.
_IGNORED_WITH: Final = {"docker_image": "to run it in a container, write container: {image: ...}"}
NODE_KEYS: Final = record_of(schema.NodeConfig).keys
_DEFAULT_DIRS: Final = mapping_at(
    {name: built_in(f"{{milabench_{name}}}") for name in ("base", "venv", "data", "runs", "extra", "cache")}, BUILT_IN
)

_SAME_FOR_ALL: Final = {"run_name": built_in("{run_name}"), "num_machines": built_in(1), "dirs": _DEFAULT_DIRS}


def parse_suite(
    folded: Folded,
    problems: Problems,
    *,
    arch: str,
    env: Mapping[str, str],
    declared: Declared | None = None,
    warnings: tuple[Problem, ...] = (),
    repeated: tuple[Problem, ...] = (),
    files: tuple[Path, ...] = (),
) -> schema.Suite:
    """Return the suite as values.

    `arch` stands where the system has none. Without `declared`, a key that is not ours is an error in every
    benchmark. `repeated` are keys that are given twice, of which the last holds: a warning where a benchfile is of another
    system, which takes the last too, else an error. Raises ConfigError with every problem, those noted before included.
    """
    parser = ValueParser(problems, env.get("HOME", ""))
    system_node = folded.file.get("system") or mapping_at({}, BUILT_IN)
    arch_node = system_node.value.get("arch") if type(system_node.value) is dict else None
    interpolator = Interpolator(_with_arch(system_node, arch_node, arch), env)
    problems.extend(interpolator.system_problems)
    system = parse_system(interpolator.system, parser, arch_is_given=arch_node is not None)
    warned = Problems()
    warned.extend((*warnings, *(replace(each, hint="the last value is used. Remove the others") for each in repeated)))
    _warn_of_node_keys(interpolator.system, warned)
    of_all = {**_SAME_FOR_ALL, "install_variant": built_in(system.arch or arch)}
    benchmark_parser = _BenchmarkParser(parser, interpolator, system.arch or arch, declared, env, of_all, warned)
    parsed = {
        name: benchmark_parser.parse(name, node, folded.sizes.get(name)) for name, node in folded.benchmarks.items()
    }
    benchmark_parser.warn_of_left_out()
    benchmark_parser.check_templates(folded.templates)
    described = (*folded.benchmarks.values(), *folded.templates.values())
    # Without what is inherited nobody knows whose benchfiles they are.
    if repeated and folded.is_whole and not any(map(benchmark_parser.is_foreign, described)):
        problems.extend(repeated)
    others = {key: node for key, node in folded.file.items() if key not in ("include", "system")}
    file = schema.FILE.values(mapping_at(others, BUILT_IN), "", parser)
    runs = file["multirun"].runs if file is not INVALID and "multirun" in file else ()
    with problems.taking():
        require_few(runs)
    # Only here, so that one wrong key does not hide the problems of all other benchmarks.
    problems.raise_any()
    return schema.Suite(
        benchmarks={name: benchmark for name, benchmark in parsed.items() if benchmark is not None},
        system=system,
        profile=file.get("profile", "default"),
        precision=file.get("precision"),
        multirun=runs,
        warnings=warned.all(),
        files=files,
        size=file.get("size", ""),
        lacking={name: sized.lacks for name, sized in folded.sizes.items() if sized.lacks is not None and parsed[name]},
    )


def _with_arch(system: Located, given: Located | None, arch: str) -> Located:
    if type(system.value) is not dict or (given is not None and given.value is not None):
        return system
    return Located({**system.value, "arch": built_in(arch)}, system.mark, system.replaced, system.flags)


@dataclass(slots=True)
class _BenchmarkParser:
    """Resolves and parses benchmarks in sequence."""

    parser: ValueParser
    interpolator: Interpolator
    arch: str
    declared: Declared | None
    env: Mapping[str, str]
    same_for_all: Mapping[str, Located]
    """Values that interpolations find under keys that a benchmark does not have, where no benchmark changes them."""
    warnings: Problems
    declared_in: dict[Path, frozenset[str] | None] = field(default_factory=dict)
    noted_in: set[tuple[str, str]] = field(default_factory=set)
    """The files and keys of foreign benchmarks about which something has been noted."""
    left_out: dict[str, list[tuple[str, Mark]]] = field(default_factory=dict)
    """By file, the benchmarks without a program, such as benchmarks of another file that it disables."""

    def parse(self, name: str, node: Located, sized: ChosenSize | None) -> schema.BenchmarkConfig | None:
        """Return the benchmark as a value. None where it is left out, with the problem or the warning noted."""
        if sized is not None:
            self.check_sizes(name, node, sized.sizes, layers_of(sized.size))
        resolved = self._with_task(name, self._resolve(name, node))
        if resolved is None:
            return None
        node = resolved
        values = self._values(name, node)
        if values is None or not (self._matrix_has_job(name, node, values) and self._metrics_have_patterns(name, node)):
            return None
        if "definition" not in values and "command" not in values and not {"serve", "server"} <= values.keys():
            self.left_out.setdefault(node.mark.source.name, []).append((name, node.mark))
            return None
        if not self._is_whole_sweep(name, node, values):
            return None
        group = values.setdefault("group", name)
        values.setdefault("install_group", group)
        values.setdefault("install_variant", self.arch)
        for key, text in (("", name), ("group", group), ("install_group", values["install_group"])):
            if not _is_name(text):
                what = f"{text!r} cannot be a name: it becomes the name of files and folders"
                path = f"{name}.{key}" if key else name
                self.parser.reject(node.value.get(key, node), path, what, "leave out /, leading dots and line ends")
                return None
        options = values.pop("options")
        config: schema.BenchmarkConfig = schema.BENCHMARK.build(
            values,
            name=name,
            size=sized.size if sized is not None else "",
            options=options,
            origin=_origins(node, sized),
        )
        return config

    def _with_task(self, name: str, node: Located) -> Located | None:
        """Return the benchmark with the keys from the task of its driver below its own keys. None after noting a problem."""
        if "driver" not in node.value and "task" not in node.value:
            return node
        if lacking := missing("driver"):
            self.parser.reject(node.value.get("driver", node), f"{name}.driver", lacking, "let it take part")
            return None
        merged: Located | None = handler("driver")(name, node, self.parser, self.env, self.warnings)
        return merged

    def _matrix_has_job(self, name: str, node: Located, values: Mapping[str, Any]) -> bool:
        """Return whether no unexpanded matrix is left. Notes a problem for each that is."""
        job = node.value.get("job")
        if job is not None and job.value is not None:
            what = "matrix and job are used only in the benchmark that has them, and are not inherited"
            self.parser.reject(job, f"{name}.job", what, "write them in this benchmark")
            return False
        if job is None and any(isinstance(value, list) for value in values.get("matrix", {}).values()):
            what = "a matrix needs a job: its values are inserted into the keys of the job"
            self.parser.reject(node.value["matrix"], f"{name}.matrix", what, "write job: {name: ..., ...} next to it")
            return False
        return True

    def _is_whole_sweep(self, name: str, node: Located, values: Mapping[str, object]) -> bool:
        """Return whether a benchmark has everything that its sweep over a server needs, if it has a sweep. Notes a problem."""
        if values.get("serve") is None and values.get("server") is None:
            return True
        lacking = missing("serve")
        if lacking and values.get("serve") is not None:
            self.parser.reject(node.value["serve"], f"{name}.serve", lacking, "let it take part")
        if lacking:
            return values.get("serve") is None
        is_whole: bool = handler("serve")(name, node, values, self.parser)
        return is_whole

    def _metrics_have_patterns(self, name: str, node: Located) -> bool:
        """Return whether each metric has a pattern. Notes a problem for each that has none."""
        metrics: Mapping[str, Located] = node.value["metrics"].value or {} if "metrics" in node.value else {}
        known = {metric: keys for metric, keys in metrics.items() if _has(keys, "pattern")}
        for metric, keys in metrics.items():
            if metric not in known:
                what = "the key 'pattern' is missing"
                self.parser.reject(keys, f"{name}.metrics.{metric}", what, did_you_mean(metric, known))
                return False
        return True

    def check_templates(self, templates: Mapping[str, Located]) -> None:
        """Note the unknown keys of templates, which may have no child to show them."""
        for name, node in templates.items():
            for key, child in node.value.items():
                if key not in schema.BENCHMARK.keys and key not in ("job", "name"):
                    self._check_extra_key(name, node, key, child)
            if SIZES_KEY in node.value:
                self.check_sizes(name, node, node.value[SIZES_KEY], ())

    def check_sizes(self, name: str, node: Located, sizes: Located, chosen: Sequence[str]) -> None:
        """Note problems in the sizes of a benchmark that were not chosen. Chosen sizes are parsed with the rest."""
        for size, keys in sizes_by_name(name, sizes, self.parser.problems).items():
            if size in chosen:
                continue
            path = f"{name}.{SIZES_KEY}.{size}"
            together = Located({**node.value, **keys.value}, keys.mark)
            for key, child in settled(keys).value.items():
                known = schema.BENCHMARK.keys.get(key)
                if known is None:
                    self._check_extra_key(path, together, key, child)
                elif child.value is not None and not child.flags & DYNAMIC:
                    self.parser.parse(known.kind, child, f"{path}.{key}")

    def _resolve(self, name: str, node: Located) -> Located:
        """Return the benchmark without `${...}`. Problems are noted."""
        if not node.flags & DYNAMIC:
            return node
        resolved, problems = self.interpolator.benchmark(name, node, self._implied(name, node.value))
        self.parser.problems.extend(problems)
        self.parser.unresolved.update(problem.where for problem in problems)
        return resolved

    def _implied(self, name: str, own: Mapping[str, Located]) -> dict[str, Located]:
        """Return the values that interpolations find under keys that a benchmark does not have, and with its own folders all."""
        name_node, group, dirs = built_in(name), own.get("group"), own.get("dirs")
        group_node = group if group is not None and group.value is not None else name_node
        implied = {**self.same_for_all, "name": name_node, "group": group_node, "install_group": group_node}
        implied = {key: value for key, value in implied.items() if key not in own}
        if dirs is not None and (dirs.value is None or type(dirs.value) is dict):
            implied["dirs"] = Located({**_DEFAULT_DIRS.value, **(dirs.value or {})}, dirs.mark, flags=dirs.flags)
        return implied

    def _values(self, name: str, node: Located) -> dict[str, Any] | None:
        """Return the values of the keys, with those that the benchfile declares as `options`. None after a problem."""
        values: dict[str, Any] = {}
        extra: dict[str, Located] = {}
        is_valid = True
        left_out = {"task", *(key for key in _IGNORED_WITH if key in node.value and self.is_foreign(node))}
        for key, child in node.value.items():
            known = schema.BENCHMARK.keys.get(key)
            if known is not None and key not in left_out:
                if child.value is not None:
                    values[key] = self.parser.parse(known.kind, child, f"{name}.{key}")
                    is_valid = is_valid and values[key] is not INVALID
            elif key == "name":
                if child.value != name:
                    what = f"a benchmark is named by its key, {name!r}, not by 'name'"
                    self.parser.reject(child, f"{name}.name", what, "remove it")
                    is_valid = False
            elif key != "job":
                extra[key] = child
        for key, child in extra.items():
            is_valid = self._check_extra_key(name, node, key, child) and is_valid
        values["options"] = {key: plain(child) for key, child in extra.items()}
        return values if is_valid else None

    def _check_extra_key(self, name: str, node: Located, key: str, child: Located) -> bool:
        """Return whether the benchfile declares a key. Where there is no benchfile to ask, the key is kept with a warning."""
        # A template may leave the definition to its children.
        has_program = "definition" in node.value or not name.startswith("_")
        declared: frozenset[str] | None = frozenset()
        if self.declared is not None:
            declared = self._declared_by(node) if has_program else None
        if has_program and "definition" not in node.value and node.value.keys() & {"command", "driver"}:
            declared = frozenset()  # a command has no benchfile
        if declared is not None and key in declared:
            if _EVERY_KEY in declared:
                self._note_foreign_key(name, node, key, child.key or child.mark)
            return True
        if declared is None and not is_slip(key, schema.BENCHMARK.keys, node.value):
            what = f"unknown key {key!r}: its definition, which could declare the key, is not available"
            self.warnings.note(str(child.key or child.mark), name, what)
            return True
        known = [*schema.BENCHMARK.keys, *(declared or ())]
        hint = did_you_mean(key, known) or "`milabench config schema` lists the keys"
        self.parser.reject(child, name, f"unknown key {key!r}", hint, child.key)
        return False

    def warn_of_left_out(self) -> None:
        """Note the benchmarks that are left out, once for each file."""
        for benches in self.left_out.values():
            (name, mark), others = benches[0], [other for other, _ in benches[1:]]
            what = "it is left out: it has neither a definition nor a command"
            if others:
                what += f", as {'are' if len(others) > 1 else 'is'} {some_of(others, 8)}"
            self.warnings.note(mark, name, what, "is its name right?")

    def _note_foreign_key(self, name: str, node: Located, key: str, mark: Mark) -> None:
        """Note once for each file how a key is treated that only foreign code can read."""
        place = (mark.source.name, key)
        if place in self.noted_in:
            return
        self.noted_in.add(place)
        if key in _IGNORED_WITH:
            self.warnings.note(str(mark), name, f"{key!r} is ignored, as by milabench 1.3", _IGNORED_WITH[key])
            return
        hint = did_you_mean(key, schema.BENCHMARK.keys) if is_slip(key, schema.BENCHMARK.keys, node.value) else ""
        self.warnings.note(str(mark), name, f"unknown key {key!r}, kept for its benchfile, which may read it", hint)

    def is_foreign(self, node: Located) -> bool:
        """Return whether the benchfile of a benchmark is of another system."""
        declared = self._declared_by(node)
        return declared is not None and _EVERY_KEY in declared

    def _declared_by(self, node: Located) -> frozenset[str] | None:
        """Return the keys that the benchfile of a benchmark declares. None where there is none to ask."""
        if self.declared is None or "definition" not in node.value:
            return None
        folder = self.parser.parse(schema.BENCHMARK.keys["definition"].kind, node.value["definition"], "definition")
        if not isinstance(folder, Path):
            return None
        if folder not in self.declared_in:
            self.declared_in[folder] = None
            with suppress(ConfigError):  # a benchfile's own problems are reported by whoever loads it
                self.declared_in[folder] = self.declared(folder)
        return self.declared_in[folder]


def _origins(node: Located, sized: ChosenSize | None) -> Origins:
    """Return where the values of a benchmark come from, its size and its sizes among them."""
    if sized is None:
        return Origins(node)
    whole = node.holding({**node.value, "size": sized.asked, SIZES_KEY: settled(sized.sizes)}, node.flags)
    return Origins(whole, sized.layers)


def _has(node: Located, key: str) -> bool:
    return key in node.value and node.value[key].value is not None


def _is_name(text: str) -> bool:
    """Return whether files and folders can be named so, and a terminal can show it."""
    return bool(text) and text.isprintable() and "/" not in text and not text.startswith(".")


# --- the system: names and addresses that can stand in paths and commands -----------------------------------------------


def parse_system(node: Located, parser: ValueParser, *, arch_is_given: bool) -> schema.SystemConfig:
    """Return the system that `system:` describes, its main node first. Problems are noted."""
    values = schema.SYSTEM.values(node, "system", parser)
    if values is INVALID:
        return schema.SystemConfig(origin=Origins(mapping_at({}, node.mark)))
    system: schema.SystemConfig = schema.SYSTEM.build(values, raw=plain(node), origin=Origins(node))
    nodes: tuple[schema.NodeConfig, ...] = system.nodes
    if nodes:
        _check_nodes(nodes, system.gpu, node.value["nodes"], parser)
        if not any(entry.main for entry in nodes):
            nodes = (replace(nodes[0], main=True), *nodes[1:])
    return replace(
        system,
        arch=system.arch if arch_is_given else None,
        nodes=tuple(sorted(nodes, key=lambda entry: not entry.main)),
    )


def _check_nodes(
    nodes: Sequence[schema.NodeConfig], default_gpu: schema.GpuConfig, located: Located, parser: ValueParser
) -> None:
    items: list[Located] = located.value
    mains = [index for index, node in enumerate(nodes) if node.main]
    if len(mains) > 1:
        parser.reject(
            items[mains[1]], f"system.nodes.{mains[1]}.main", f"{len(mains)} nodes are main", "keep only the first"
        )
    if not mains and len(nodes) > 1 and any("main" in item.value for item in items):
        hint = "set `main: true` on a single node. Without `main` the first node is used"
        parser.reject(located, "system.nodes", f"none of {', '.join(node.name for node in nodes)} is main", hint)
    devices = sum((node.gpu or default_gpu).count or 1 for node in nodes)
    if devices > MAX_DEVICES:
        what = f"{devices} devices are more than the limit of {MAX_DEVICES}"
        parser.reject(located, "system.nodes", what)
    by_name: dict[str, int] = {}
    by_address: dict[tuple[str, int], int] = {}
    for index, (node, item) in enumerate(zip(nodes, items, strict=True)):
        path = f"system.nodes.{index}"
        other = by_name.setdefault(node.name, index)
        if other != index:
            what = f"two nodes are named {node.name!r}"
            parser.reject(item, f"{path}.name", what, f"the other is at {items[other].mark}")
        other = by_address.setdefault((node.ip, node.port), index)
        if other != index and nodes[other].name != node.name:
            what = f"{node.name!r} and {nodes[other].name!r} are the same machine, {node.ip} port {node.port}"
            parser.reject(item, f"{path}.ip", what, f"the other is at {items[other].mark}")


def _warn_of_node_keys(system: Located, warnings: Problems) -> None:
    """Warn of keys that hold for the whole system only: at a node they are kept, as any key is, and do nothing."""
    nodes = system.value.get("nodes") if type(system.value) is dict else None
    for index, node in enumerate(nodes.value if nodes is not None and type(nodes.value) is list else ()):
        for key, child in node.value.items() if type(node.value) is dict else ():
            if key in schema.SYSTEM.keys and key not in NODE_KEYS:
                hint = f"write it as system.{key}, for all nodes"
                warnings.note(child.key or child.mark, f"system.nodes.{index}.{key}", "does nothing at a node", hint)
