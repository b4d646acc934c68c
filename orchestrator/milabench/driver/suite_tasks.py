"""Benchmarks that name a task of a driver: the task's keys are below the benchmark's own."""

from __future__ import annotations

from collections.abc import Mapping

from milabench.config.kinds import INVALID, Text, ValueParser, path_at
from milabench.config.problems import Problems
from milabench.config.source_map import BUILT_IN, Located, MergeError, built_in, mapping_at, merge_documents
from milabench.driver.tasks import WORKERS, as_nodes, read_tasks, workers_of
from milabench.errors import ConfigError


def with_task(
    name: str, node: Located, parser: ValueParser, env: Mapping[str, str], warnings: Problems
) -> Located | None:
    """Return a benchmark with the keys of its driver's task below its own. None after noting a problem."""
    children = dict(node.value)
    driver, section_node = (_given(children.pop(key, None)) for key in ("driver", "task"))
    if driver is None:
        if section_node is None or "definition" in children:  # a benchfile may declare a key of its own with that name
            return node
        parser.reject(section_node, f"{name}.task", "a task needs its driver", "write driver: FILE.cfg")
        return None
    if children.get("definition") is not None:
        what = "a definition has a program of its own, and no driver"
        parser.reject(children["definition"], f"{name}.definition", what, "leave one of them out")
        return None
    section = name if section_node is None else parser.parse(Text(), section_node, f"{name}.task")
    if parser.parse(Text(), driver, f"{name}.driver") is INVALID or section is INVALID:
        return None
    file = path_at(driver)
    try:
        task = parser.read_once(read_tasks, file).task(section)
        keys = as_nodes(task, str(file.parent), workers_of(env.get(WORKERS, "")))
    except ConfigError as error:
        parser.problems.take(error)
        return None
    given = {key for key, child in children.items() if child.value is not None}
    if "command" in given:
        keys = {key: child for key, child in keys.items() if key not in ("command", "shell")}
    elif "command" not in keys:
        what = f"the task {section!r} has metrics only, and no command_to_execute"
        parser.reject(driver, f"{name}.driver", what, "add a command to the driver")
        return None
    if "plan" not in given:
        keys["plan"] = mapping_at({"method": built_in("njobs"), "n": built_in(1)}, BUILT_IN)
    try:
        merged = merge_documents(Located(keys, driver.mark), Located(children, node.mark, node.replaced))
    except MergeError as error:
        parser.problems.add(error.problem())
        return None
    warnings.extend(task.warnings)
    return merged


def _given(node: Located | None) -> Located | None:
    return node if node is not None and node.value is not None else None
