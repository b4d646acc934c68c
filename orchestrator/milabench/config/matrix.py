"""One description, many: a `matrix` with its `job` becomes benchmarks, the matrix of a multirun becomes runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from milabench.config.problems import did_you_mean
from milabench.config.schema import Multirun
from milabench.config.source_map import DYNAMIC, Located, Mark, mapping_at, plain, scalar, settled
from milabench.config.template import FieldError, Part, parts, text_of, value_of
from milabench.errors import ConfigError, Problem

MAX_JOBS: Final = 100_000

Build = Callable[[Mapping[str, Any]], Located]


def is_matrix(node: Located) -> bool:
    """Return whether a benchmark's description stands for many."""
    value = node.value
    return type(value) is dict and "matrix" in value and "job" in value and value["job"].value is not None


def expand(name: str, node: Located, max_jobs: int = MAX_JOBS) -> Iterator[tuple[str, Located]]:
    """Yield the jobs of one matrix: each one's name and description, the last key of the matrix varying fastest.

    The strings below `job` have the values put in for their fields; other fields are left for planning. Keys beside
    `matrix` and `job` hold for every job that does not say otherwise. Raises ConfigError.
    """
    description = settled(node).value
    matrix, job = description["matrix"], description["job"]
    axes = _axes(name, matrix, max_jobs)
    if type(job.value) is not dict:
        raise _wrong(job.mark, f"{name}.job", "expected a mapping", "write the keys of a benchmark below it")
    shared = {key: child for key, child in description.items() if key not in ("matrix", "job")}
    template = {**shared, **job.value}
    naming = template.pop("name", None)
    if naming is None or not isinstance(naming.value, str):
        what = "a job needs a name that is text"
        raise _wrong((naming or job).mark, f"{name}.job.name", what, "such as '" + name + "-{key}'")
    known = tuple(axes)
    build_name = _builder(naming, known)
    build_job = _builder(mapping_at(template, job.mark), known)
    has_lists = any(type(value.value) is list for values in axes.values() for value in values)
    for combination in itertools.product(*axes.values()):
        nodes = dict(zip(known, combination, strict=True))
        values = {key: plain(value) for key, value in nodes.items()}
        try:
            job_name = str((build_name(values) if build_name else naming).value)
            job_node = build_job(values) if build_job else mapping_at(template.copy(), job.mark)
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


def combinations(matrix: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the Cartesian product of a plain matrix; a value that is no list is one value."""
    axes = [value if isinstance(value, list | tuple) else [value] for value in matrix.values()]
    for combination in itertools.product(*axes):
        yield dict(zip(matrix, combination, strict=True))


def runs(multirun: Sequence[Multirun], extra: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the options of every run of a multirun, in order.

    Options keep their dotted names (`sizer.mult`); names may use them and `extra` (such as the time) as fields. Raises
    ConfigError where a name has a field that is neither.
    """
    for run_set in multirun:
        for options in combinations(run_set.matrix):
            names = {**extra, **_nested(options)}
            try:
                name = _filled(parts(run_set.name), names)
            except (FieldError, ValueError) as error:
                raise ConfigError(Problem("", "multirun.runs", f"the name {run_set.name!r}: {error}")) from None
            yield name, options


def _nested(options: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in options.items():
        *parents, last = name.split(".")
        here = tree
        for parent in parents:
            below = here.setdefault(parent, {})
            if not isinstance(below, dict):
                break
            here = below
        else:
            here[last] = value
    return tree


def _axes(name: str, matrix: Located, max_jobs: int) -> dict[str, list[Located]]:
    if type(matrix.value) is not dict or not matrix.value:
        raise _wrong(matrix.mark, f"{name}.matrix", "expected a mapping from name to values")
    axes: dict[str, list[Located]] = {}
    for key, values in matrix.value.items():
        axes[key] = values.value if type(values.value) is list else [values]
        if not axes[key]:
            raise _wrong(values.mark, f"{name}.matrix.{key}", "an empty list gives no job", "give a value")
    jobs = math.prod(len(values) for values in axes.values())
    if jobs > max_jobs:
        what = f"{jobs} jobs are more than the limit of {max_jobs}"
        raise _wrong(matrix.mark, f"{name}.matrix", what, f"allow them with --max-jobs {jobs}")
    return axes


def _wrong(mark: Mark, path: str, what: str, hint: str = "") -> ConfigError:
    return ConfigError(Problem(str(mark), path, what, hint))


def _builder(node: Located, known: tuple[str, ...]) -> Build | None:
    """Return what makes a job's version of this node; None where all jobs share the node itself."""
    value = node.value
    if type(value) is str:
        return _text_builder(node, known)
    if type(value) is list:
        builders = [_builder(item, known) for item in value]
        if not any(builders):
            return None
        pairs = list(zip(value, builders, strict=True))

        def build_list(values: Mapping[str, Any]) -> Located:
            items = [build(values) if build else item for item, build in pairs]
            return node.holding(items, node.flags)

        return build_list
    if type(value) is dict:
        return _mapping_builder(node, known)
    return None


def _mapping_builder(node: Located, known: tuple[str, ...]) -> Build | None:
    keys = {key: _key_builder(key, known) for key in node.value}
    changing = {key: build for key, child in node.value.items() if (build := _builder(child, known)) is not None}
    fixed_keys = not any(keys.values())
    if fixed_keys and not changing:
        return None
    children: dict[str, Located] = node.value

    def build_values(values: Mapping[str, Any]) -> Located:
        built = children.copy()
        for key, build in changing.items():
            built[key] = build(values)
        return node.holding(built, node.flags)

    def build_keys_too(values: Mapping[str, Any]) -> Located:
        built: dict[str, Located] = {}
        for key, child in build_values(values).value.items():
            build = keys[key]
            text = build(values) if build else key
            if text in built:
                raise ValueError(f"two keys become {text!r}")
            built[text] = child
        return node.holding(built, node.flags)

    return build_values if fixed_keys else build_keys_too


def _split(text: str, known: tuple[str, ...]) -> list[Part]:
    """Return the text and the fields that the matrix knows; any other field stays text, for planning."""
    pieces: list[Part] = []
    for part in parts(text):
        piece = part if isinstance(part, str) or part.name in known else part.text
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    return pieces


def _key_builder(text: str, known: tuple[str, ...]) -> Callable[[Mapping[str, Any]], str] | None:
    pieces = _split(text, known)
    if all(isinstance(piece, str) for piece in pieces):
        return None
    return lambda values: _filled(pieces, values)


def _filled(pieces: Iterable[Part], values: Mapping[str, Any]) -> str:
    return "".join(piece if isinstance(piece, str) else text_of(piece, value_of(piece, values)) for piece in pieces)


def _text_builder(node: Located, known: tuple[str, ...]) -> Build | None:
    build = _key_builder(node.value, known)
    if build is None:
        return None

    def build_text(values: Mapping[str, Any]) -> Located:
        text = build(values)
        return Located(text, node.mark, (), DYNAMIC if "${" in text else 0, False, None, True, node.key)

    return build_text
