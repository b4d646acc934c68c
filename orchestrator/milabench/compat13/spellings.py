"""The spellings of milabench 1.3, and ours: options of verbs, and verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from milabench.errors import UsageError


class Spelling(NamedTuple):
    """An option as milabench 1.3 has it: its words here, with `{}` for its value, or the action instead."""

    words: tuple[str, ...] = ()
    has_value: bool = False
    instead: str = ""


_IGNORED: Final = Spelling()
_SHARED: Final = {
    "--capabilities": Spelling(has_value=True),  # nothing reads them there either
    "--resume": Spelling(instead="`milabench resume` continues a run"),
    "--github-issues": _IGNORED,
}
_PUBLISHED: Final = {
    name: Spelling(instead="`milabench export` and `milabench report --site` publish results")
    for name in ("--publish", "--dashboard-url")
}
_INSTALL: Final = {
    **_SHARED,
    "--shorttrace": _IGNORED,
    "--variant": Spelling(("--override", "*.install_variant={}"), has_value=True),
}
_PREPARE: Final = {**_SHARED, "--shortrace": _IGNORED, "--shorttrace": _IGNORED}
_RUN: Final = {
    **_SHARED,
    **_PUBLISHED,
    "--dash": Spelling(("--display", "{}"), has_value=True),
    "--noterm": Spelling(("--display", "none")),
    "--fulltrace": _IGNORED,
    "--report": _IGNORED,
    "--plugin": Spelling(instead="all of a run is recorded, --display chooses what is shown"),
}
OPTIONS: Final[Mapping[str, Mapping[str, Spelling]]] = {
    "install": _INSTALL,
    "prepare": _PREPARE,
    "run": _RUN,
    "plan": {
        **_INSTALL,
        **_PREPARE,
        **_RUN,
        # What is shown while it runs, and what is checked of it, is no part of a plan.
        "--dash": Spelling(has_value=True),
        "--noterm": _IGNORED,
        "--validations": Spelling(has_value=True),
    },
    "report": {
        **_PUBLISHED,
        "--runs": _IGNORED,  # what follows are runs
        "--latest": Spelling(("--run", "latest")),
        "--html": Spelling(("--format", "html", "--output", "{}"), has_value=True),
        "--config": Spelling(has_value=True),  # each run has its suite
        "--compare": Spelling(instead="`milabench compare BEFORE AFTER` compares runs"),
        "--compare-gpus": Spelling(instead="`milabench outliers` compares devices"),
        "--price": Spelling(instead="give `costs: {price: ...}` in the system file"),
        "--filter-failures": _IGNORED,  # what failed counts as such and no number hides it
        "--consolidate": Spelling(instead="name all runs: `milabench report RUN RUN`"),
    },
    "compare": {
        "--last": Spelling(instead="`milabench compare latest~1 latest` compares the last two runs"),
    },
}
_DISPLAYS: Final = {"long": "auto", "short": "auto", "no": "plain"}

VERBS: Final[Mapping[str, str]] = {
    "archive": "capsule",
    "container": "image",
    "env": "config explain",
    "machine": "doctor",
    "matrix": "config show",
    "multirun": "run",
    "pip": "dev",
    "pr": "report --format markdown",
    "prepare-run": "prepare && milabench run",
    "publish": "export",
    "resolve": "config show",
    "schedule": "run --submit",
    "sharedsetup": "capsule",
    "shell": "dev",
    "sqlsetup": "db",
    "summary": "report --json",
    "system": "nodes",
}
"""Commands of milabench 1.3 by our equivalent."""
_GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "analysis": {"compare": "compare", "generate": "report", "replay": "replay"},
    "data": {"gated": "gated"},
    "slurm": {},
    "tools": {"ci": "list --json", "new": "new", "pin": "pin"},
}
"""The groups in which it has its commands, with those that are not in `VERBS`."""


def typed_here(words: Sequence[str]) -> str:
    """Return a sentence with our equivalent of a milabench 1.3 command. Empty for words that it does not know."""
    name, *rest = words
    if name not in _GROUPS:
        return f"`milabench {VERBS[name]}` does here what it does in milabench 1.3" if name in VERBS else ""
    known = _GROUPS[name]
    if not rest or rest[0].startswith("-"):
        return (
            "It is a group of milabench 1.3, whose commands stand by themselves here: `milabench --help-all` lists them"
        )
    here = known.get(rest[0]) or VERBS.get(rest[0])
    if here is None:
        return f"Nothing here does what `{name} {rest[0]}` does in milabench 1.3. `milabench --help-all` lists all commands"
    return f"`milabench {here}` does here what `{name} {rest[0]}` does in milabench 1.3"


def as_typed_here(verb: str, words: Sequence[str]) -> list[str]:
    """Return the words behind a verb with the options of milabench 1.3 as ours. Raises UsageError for an option that we lack."""
    known = OPTIONS.get(verb)
    if known is None:
        return list(words)
    typed: list[str] = []
    rest = list(words)
    is_silent = "--noterm" in words
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*typed, word, *rest]
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")  # as it writes options of several words
            word = f"{name}{equals}{value}"
        spelling = known.get(name)
        if spelling is None:
            typed.append(word)
            continue
        if spelling.instead:
            raise UsageError(f"{name} is an option of milabench 1.3. Here {spelling.instead}")
        if spelling.has_value and not equals:
            if not rest:
                raise UsageError(f"{name} needs a value")
            value = rest.pop(0)
        if name == "--dash":
            if is_silent:
                continue
            value = _DISPLAYS.get(value, value)
        typed += [part.replace("{}", value) for part in spelling.words]
    return typed
