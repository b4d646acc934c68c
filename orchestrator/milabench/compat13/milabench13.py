"""Benchmarks of milabench 1.3: a class in benchfile.py, which runs in a process of its own and answers with data.

The class returns the words that milabench 1.3 would start. Here they become values of bench/api.py.
docs/from-milabench-1.3.md has the differences.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, Final, cast, get_args

from milabench.bench.api import COPY, RUNNER, ForeignBenchmark, StartedProcess, WorkingCopy
from milabench.bench.load import folder_digest
from milabench.compat13.data_form import why_a_class
from milabench.config.schema import BenchmarkConfig, ContainerConfig, Engine
from milabench.config.show import plain_benchmark
from milabench.config.source_map import WrittenFloat
from milabench.errors import ConfigError, Problem
from milabench.facts.model import Node
from milabench.plan.context import NodeBenchmark, PlanContext, ResolvedBenchmark, benchmark_on
from milabench.plan.method import Placement, nodes_of, placements, why_not_placed
from milabench.plan.step import process_key
from milabench.redaction import mask_settings
from milabench.shown import grouped

FORMAT: Final = "__pack__"
BENCHFILE: Final = "benchfile.py"
VOIRFILE: Final = "voirfile.py"
# What another machine needs for a class that prepares by itself is all here.
FOLDER: Final = str(Path(__file__).parent)
CHILD: Final = (sys.executable, "-I", f"{FOLDER}/child.py")
# The child ends what hangs in foreign code, definition by definition; this is for the child itself.
_LONGEST_S: Final = 600


# What benchfiles answered, by folder and the time of the file's last change: a process is needed to ask.
_ANSWERED: dict[tuple[Path, int], dict[str, Any]] = {}


def read_together(folders: Iterable[Path]) -> None:
    """Ask the benchfiles of several folders at once. `declared_in` then has their answers."""
    keys = [key for key in map(_key, folders) if key not in _ANSWERED]
    answers = _ask([{"folder": str(folder), "code": str(folder), "benchmarks": []} for folder, _ in keys])
    _ANSWERED.update(zip(keys, answers, strict=True))


def _answer_of(folder: Path) -> Mapping[str, Any]:
    """Return the answer of the benchfile in a folder. Raises ConfigError where it failed."""
    read_together([folder])
    answer = _ANSWERED[_key(folder)]
    _require_answer(answer, folder)
    return answer


def _key(folder: Path) -> tuple[Path, int]:
    return folder, (folder / BENCHFILE).stat().st_mtime_ns


def declared_in(folder: Path) -> ForeignBenchmark:
    """Return the declarations of the benchfile in a folder. Raises ConfigError for a benchfile that cannot be run."""
    answer = _answer_of(folder)
    prepare = answer.get("prepare_script")
    return ForeignBenchmark(
        format=FORMAT,
        voirfile=VOIRFILE if (folder / VOIRFILE).is_file() else None,
        prepare=prepare if prepare and (folder / prepare).is_file() else None,
        cwd="definition",
        source=_working_copy(folder) if answer.get("own_install") else None,
    )


def _working_copy(folder: Path) -> WorkingCopy:
    """Return the copy of a folder in which its class installs its fetched files next to itself."""
    # Beside the copy, in the folder that goes when the copy is complete: an installation is no benchmark's own.
    dirs = {name: f"{COPY}/../{name}" for name in ("base", "venv", "data", "runs", "extra", "cache")}
    bench = {"config": {"name": folder.name, "definition": COPY}, "dirs": dirs, "nodes": [], "placements": []}
    request = {"definitions": [{"folder": COPY, "code": COPY, "benchmarks": [bench]}]}
    return WorkingCopy(
        name=folder.name,
        digest=folder_digest(folder),
        definition=str(folder),
        command=(*CHILD, "do", "install"),
        request=json.dumps(request),
    )


def why_kept(folder: Path) -> str:
    """Return the part of a folder that only its class can do, so that it cannot become data. Empty without any.

    Raises ConfigError.
    """
    return why_a_class(folder, _answer_of(folder))


def placed(benches: Sequence[ResolvedBenchmark], context: PlanContext) -> tuple[ResolvedBenchmark, ...]:
    """Return the benchmarks with the processes that they start on the machines of a plan, and their preparations.

    Raises ConfigError for a class that cannot name its processes.
    """
    programs = [_as_one_program(bench, context) for bench in benches]
    asked = grouped(
        (bench.folder, question)
        for bench, program in zip(benches, programs, strict=True)
        for question in _questions(program, _as_read(plain_benchmark(bench.config)), context)
    )
    requests = [
        {"folder": folder, "code": questions[0].code, "benchmarks": [question.request for question in questions]}
        for folder, questions in asked.items()
    ]
    answered: dict[str, list[tuple[_Question, Mapping[str, Any]]]] = {}
    for of_folder, questions in zip(_ask(requests), asked.values(), strict=True):
        folder = Path(questions[0].code)
        _require_answer(of_folder, folder)
        for question, answer in zip(questions, of_folder["benchmarks"], strict=True):
            _require_answer(answer, folder, question.name)
            of_bench = {**answer, "own_prepare": of_folder["own_prepare"]}
            answered.setdefault(question.name, []).append((question, of_bench))
    return tuple(_answered(bench, answered.get(bench.config.name, ())) for bench in programs)


def _answered(bench: ResolvedBenchmark, answers: Sequence[tuple[_Question, Mapping[str, Any]]]) -> ResolvedBenchmark:
    """Return a benchmark with what its class has answered for each of its nodes."""
    assert isinstance(bench.declared, ForeignBenchmark)
    processes: dict[str, tuple[StartedProcess, ...]] = {}
    preparing: dict[str, StartedProcess] = {}
    container, modules = None, ""
    for question, answer in answers:
        processes |= question.processes(answer)
        preparing |= question.preparing(answer)
        container = _container(question.name, answer) or container
        modules = bench.modules if answer["own_prepare"] else ""
    declared = replace(bench.declared, processes=processes, preparing=preparing)
    return replace(bench, config=_contained(bench.config, container), modules=modules, declared=declared)


def _as_read(value: object) -> Any:
    """Return plain data as milabench 1.3 reads it: a number in the notation `1e-5` is text there."""
    if isinstance(value, Mapping):
        return {key: _as_read(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_read(item) for item in value]
    return str(value) if isinstance(value, WrittenFloat) else value


def _as_one_program(bench: ResolvedBenchmark, context: PlanContext) -> ResolvedBenchmark:
    """Return the benchmark as milabench 1.3 means it: a single program on all its machines, which is its server and client too.

    On a single machine it is the main one, unless the suite names others.
    """
    config = bench.config
    plan = replace(config.plan, launcher="none")
    if config.num_machines > 1:
        plan = replace(plan, method="multinode")
    elif not plan.nodes:
        plan = replace(plan, nodes=(context.facts.main.name,))
    return replace(bench, config=replace(config, plan=plan, server=None, client=None), modules=FOLDER)


def _container(name: str, answer: Mapping[str, Any]) -> ContainerConfig | None:
    """Return the container in which a class starts its processes, as a suite names it. None without a container.

    Raises ConfigError where it is no engine of ours, or not the same for all.
    """
    named = [process["container"] for process in answer["processes"].values()]
    if not any(named):
        return None
    first, engine = named[0], PurePath((named[0] or {}).get("executable", "")).name
    is_same = all(each == first for each in named)
    if not is_same or engine not in get_args(Engine):
        what = f"unknown engine '{engine}'" if is_same else "not the same for all processes"
        hint = "name it in the suite: `container: {engine: podman, image: NAME}`"
        raise ConfigError(Problem("", f"{name}.container", f"the container that its class names: {what}", hint))
    return ContainerConfig(
        engine=cast("Engine", engine), image=str(first["image"]), args=tuple(map(str, first["args"]))
    )


def _contained(config: BenchmarkConfig, named: ContainerConfig | None) -> BenchmarkConfig:
    """Return the keys of a benchmark with the container that its class names. The suite's own container wins."""
    if named is None:
        return config
    own = config.container
    engine, image, args = own.engine or named.engine, own.image or config.docker_image or named.image, own.args
    return replace(
        config,
        container=replace(own, engine=engine, image=image, args=args if args is not None else named.args),
    )


def _questions(bench: ResolvedBenchmark, mapping: Mapping[str, object], context: PlanContext) -> list[_Question]:
    """Return the questions to a benchmark's class: for each of its nodes, with the paths that it has there."""
    # Prepared is it on each of its nodes, also where there are too few of them to run.
    by_node: dict[str, list[Placement]] = {node.name: [] for _, node in nodes_of(bench.config, context.facts)}
    if why_not_placed(bench.config, context.facts) is None:
        for placement in placements(bench.config, context.facts):
            by_node.setdefault(placement.node.name, []).append(placement)
    here = benchmark_on(replace(context.facts.main, local=True), bench, context)
    # Only there its files can be looked at: its own folder, until it has a working copy.
    code = here.source if Path(here.source).is_dir() else here.folder
    nodes = [node for node in context.facts.nodes if node.name in by_node]
    return [_Question(benchmark_on(node, bench, context), code, by_node[node.name], mapping) for node in nodes]


class _Question:
    """A benchmark on a node, with its paths and its planned processes there."""

    def __init__(
        self, bench: NodeBenchmark, code: str, placements: Sequence[Placement], mapping: Mapping[str, object]
    ) -> None:
        config, facts, dirs = bench.config, bench.context.facts, bench.dirs
        self.name = config.name
        self.code = code
        self._bench = bench
        system = {
            **bench.context.system.raw,
            "arch": facts.arch,
            "nodes": [_node(node) for node in facts.nodes],
            "self": _node(bench.node),
        }
        folders = {
            **{name: getattr(dirs, name) for name in ("base", "data", "runs", "cache")},
            "venv": bench.venv,
            "extra": f"{dirs.extra}/{config.group}",
        }
        named = ("name", "group", "install_group", "num_machines", "weight", "max_duration")
        self._mapping: dict[str, Any] = {
            **mapping,
            **{name: getattr(config, name) for name in named},
            "definition": code,
            "plan": {"method": "per_gpu" if config.plan.method == "per_gpu" else "njobs", "n": config.plan.n},
            "tags": list(config.tags),
            "dirs": {**folders, "code": code},
            "system": system,
        }
        self._keys = {process_key(placement): placement for placement in placements}
        self.request: dict[str, Any] = {
            "config": self._mapping,
            "dirs": folders,
            "nodes": system["nodes"],
            "placements": [
                {
                    "key": key,
                    "node": placement.node.name,
                    # Programs of one machine know of no other, wherever they run.
                    "rank": placement.node_rank if config.num_machines > 1 else 0,
                    "devices": [device.index for device in placement.devices],
                    "tag": [config.name, *([placement.tag] if placement.tag else [])],
                }
                for key, placement in self._keys.items()
            ],
        }

    def processes(self, answer: Mapping[str, Any]) -> dict[str, tuple[StartedProcess, ...]]:
        """Return the processes of an answer, by the keys of their placements."""
        by_key = grouped((process["placement"], process) for process in answer["processes"].values())
        return {key: tuple(self._started(each, self._keys[key]) for each in by_key[key]) for key in by_key}

    def preparing(self, answer: Mapping[str, Any]) -> dict[str, StartedProcess]:
        """Return the preparation of the benchmark on the node, by its name. Empty where there is nothing to do."""
        process = answer.get("prepare")
        return {} if process is None else {self._bench.node.name: self._started(process, None)}

    def _started(self, process: Mapping[str, Any], placement: Placement | None) -> StartedProcess:
        words = [self._there(word) for word in process["words"]]
        venv, folder = self._bench.venv, self._bench.source
        if placement is None and words and PurePath(words[0]).suffix == ".py":
            words = [self._bench.python, *words]  # whether or not it may be executed
        if words and words[0] == f"{venv}/bin/benchrun":
            words[0] = f"{venv}/bin/torchrun"
        if RUNNER in words:
            words = [word for word in words if word != "--no-python"]  # a module, which launchers start themselves
        if placement is not None and self._bench.context.facts.arch == "cpu":
            # torchrun counts no processors as devices.
            processes = f"--nproc-per-node={len(placement.devices)}"
            words = [processes if word == "--nproc-per-node=gpu" else word for word in words]
        env = {name: self._there(value) for name, value in process["env"].items()}
        if "--multi_gpu" in words and self._bench.context.facts.arch == "cpu":
            # Else accelerate's ranks find no accelerator, and each trains alone.
            env["ACCELERATE_USE_CPU"] = "true"
        known = json.dumps(mask_settings(self._mapping), sort_keys=True, default=str)
        return StartedProcess(
            words=tuple(words),
            env=env,
            literal_env={"MILABENCH_CONFIG": self._there(known)},
            cwd=self._there(process.get("cwd") or folder),
            tag=".".join(process.get("tag", ())[1:]),
        )

    def _there(self, text: str) -> str:
        """Return a text in which the read folder, and ours, have their paths on the node."""
        there = re.sub(rf"{re.escape(self.code)}(?![\w.-])", lambda _: self._bench.source, text)
        return there.replace(FOLDER, self._bench.modules)


def _node(node: Node) -> dict[str, Any]:
    named = {name: getattr(node, name) for name in ("name", "ip", "port", "user", "main")}
    return {**named, "hostname": node.hostname or node.ip}


def _ask(definitions: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
    """Return the child's answer for each definition. Raises ConfigError where there is no answer at all."""
    if not definitions:
        return []
    request = json.dumps({"definitions": list(definitions)}, default=str)
    try:
        done = subprocess.run(CHILD, input=request, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
        answers = json.loads(done.stdout)["definitions"]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        folders = ", ".join(str(definition["folder"]) for definition in definitions)
        raise ConfigError(f"{folders}: the benchfiles gave no answer: {type(error).__name__}") from None
    return list(answers)


def _require_answer(answer: Mapping[str, Any], folder: Path, name: str = "") -> None:
    """Raise ConfigError where foreign code failed."""
    if (error := answer.get("error")) is not None:
        raise ConfigError(Problem(str(folder / error["where"]), name, error["what"], ""))
