"""Expands matrices: a `matrix` with its `job` becomes benchmarks, the matrix of a multirun becomes runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from milabench.config.problems import did_you_mean
from milabench.config.schema import Multirun
from milabench.config.source_map import DYNAMIC, Located, Mark, mapping_at, plain, scalar, settled
from milabench.config.template import Field, FieldError, parts, text_of, value_of
from milabench.errors import ConfigError, Problem

MAX_BENCHMARKS: Final = 20_000
"""Maximum number of benchmarks in a suite, including those from its matrices."""
MAX_RUNS: Final = 1_000
"""Maximum number of runs of a multirun."""


def is_matrix(node: Located) -> bool:
    """Return whether a benchmark's description is a matrix."""
    value = node.value
    return type(value) is dict and "matrix" in value and "job" in value and value["job"].value is not None


def expand(name: str, node: Located, max_benchmarks: int = MAX_BENCHMARKS) -> Iterator[tuple[str, Located]]:
    """Yield the jobs of a matrix: the name and description of each, the last key of the matrix varying fastest.

    The strings below `job` have the values put in for their fields. Other fields are left for planning. Keys next to
    `matrix` and `job` hold for every job that does not say otherwise. Raises ConfigError.
    """
    own = settled(node).value
    matrix, job = own["matrix"], own["job"]
    axes = _axes(name, matrix, max_benchmarks)
    if type(job.value) is not dict:
        raise _wrong(job.mark, f"{name}.job", "expected a mapping", "write the keys of a benchmark below it")
    template = {key: child for key, child in own.items() if key not in ("matrix", "job")} | job.value
    naming = template.pop("name", None)
    if naming is None or not isinstance(naming.value, str):
        what = "a job needs a name that is text"
        raise _wrong((naming or job).mark, f"{name}.job.name", what, "such as '" + name + "-{key}'")
    known = tuple(axes)
    description = mapping_at(template, job.mark)
    # What is the same in all jobs is one node for all of them, and is parsed once; the top differs, for it holds the choice.
    changing = {id(description)}
    _find_fields(description, known, changing)
    has_lists = any(type(value.value) is list for values in axes.values() for value in values)
    for combination in itertools.product(*axes.values()):
        nodes = dict(zip(known, combination, strict=True))
        values = {key: plain(value) for key, value in nodes.items()}
        try:
            job_name = _filled(naming.value, values)
            job_node = _put_in(description, values, changing)
        except FieldError as error:
            hint = did_you_mean(error.name, error.known) or f"the matrix has {', '.join(known)}"
            raise _wrong(job.mark, f"{name}.job", f"{error.field.text} is not there", hint) from None
        except ValueError as error:
            raise _wrong(job.mark, f"{name}.job", f"a value cannot be formatted: {error}") from None
        job_node.value["matrix"] = mapping_at(nodes, matrix.mark)
        if has_lists:
            # Tells this choice, in which there is a list, from a matrix that lacks its job.
            job_node.value["job"] = scalar(None, matrix.mark)
        yield job_name, job_node


def combinations(matrix: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Yield the Cartesian product of a plain matrix. A value that is not a list is a single value."""
    axes = [value if isinstance(value, list | tuple) else [value] for value in matrix.values()]
    for combination in itertools.product(*axes):
        yield dict(zip(matrix, combination, strict=True))


def runs(multirun: Sequence[Multirun], extra: Mapping[str, object]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the options of every run of a multirun, in order.

    Options keep their dotted names (`sizer.mult`). Names may use them and `extra` (such as the time) as fields. Raises
    ConfigError where a name has a field that is neither.
    """
    for run_set in multirun:
        for options in combinations(run_set.matrix):
            names = {**extra, **options}
            try:
                name = "".join(
                    part if isinstance(part, str) else _option_text(part, names) for part in parts(run_set.name)
                )
            except (FieldError, ValueError) as error:
                raise ConfigError(Problem("", "multirun.runs", f"the name {run_set.name!r}: {error}")) from None
            yield name, options


def require_few(multirun: Sequence[Multirun]) -> None:
    """Raise ConfigError for more runs than anybody waits for."""
    count = sum(
        math.prod(len(values) if isinstance(values, list | tuple) else 1 for values in run_set.matrix.values())
        for run_set in multirun
    )
    if count > MAX_RUNS:
        raise ConfigError(Problem("", "multirun.runs", f"{count} runs are more than the limit of {MAX_RUNS}"))


def _option_text(field: Field, names: Mapping[str, object]) -> str:
    """Return the value of a field as text, of `{sizer.mult}` that of the option of this name. Raises FieldError."""
    dotted = ".".join((field.name, *field.steps))
    return text_of(field, names[dotted] if dotted in names else value_of(field, names))


def _axes(name: str, matrix: Located, max_benchmarks: int) -> dict[str, list[Located]]:
    if type(matrix.value) is not dict or not matrix.value:
        raise _wrong(matrix.mark, f"{name}.matrix", "expected a mapping from name to values")
    axes: dict[str, list[Located]] = {}
    for key, values in matrix.value.items():
        axes[key] = values.value if type(values.value) is list else [values]
        if not axes[key]:
            raise _wrong(values.mark, f"{name}.matrix.{key}", "an empty list gives no job", "give a value")
    jobs = math.prod(len(values) for values in axes.values())
    if jobs > max_benchmarks:
        what = f"{jobs} benchmarks are more than the limit of {max_benchmarks}"
        raise _wrong(matrix.mark, f"{name}.matrix", what, f"allow them with --max-benchmarks {jobs}")
    return axes


def _wrong(mark: Mark, path: str, what: str, hint: str = "") -> ConfigError:
    return ConfigError(Problem(str(mark), path, what, hint))


def _find_fields(node: Located, known: Collection[str], changing: set[int]) -> bool:
    """Note the ids of the nodes that differ in each job, and return whether this node does."""
    value = node.value
    children = value.values() if type(value) is dict else value if type(value) is list else ()
    # A list, not a generator: every child is looked at, also behind the first that changes.
    below = [_find_fields(child, known, changing) for child in children]
    texts = value if type(value) is dict else [value] if type(value) is str else ()
    is_changing = any(below) or any(_has_field(text, known) for text in texts)
    if is_changing:
        changing.add(id(node))
    return is_changing


def _has_field(text: str, known: Collection[str]) -> bool:
    return any(isinstance(part, Field) and part.name in known for part in parts(text))


def _put_in(node: Located, values: Mapping[str, object], changing: Collection[int]) -> Located:
    """Return a job's version of a node that changes: the values put in for their fields, in keys too."""
    value = node.value
    if type(value) is str:
        text = _filled(value, values)
        return Located(text, node.mark, (), DYNAMIC if "${" in text else 0, False, None, True, node.key)
    if type(value) is list:
        items = [_put_in(item, values, changing) if id(item) in changing else item for item in value]
        return node.holding(items, node.flags)
    children: dict[str, Located] = {}
    for key, child in value.items():
        text = _filled(key, values) if "{" in key else key
        if text in children:
            raise ValueError(f"two keys become {text!r}")
        children[text] = _put_in(child, values, changing) if id(child) in changing else child
    return node.holding(children, node.flags)


def _filled(text: str, values: Mapping[str, object]) -> str:
    """Return the text with the matrix's values. Any other field stays text, for planning."""
    pieces: list[str] = []
    for part in parts(text):
        if isinstance(part, str):
            pieces.append(part)
        elif part.name not in values:
            pieces.append(part.text)
        elif part.steps or part.spec:
            pieces.append(text_of(part, value_of(part, values)))
        else:
            pieces.append(str(values[part.name]))
    return "".join(pieces)
