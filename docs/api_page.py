"""Print docs/reference/api.md, the page of the Python interface, from its docstrings; `make docs` writes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

import milabench

HEAD = """# Python interface

Written by `docs/api_page.py` from the docstrings of `milabench`; do not edit it by hand.

Everything on this page is stable: names, parameters and meaning change only with a major version, and `CHANGELOG.md` says so.
All other modules are internal. `import milabench` imports nothing else: each name is imported when it is first used.
`docs/examples/compare_two_runs.py` is an example that runs as a script and in a notebook.
"""
SECTIONS = {
    "Functions": ("load", "compare", "accept", "plan_suite", "run"),
    "Results": ("RunResult", "ComparisonResult", "AcceptanceResult", "PlanResult"),
    "Benchfiles": ("Benchmark", "PyPI", "Git"),
    "Messages": ("Reporter", "CollectingReporter"),
    "Errors": (
        "MilabenchError",
        "ConfigError",
        "UsageError",
        "NothingSelected",
        "EnvironmentFailed",
        "Unreachable",
        "RecordError",
    ),
}
_HEADING = re.compile(r"(Args|Attributes|Raises):")
_ITEM = re.compile(r"    (\S[^:]*): (.*)")


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += ["\n".join(entry(name)) for name in names]
    return "\n".join(parts)


def entry(name: str) -> Iterator[str]:
    """Yield the lines on one public name."""
    member = getattr(milabench, name)
    text = inspect.getdoc(member) or ""
    yield f"### `{name}`\n"
    if inspect.isfunction(member):
        yield from signature(name, member, member.__annotations__["return"])
        yield from docstring(text)
    elif issubclass(member, milabench.MilabenchError):
        yield f"Exit code {member.exit_code}. {' '.join(text.split())}\n"
    else:
        if "__dataclass_fields__" in vars(member):
            yield from signature(name, member)
        yield from docstring(text)
        yield from methods(member)


def signature(name: str, member: Callable[..., object], result: str = "") -> Iterator[str]:
    """Yield how a function or class is called."""
    yield f"```text\n{name}("
    kind = None
    for parameter in inspect.signature(member).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and kind not in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL):
            yield "    *,"
        kind = parameter.kind
        stars = "*" if kind is parameter.VAR_POSITIONAL else ""
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        kind_name = str(parameter.annotation).replace("PathOrName", "str | PathLike[str]")
        yield f"    {stars}{parameter.name}: {kind_name}{default.replace('<factory>', '{}')},"
    yield f"){f' -> {result}' if result else ''}\n```\n"


def methods(member: type) -> Iterator[str]:
    """Yield the public methods of a class."""
    for name, function in vars(member).items():
        if inspect.isfunction(function) and not name.startswith("_") and function.__doc__:
            arguments = ", ".join(argument for argument in inspect.signature(function).parameters if argument != "self")
            yield f"- `{name}({arguments})`: {' '.join((inspect.getdoc(function) or '').split())}"
    yield ""


def docstring(text: str) -> Iterator[str]:
    """Yield a docstring as Markdown, its lists of parameters, members and errors as bullets."""
    for line in text.splitlines():
        if match := _HEADING.fullmatch(line):
            yield f"{ {'Args': 'Parameters', 'Attributes': 'Members', 'Raises': 'Errors'}[match[1]] }:\n"
        elif match := _ITEM.fullmatch(line):
            yield f"- `{match[1]}`: {match[2]}"
        elif line.startswith("        "):
            yield f"  {line.strip()}"
        else:
            yield line
    yield ""


if __name__ == "__main__":
    print(page(), end="")
