"""The shapes of a run's manifest, journal and summary: which kinds of values they have where, checked once, where they are read.

Unlisted keys may have any value. A key may be missing or null unless it is `Required`. A value is checked by msgspec, in C: a
journal may have a hundred thousand entries, a hundred summaries have millions of values. Only a refused value is walked
through, for its place. msgspec takes tens of milliseconds to import, and is imported by the first check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from milabench.events.values import LARGEST_NUMBER, SMALLEST_NUMBER, finite_number, positive

Shape = Any
"""`str`, `bool`, `int`, `float` (any finite number) or a name below. `[shape]` a list. `{key: shape}` a mapping, `{str:
shape}` a mapping with any keys."""
Check = Callable[[Any], bool]

# A file of the run, which is in the run's folder; a number that can be divided by; one that can be counted or measured.
FILE, ABOVE_ZERO, NOT_NEGATIVE = "the name of a file", "a number above zero", "a number, zero or more"
COUNT = "a whole number, zero or more"
UNREAD = "a value of any shape, left as the bytes that it is written in"
"""Of `ShapeCheck.checked` only, and `Required` there."""
_NAMES = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}
_SCHEMAS: Mapping[Shape, Mapping[str, object]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    FILE: {"type": "string", "pattern": "^[^/]+$"},
    ABOVE_ZERO: {"type": "number", "exclusiveMinimum": 0},
    NOT_NEGATIVE: {"type": "number", "minimum": 0},
    COUNT: {"type": "integer", "minimum": 0},
}
_SHOWN = 40  # characters of a value that is not as it should be


@dataclass(frozen=True, slots=True)
class Required:
    """A shape whose key may be neither missing nor null."""

    shape: Shape


_NODE = {
    **dict.fromkeys(("name", "ip", "hostname", "os", "kernel", "python"), str),
    "cpu": {"model": str, "count": float},
    "memory_MiB": float,
    "devices": [{"index": int, "uuid": str, "name": str, "arch": str, "memory_MiB": float}],
    "details": {},
}
_SYSTEM = {"arch": str, "nodes": [_NODE]}
_STEP = {
    **dict.fromkeys(("id", "bench"), Required(str)),
    **dict.fromkeys(("phase", "tag", "group", "node", "hash", "cwd", "venv"), str),
    "repeat": int,
    "devices": [int],
    "one_job": bool,
    "config": {},
}
PLAN_SHAPE: Shape = {
    **dict.fromkeys(("phase", "hash"), str),
    "system": _SYSTEM,
    "steps": [_STEP],
    "skipped": [{"bench": Required(str), "why": str}],
}
_OPTIONS = {**{key: [str] for key in ("overrides", "ab")}, "environ": {str: str}}
_AIM, _REPLICATES = {str: float}, {str: {"planned": Required(float), **dict.fromkeys(("wanted", "log_spread"), float)}}

MANIFEST_SHAPE: Shape = {
    **dict.fromkeys(("phase", "name", "created", "version", "cwd", "suite_file", "plan_hash", "profile"), str),
    **dict.fromkeys(("reference", "capsule"), str),
    "argv": [str],
    "suite": {str: {}},
    "system": _SYSTEM,
    "plan": PLAN_SHAPE,
    "files": {str: Required(FILE)},
    "seed": int,
    "costs": {},
    **{key: {str: str} for key in ("locks", "programs", "about", "imported")},
    "validations": [str],
    "options": _OPTIONS,
    "precision": float,
    "aim": _AIM,
    "replicates": _REPLICATES,
    "ab": {
        "suites": [str],
        "differs": str,
        "pairs": {str: {"A": Required(str), "B": Required(str), "same_steps": bool}},
    },
    "submission": {"marker": str, "scheduler": str, "shares": {str: {"steps": Required([str]), "nodes": [str]}}},
}
SHARE_MANIFEST_SHAPE: Shape = {**dict.fromkeys(("share", "job"), str), "system": _SYSTEM, "plan": {"steps": [_STEP]}}
JOURNAL_SHAPE: Shape = {
    "t": float,
    **dict.fromkeys(("run", "step", "state", "node", "outcome", "why", "detail", "verdict", "group"), str),
    "attempt": int,
    "reasons": [str],
    "steps": {str: str},
    "clocks": {str: {str: float}},
    "overhead": {str: float},
    # Of the orchestrator that started or went on with the run.
    **dict.fromkeys(("boot", "host", "user", "marker"), str),
    **dict.fromkeys(("pid", "pid_start", "oom_kills"), int),
    "since": float,
    "nodes": [{**dict.fromkeys(("name", "host"), Required(str)), "port": int}],
    "allocation": {"scheduler": str, "job": str, "marker": str, "nodes": [str]},
    # Of a share of the run and of its job.
    **dict.fromkeys(("share", "job", "name", "output", "result", "job_state", "reason", "witness"), str),
    "task": int,
    "hosts": [str],
    "exit_code": int,
}
_METRIC = {
    "metric": Required(str),
    "value": Required(float),
    **dict.fromkeys(("step", "units", "direction", "place", "case", "part"), str),
    **dict.fromkeys(("rank", "repeat"), int),
    "params": {},
    **{key: [str] for key in ("steps", "reasons")},
}
# What a row of a results store says of a benchmark in a run; a database may hold any kind of value in any column.
RESULT_ROW_SHAPE: Shape = {
    "run": Required(str),
    "value": Required(float),
    **dict.fromkeys(("created", "host", "device", "units", "direction", "validity", "outcome"), str),
    **dict.fromkeys(("low", "high"), float),
}
# The metric that a launch's throughput is written as.
RATE_SHAPE: Shape = {
    "value": Required(ABOVE_ZERO),
    "repeat": Required(int),
    **dict.fromkeys(("observations", "warm_up_steps", "all_steps"), COUNT),
    **dict.fromkeys(("spread_within", "left_out", "steps_rate"), NOT_NEGATIVE),
    "totals": [
        {
            **dict.fromkeys(("items", "seconds"), Required(NOT_NEGATIVE)),
            **dict.fromkeys(("rank", "observations", "steps"), Required(int)),
            "step_seconds": NOT_NEGATIVE,
        }
    ],
    **{key: {str: Required(NOT_NEGATIVE)} for key in ("pauses", "latency")},
    "warmup_left": float,
}
_COUNTS = dict.fromkeys(("planned", "passed", "failed", "skipped", "missing", "cancelled"), Required(int))
_POINT_VALUE = {
    "value": Required(float),
    **{key: [float] for key in ("ci95", "launches")},
    **{key: {str: Required(float)} for key in ("lower", "upper")},
}
_CURVE = {
    **dict.fromkeys(("client", "version", "best", "currency"), str),
    "seed": int,
    "slo": {str: Required(float)},
    "points": [
        {
            "name": Required(str),
            **dict.fromkeys(("arrivals", "state", "why"), str),
            **dict.fromkeys(("concurrency", "rate"), NOT_NEGATIVE),
            **dict.fromkeys(("requests", "errors"), int),
            **{key: [str] for key in ("notes", "few")},
            "values": {str: Required(_POINT_VALUE)},
            "meets_slo": bool,
        }
    ],
    "area": _POINT_VALUE,
    **dict.fromkeys(("slo_concurrency", "slo_rate"), NOT_NEGATIVE),
}
_BENCH = {
    "counts": Required(_COUNTS),
    "about": str,
    "tags": [str],
    **dict.fromkeys(("perf", "score"), ABOVE_ZERO),
    **dict.fromkeys(("weight", "spread", "spread_within", "spread_devices", "spread_processes"), NOT_NEGATIVE),
    **dict.fromkeys(("overlap", "memory_peak_MiB", "energy_J", "first_step_s"), NOT_NEGATIVE),
    "wall_s": NOT_NEGATIVE,
    "ci95": [ABOVE_ZERO],
    "validations": [{**dict.fromkeys(("step", "check", "verdict", "message"), Required(str)), "numbers": {}}],
    "metrics": [_METRIC],
    "serving": _CURVE,
}
_JOB = {
    **dict.fromkeys(("job", "stage", "result", "state", "reason", "failure"), str),
    "share": Required(str),
    "exit_code": int,
    **{key: [str] for key in ("nodes", "steps", "unpassed")},
}
SUMMARY_SHAPE: Shape = {
    "system": _SYSTEM,
    "jobs": [_JOB],
    "options": _OPTIONS,
    "accelerators": [{}],
    "aim": _AIM,
    "replicates": _REPLICATES,
    "benchmarks": Required([_BENCH]),
    "manifest": {},
}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_number(value: object) -> bool:
    return finite_number(value) is not None


def _is_file(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and "/" not in value and value != ""


def _is_above_zero(value: object) -> bool:
    return positive(value) is not None


def _is_not_negative(value: Any) -> bool:
    return finite_number(value) is not None and value >= 0


_FITS: Mapping[Shape, Check] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: _is_whole,
    float: _is_number,
    FILE: _is_file,
    ABOVE_ZERO: _is_above_zero,
    NOT_NEGATIVE: _is_not_negative,
    COUNT: lambda value: _is_whole(value) and value >= 0,
    object: lambda _: True,
}


def require_shape(value: object, shape: Shape) -> None:
    """Raise ValueError, with the place, for a value of another shape: `plan.steps.3.id is [], not a text`."""
    if _check_of(shape).fits(value):
        return
    for path, actual, wanted in _misfits(value, shape, ""):
        shown = repr(actual)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        raise ValueError(f"{path or 'it'} is {shown}, not {wanted}")


_CHECKS: dict[int, tuple[Shape, ShapeCheck]] = {}


def _check_of(shape: Shape) -> ShapeCheck:
    """Return the check of a shape, made once."""
    if id(shape) not in _CHECKS:
        _CHECKS[id(shape)] = shape, ShapeCheck(shape)  # the shape is kept, so that no other one gets its id
    return _CHECKS[id(shape)][1]


class ShapeCheck:
    """Whether a value has a shape. A value refused here may still have it: `require_shape` decides."""

    def __init__(self, shape: Shape) -> None:
        import msgspec

        self._type, self._convert = _type_of(shape), msgspec.convert
        self._decoder = msgspec.json.Decoder(self._type)
        self._refusals = (msgspec.MsgspecError, UnicodeError, RecursionError)

    def fits(self, value: object) -> bool:
        """Return whether a value of JSON is known to have the shape."""
        try:
            self._convert(value, self._type)
        except self._refusals:
            return False
        return True

    def checked(self, content: bytes) -> Any:
        """Return the value that these bytes hold, None where it is not known to have the shape.

        A mapping of known keys has them as attributes, None for missing keys, and no others.
        """
        try:
            return self._decoder.decode(content)
        except self._refusals:
            return None


@cache
def _scalar_types() -> Mapping[Shape, object]:
    from msgspec import Meta, Raw

    return {
        UNREAD: Raw,
        str: str,
        bool: bool,
        object: Any,
        int: Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)],
        float: Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)],
        FILE: Annotated[str, Meta(pattern=r"^[ -.0-~]+\Z")],
        ABOVE_ZERO: Annotated[float, Meta(ge=SMALLEST_NUMBER, le=LARGEST_NUMBER)],
        NOT_NEGATIVE: Annotated[float, Meta(ge=0, le=LARGEST_NUMBER)],
        COUNT: Annotated[int, Meta(ge=0, le=2**63 - 1)],
    }


def _type_of(shape: Shape) -> Any:
    """Return a type that accepts only values of the shape, except for tuples, which JSON lacks."""
    import msgspec

    if isinstance(shape, Required):
        return _type_of(shape.shape)
    if isinstance(shape, list):
        return list[_type_of(shape[0])]  # type: ignore[misc]  # made at run time
    if not isinstance(shape, Mapping):
        return _scalar_types()[shape]
    if not shape:
        return dict[str, Any]
    if str in shape:
        return dict[str, _field_type(shape[str])]  # type: ignore[misc]  # as above
    fields = [
        (key, _field_type(wanted), msgspec.NODEFAULT if isinstance(wanted, Required) else None)
        for key, wanted in shape.items()
    ]
    return msgspec.defstruct("Shape", fields, gc=False, kw_only=True)


def _field_type(wanted: Shape) -> object:
    return _type_of(wanted) if isinstance(wanted, Required) else _type_of(wanted) | None


def _misfits(value: object, shape: Shape, path: str) -> Iterator[tuple[str, object, str]]:
    """Yield the places of values that do not fit, with the value and the expected kind."""
    if isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            yield path, value, "a mapping"
            return
        every = shape.get(str)
        for key, wanted in shape.items() if every is None else ((key, every) for key in value):
            inner = value.get(key)
            if isinstance(wanted, Required):
                wanted = wanted.shape  # noqa: PLW2901
            elif inner is None:
                continue
            # A summary has a hundred thousand of these: no generator for each.
            if isinstance(wanted, list | dict) or not _FITS[wanted](inner):
                yield from _misfits(inner, wanted, f"{path}.{key}" if path else str(key))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield path, value, "a list"
            return
        for number, item in enumerate(value):
            yield from _misfits(item, shape[0], f"{path}.{number}")
    elif not _FITS[shape](value):
        yield path, value, _NAMES.get(shape) or str(shape)


def schema_of_shape(shape: Shape) -> dict[str, object]:
    """Return the JSON Schema of a shape."""
    if isinstance(shape, Required):
        return schema_of_shape(shape.shape)
    if isinstance(shape, list):
        return {"type": "array", "items": schema_of_shape(shape[0])}
    if not isinstance(shape, Mapping):
        return dict(_SCHEMAS[shape])
    if str in shape:
        return {"type": "object", "additionalProperties": _optional(shape[str])}
    properties = {key: _optional(wanted) for key, wanted in shape.items()}
    required = [key for key, wanted in shape.items() if isinstance(wanted, Required)]
    return {
        "type": "object",
        **({"properties": properties} if properties else {}),
        **({"required": required} if required else {}),
    }


def _optional(shape: Shape) -> dict[str, object]:
    schema = schema_of_shape(shape)
    return schema if isinstance(shape, Required) else {"anyOf": [schema, {"type": "null"}]}
