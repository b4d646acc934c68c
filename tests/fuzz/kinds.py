"""The kinds of input: what is drawn, and which commands read it.

A strategy makes an `Input`: valid input with changes of its values (mutators.py), drawn from a schema of the program, or with
changes of its text. A key that a schema gets is drawn from then on.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from milabench.acceptance.criteria import criteria_schema
from milabench.archives.bundle import NAME, ArchiveMember, Manifest, from_bytes
from milabench.capsule.contents import CapsuleEntry, CapsuleManifest, Content, entry_of
from milabench.errors import RecordError
from milabench.procurement.offer import offer_schema
from milabench.procurement.tender import tender_schema
from milabench.report.registry import FORMATS
from milabench.suite_check.schema_docs import json_schema
from tests.fuzz import valid
from tests.fuzz.harness import WIRE, Input, Special
from tests.fuzz.mutators import Draw, as_json, as_yaml, mutated, packed, scrambled, texts, values
from tests.fuzz.worker import OPS
from tests.hostile_agent import Message

RUN = "in/run"
SUITE, SYSTEM, CRITERIA = "in/suite.yaml", "in/system.yaml", "in/criteria.yaml"
SPECIALS = (
    Special("link", "/dev/zero"),
    Special("link", "/dev/full"),
    Special("link", "nowhere"),
    Special("link", "."),
    Special("pipe"),
    Special("folder"),
)
Command = tuple[str, ...]


def _some(draw: Draw[Any], always: Sequence[Command], others: Sequence[Command], most: int = 2) -> tuple[Command, ...]:
    """Return a command that is always run, and some of the others."""
    first = draw(st.sampled_from(list(always)))
    return (first, *draw(st.lists(st.sampled_from(list(others)), max_size=most, unique=True))) if others else (first,)


def _in_formats(*command: str) -> list[Command]:
    return [(*command, "--format", name) for name in FORMATS]


def _argument(text: str) -> str:
    """Return the text as Python has it when it is an argument: not UTF-8 where it cannot be, and without NUL."""
    return text.replace("\0", "").encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


def _no_file(draw: Draw[Any], made: Input) -> Input:
    """Return the input, of which at times a file is a device, a pipe, a folder or a link, or very large."""
    if not made.files or draw(st.integers(0, 39)):
        return made
    name = draw(st.sampled_from(sorted(made.files)))
    content = made.files[name]
    others: list[bytes | Special] = [*SPECIALS]
    if isinstance(content, bytes):
        others += [b"x" * 20_000_000, b"[" * 5_000_000, content * (1 + 10_000_000 // (len(content) + 1)), _bomb()]
    return replace(made, files={**made.files, name: draw(st.sampled_from(others))})


@functools.cache
def _bomb() -> bytes:
    return gzip.compress(bytes(10**9), 1)


# --- values from a schema ------------------------------------------------------------------------------------------


def from_schema(draw: Draw[Any], schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a value that a schema allows; one in twenty of its parts is any value."""
    if draw(st.integers(0, 19)) == 0:
        return draw(values)
    if "$ref" in schema:
        return from_schema(draw, definitions[schema["$ref"].rpartition("/")[2]], definitions, depth)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return from_schema(draw, draw(st.sampled_from(schema[choice])), definitions, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) else kind:
        case "object" if depth < 6:
            return _object(draw, schema, definitions, depth)
        case "array" if depth < 6:
            items = schema.get("items", {})
            return [from_schema(draw, items, definitions, depth + 1) for _ in range(draw(st.integers(0, 3)))]
        case "boolean":
            return draw(st.booleans())
        case "integer":
            return draw(st.integers(-1, 9))
        case "number":
            return draw(st.sampled_from((0, 0.5, 1, 2.5, 1e9, -1)))
        case "string":
            return draw(st.one_of(st.sampled_from(("a", "b", "one", "_t", "1 GiB", "3 %", "1.2 x reference")), texts))
    return draw(values)


def _object(draw: Draw[Any], schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> Any:
    properties = schema.get("properties", {})
    keys = draw(st.lists(st.sampled_from(sorted(properties)), max_size=5, unique=True)) if properties else []
    keys += [key for key in schema.get("required", ()) if key not in keys]
    made = {key: from_schema(draw, properties.get(key, {}), definitions, depth + 1) for key in keys}
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        for name in draw(st.lists(st.sampled_from(("_t", "_u", "one", "two", "*", "bert")), max_size=3, unique=True)):
            made[name] = from_schema(draw, more, definitions, depth + 1)
    return made


def _document(draw: Draw[Any], seeds: Sequence[Any], schema: Mapping[str, Any]) -> bytes:
    """Return a document: a valid one with changes or one from the schema, in a style of YAML, and maybe with changed text."""
    if draw(st.integers(0, 3)) == 0:
        value = from_schema(draw, schema, schema.get("$defs", {}))
    else:
        value = mutated(draw, draw(st.sampled_from(list(seeds))), 2)
    content = as_yaml(value, flow=draw(st.sampled_from((True, True, False, None))))
    return scrambled(draw, content) if draw(st.integers(0, 7)) == 0 else content


# --- suites, systems, criteria, overrides --------------------------------------------------------------------------

_PLANS = [
    ("plan", "run", "--config", SUITE, "--system", "fixed/system.yaml"),
    ("plan", "run", "--config", SUITE, "--json"),
    ("plan", "install", "--config", SUITE, "--use-current-env"),
    ("plan", "prepare", "--config", SUITE),
]
_READERS = [("config", "show", "--config", SUITE), ("list", "--config", SUITE), ("list", "--config", SUITE, "--json")]


def suites(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Suite files."""
    schema = json_schema()

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        if draw(st.integers(0, 3)) == 0:
            content = scrambled(draw, draw(st.sampled_from(fixed.suite_texts)))
        else:
            content = _document(draw, fixed.suites, schema)
        files = {"suite.yaml": content, "base.yaml": valid.BASE.encode()}
        return Input("suite", files, _some(draw, [("config", "check", SUITE)], [*_READERS, *_PLANS]))

    return draw_input()


def systems(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """System files."""
    schema = json_schema()
    system = {**schema, "properties": {key: schema["properties"][key] for key in ("system", "multirun", "include")}}
    del system["additionalProperties"]
    seeds = [value for value in fixed.suites if "system" in value]
    plan = ("plan", "run", "--config", "fixed/suite.yaml", "--system", SYSTEM)
    others = [(*plan, "--json"), ("config", "show", "--config", "fixed/suite.yaml", "--system", SYSTEM)]

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        files = {"system.yaml": _document(draw, seeds, system)}
        return Input("system", files, _some(draw, [("config", "check", SYSTEM), plan], others))

    return draw_input()


def overrides(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Values, keys and selections on the command line."""
    keys = (
        "one.argv.--lr",
        "one",
        "*.weight",
        "system.gpu",
        "system.options.a.b",
        "_t.tags",
        "two.argv",
        "web.server",
        "x",
        "",
    )
    words = st.one_of(
        texts, st.sampled_from(("one", "web", "fine", "and", "or", "not", "(", ")", "*", "o?e", ",", "'a b'"))
    )

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        key = draw(st.one_of(st.sampled_from(keys), texts))
        value = as_yaml(draw(values), flow=True).decode("utf-8", "replace")
        override = f"{key}{draw(st.sampled_from(('=', '=', '=', '', '+=', '==')))}{value}"[:100_000]
        select = " ".join(draw(st.lists(words, max_size=6)))[:100_000]
        suite = ("--config", "fixed/suite.yaml")
        commands = [
            ("config", "show", *suite, f"--override={override}"),
            ("plan", "run", *suite, f"--override={override}", f"--select={select}"),
            ("list", *suite, f"--select={select}", f"--exclude={key}"),
            ("config", "explain", *suite, "--", f"{draw(st.sampled_from(keys))}.{key}"),
        ]
        commands = [tuple(map(_argument, command)) for command in commands]
        return Input("override", {}, _some(draw, commands, ()))

    return draw_input()


def criteria(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Acceptance criteria, weights and costs."""
    schema = criteria_schema()
    seeds = [valid._plain(valid.CRITERIA)]
    tables = [valid._plain(text) for text in (valid.COSTS, valid.WEIGHTS)]
    accept = _in_formats("accept", "fixed/good", "--criteria", CRITERIA, "--reference", "fixed/other")
    for_tables = [
        ("compare", "fixed/good", "fixed/other", "--costs", "in/table.yaml"),
        ("compare", "fixed/good", "fixed/other", "--weights", "in/table.yaml"),
        ("report", "fixed/good", "--weights", "in/table.yaml"),
    ]

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        if draw(st.integers(0, 2)) == 0:
            return Input("criteria", {"table.yaml": _document(draw, tables, {})}, _some(draw, for_tables, ()))
        return Input("criteria", {"criteria.yaml": _document(draw, seeds, schema)}, _some(draw, accept, ()))

    return draw_input()


_TENDER = "in/procurement.yaml"
_BY_TENDER = [
    *_in_formats("compare", "fixed/good", "in/offer.yaml", "--tender", _TENDER)[:6],
    ("compare", "fixed/other", "--tender", _TENDER, "--metric", "index", "--json"),
    ("tender", "explain", _TENDER, "--of", "in/offer.yaml"),
    ("tender", "explain", _TENDER, "--json"),
    ("budget", _TENDER, "in/offer.yaml", "--power", "90 kW"),
    ("budget", _TENDER, "fixed/good", "in/offer.yaml", "--json"),
    ("report", "fixed/good", "--tender", _TENDER),
    ("offer", "create", "--tender", _TENDER, "--offer", "in/offer.yaml", "-o", "output"),
]
_CHECKS = [("tender", "check", _TENDER, "in/offer.yaml"), ("compare", "in/offer.yaml", "--tender", _TENDER)]


def tenders(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Tenders, beside a valid offer."""
    seeds, schema = [valid._plain(valid.TENDER)], tender_schema()

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        files = {"procurement.yaml": _document(draw, seeds, schema), "offer.yaml": valid.OFFER.encode()}
        return Input("tender", files, _some(draw, _CHECKS, _BY_TENDER))

    return draw_input()


def offers(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Offers, beside a valid tender."""
    seeds, schema = [valid._plain(text) for text in (valid.OFFER, valid.PARTS)], offer_schema()

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        files = {"offer.yaml": _document(draw, seeds, schema), "procurement.yaml": valid.TENDER.encode()}
        return Input("offer", files, _some(draw, _CHECKS, _BY_TENDER))

    return draw_input()


# --- task files ----------------------------------------------------------------------------------------------------


def task_files(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Task files (.cfg), and the patterns in them on a log."""
    suite = (
        "one: {driver: tasks.cfg, task: one}\ntwo: {driver: tasks.cfg, max_duration: 9, metrics: {cost: {units: s}}}\n"
    )
    reads = [
        ("config", "check", SUITE),
        ("config", "show", "--config", SUITE),
        ("plan", "run", "--config", SUITE, "--system", "fixed/system.yaml"),
    ]
    # Its own command, in place of the file's.
    driven = ("driver", "--config", "in/tasks.cfg", "--metrics-policy", "one", "--result", "output")
    driven += ("--command-to-execute", "cat fixed/train.log")
    patterns = st.sampled_from(
        (r"(\d+)", r"(a+)+$", r"(?P<x>.)", r"(", r"[", r"\8", r"(?=", r"x{9999999999}", "", r"(\d*)*e")
    )

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        text = valid.TASKS
        if draw(st.booleans()):
            text = text.replace(r"(\d+\.\d+|\d+)", draw(st.one_of(patterns, texts)), draw(st.integers(1, 3)))
        content = text.encode("utf-8", "surrogatepass")
        content = scrambled(draw, content) if draw(st.integers(0, 4)) else content
        files = {"tasks.cfg": content, "suite.yaml": suite.encode()}
        runs = draw(st.integers(0, 39)) == 0
        return Input("tasks", files, (driven,) if runs else _some(draw, reads[:1], reads[1:], 1))

    return draw_input()


# --- runs, reports, archives ---------------------------------------------------------------------------------------

_OF_A_RUN = [
    *_in_formats("report", RUN),
    *_in_formats("compare", RUN, "fixed/good"),
    *_in_formats("compare", "fixed/good", RUN, "--why"),
    ("compare", "fixed/good", RUN, "--per", "instance", "--across"),
    ("report", "fixed/good", "--reference", RUN),
    ("report", RUN, "--score", "compat"),
    ("report", RUN, "fixed/good"),
    ("accept", RUN, "--criteria", "fixed/criteria.yaml", "--reference", "fixed/other"),
    ("accept", "fixed/good", "--criteria", "fixed/criteria.yaml", "--reference", RUN, "--json"),
    ("bundle", RUN, "-o", "output"),
    ("status", RUN),
    ("status", RUN, "--json"),
    ("logs", "bert.D0", "--run", RUN),
    ("replay", RUN, "--speed", "0", "--verbose", "--display", "plain"),
    ("export", RUN, "-o", "output"),
    ("export", RUN, "--format", "prometheus"),
    ("export", RUN, "--format", "otlp-json"),
    ("db", "add", RUN),
    ("baseline", RUN, "fixed/good", "-o", "output"),
    ("outliers", RUN, "--baseline", "fixed/baseline.json"),
    ("plan", "run", "--config", "fixed/suite.yaml", "--diff", "in/run/manifest.json"),
    ("runs", "--base", "in/base", "--all"),
    ("history", "bert", "--base", "in/base"),
]


def runs(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Run directories: manifest, journal, records, summary, output."""

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        files: dict[str, bytes | Special] = dict(draw(st.sampled_from(fixed.runs)))
        if draw(st.booleans()):
            # Else it is believed, and what is wrong with the records is not seen.
            files.pop("summary.json", None)
        for _ in range(draw(st.integers(1, 2))):
            name = draw(st.sampled_from(sorted(files)))
            _change_file(draw, files, name)
        commands = _some(draw, _in_formats("report", RUN), _OF_A_RUN)
        root = "base/runs/x" if any("in/base" in command for command in commands) else "run"
        made = {f"run/{name}": content for name, content in files.items()}
        if root != "run":
            made |= {f"{root}/{name}": content for name, content in files.items()}
        return Input("run", made, commands)

    return draw_input()


def _change_file(draw: Draw[Any], files: dict[str, bytes | Special], name: str) -> None:
    """Change a file of a run: a value in it, its text, what it is, its name."""
    content = files[name]
    change = draw(st.sampled_from(("value", "value", "value", "value", "text", "text", "special", "gone", "name")))
    if not isinstance(content, bytes) or change == "gone":
        del files[name]
        files.setdefault("manifest.json", b"{}")
    elif change == "special":
        files[name] = draw(st.sampled_from(SPECIALS))
    elif change == "name":
        files[draw(st.sampled_from(("x.data", "bert.D0.1.data", "bert.D0.data.gz", "bert.D0.stdout", "a b.data")))] = (
            content
        )
    elif change == "value" and name.endswith((".json", ".jsonl", ".data")):
        files[name] = _with_other_value(draw, content, is_lines=not name.endswith(".json"))
    else:
        files[name] = scrambled(draw, content)


def _with_other_value(draw: Draw[Any], content: bytes, *, is_lines: bool) -> bytes:
    """Return JSON, or a line of it, with a changed value; changed text where it is no JSON any more."""
    lines = content.splitlines() if is_lines else [content]
    at = draw(st.integers(0, len(lines) - 1)) if lines else 0
    try:
        lines[at] = as_json(mutated(draw, json.loads(lines[at])))
    except (ValueError, RecursionError, IndexError):
        return scrambled(draw, content)
    return b"\n".join(lines) + b"\n"


def reports(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Reports and baselines as JSON, read in place of runs."""
    others = [
        *_in_formats("compare", "in/report.json", "fixed/good"),
        *_in_formats("compare", "fixed/good", "in/report.json"),
        *_in_formats("report", "fixed/good", "--reference", "in/report.json"),
        ("accept", "fixed/good", "--criteria", "fixed/criteria.yaml", "--reference", "in/report.json"),
    ]

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        is_baseline = draw(st.integers(0, 4)) == 0
        seed = fixed.baseline if is_baseline else draw(st.sampled_from(fixed.reports))
        content = as_json(mutated(draw, seed))
        content = scrambled(draw, content) if draw(st.integers(0, 4)) == 0 else content
        if is_baseline:
            return Input(
                "report", {"baseline.json": content}, (("outliers", "fixed/good", "--baseline", "in/baseline.json"),)
            )
        return Input("report", {"report.json": content}, _some(draw, others, others, 1))

    return draw_input()


def archives(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Bundles: their records, their manifest, the archive around them; half of them with hashes that are right again."""

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        entries: dict[str, bytes | Special] = dict(draw(st.sampled_from(fixed.archives)))
        for _ in range(draw(st.integers(0, 2))):
            name = draw(st.sampled_from(sorted(entries)))
            if draw(st.integers(0, 5)) == 0:
                del entries[name]
            else:
                _change_file(draw, entries, name)
        contents = {name: content for name, content in entries.items() if isinstance(content, bytes)}
        if draw(st.booleans()):
            contents = _sealed(contents)
        command = draw(
            st.sampled_from((("verify", "in/a.zip"), ("verify", "in/a.zip", "--json"), ("import", "in/a.zip")))
        )
        return Input("archive", {"a.zip": packed(draw, contents)}, (command,))

    return draw_input()


def _sealed(entries: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the entries with a manifest that says of each what it is."""
    entries = dict(entries)
    listed = entries.pop(NAME, b"")
    try:
        manifest, _ = from_bytes(listed, "")
    except RecordError:
        return {**entries, NAME: listed}
    members = tuple(
        ArchiveMember(path=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in entries.items()
    )
    return {**entries, NAME: Manifest(version="2", runs=manifest.runs, files=members).to_bytes()}


def capsules(_: valid.Fixed) -> st.SearchStrategy[Input]:
    """Capsules: values of their manifest, which is framed as it should be, and their bytes."""
    contents = {"install.sh": b"#!/bin/sh\n", "suite/a.yaml": b"a: {}\n", "data/a/x": bytes(700)}
    manifest = CapsuleManifest(
        version="1",
        suite="suite/a.yaml",
        benchmarks=("a",),
        platform="linux-x86_64",
        glibc="2.17",
        benchmate="0" * 64,
        files=(
            *(entry_of(Content(path=path, content=content)) for path, content in contents.items()),
            CapsuleEntry(path="suite/link", link="a.yaml"),
        ),
    )
    members = b"".join(entry.header + contents.get(entry.path, b"") + entry.padding for entry in manifest.files)

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        listed = manifest.content if draw(st.booleans()) else as_json(mutated(draw, json.loads(manifest.content), 2))
        own = CapsuleEntry(path="capsule.json", size=len(listed))
        content = own.header + listed + own.padding + members + bytes(1024)
        if listed == manifest.content:
            content = scrambled(draw, content)
        verbs = (("verify",), ("show",), ("show", "--json"))
        return Input("capsule", {"a": content}, (("capsule", *draw(st.sampled_from(verbs)), "in/a"),))

    return draw_input()


def imports(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Results of other programs: runs of milabench 1.3, also zipped, and the JSON of nccl-tests."""

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        files: dict[str, bytes | Special] = dict(draw(st.sampled_from(fixed.imports)))
        for _ in range(draw(st.integers(1, 2))):
            _change_file(draw, files, draw(st.sampled_from(sorted(files))))
        if draw(st.integers(0, 4)) == 0:
            contents = {name: content for name, content in files.items() if isinstance(content, bytes)}
            return Input("import", {"a.zip": packed(draw, contents)}, (("import", "in/a.zip"),))
        if files.pop("manifest.json", None) is not None:
            return Input("import", files, (("import", "in", "--run-name", _argument(draw(texts))),))
        return Input("import", files, (("import", "in"), ("report",), ("report", "--score", "compat")))

    return draw_input()


# --- operators -----------------------------------------------------------------------------------------------------


def operators(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Configurations of operators: whole ones, and one operator of them."""
    each = [{name: value} for configuration in fixed.operators for name, value in configuration.items()]

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        content = as_json(mutated(draw, draw(st.sampled_from([*fixed.operators, *each])), 2))
        content = scrambled(draw, content) if draw(st.integers(0, 4)) == 0 else content
        return Input("operators", {"ops.json": content}, ((OPS, "-c", "in/ops.json", "--expand"),))

    return draw_input()


def traces(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Execution traces, plain, compressed and in an archive; records of operators."""
    record = {
        "op_name": "torch.mm",
        "id": "0|0|0",
        "config": {"input": {"count": 3, "args": []}},
        "metric": {"time": [1.0]},
    }

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        content = as_json(mutated(draw, draw(st.sampled_from(fixed.traces)), 2))
        content = scrambled(draw, content) if draw(st.integers(0, 4)) == 0 else content
        name = draw(st.sampled_from(("trace.json", "trace.json", "trace.json.gz", "trace.tar.gz")))
        if name.endswith(".json.gz"):
            content = gzip.compress(content, 1)
        elif name.endswith(".tar.gz"):
            content = valid.tar(draw(st.sampled_from(("et.json", "../../evil"))), content)
        if name != "trace.json" and draw(st.integers(0, 3)) == 0:
            content = scrambled(draw, content, 1)
        commands = [
            (OPS, "trace", "summary", f"in/{name}"),
            (OPS, "trace", "summary", f"in/{name}", "--json"),
            (OPS, "trace", "to-config", f"in/{name}"),
            (OPS, "trace", "replay", f"in/{name}"),
            (OPS, "trace", "predict", "in/records.json", "--trace", f"in/{name}"),
        ]
        files = {name: content, "records.json": as_json(mutated(draw, record)) + b"\n"}
        return Input("trace", files, _some(draw, commands, commands, 1))

    return draw_input()


# --- what comes over the wire ----------------------------------------------------------------------------------------


def nodes(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Messages of the real agent, one of which a proxy changes."""

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        at = draw(st.integers(0, len(fixed.messages) - 1))
        message = fixed.messages[at]
        nth = sum(other.kind == message.kind for other in fixed.messages[:at])
        files: dict[str, bytes | Special] = {"where.json": json.dumps({"kind": message.kind, "nth": nth}).encode()}
        return Input("node", {**files, "bytes": _changed_message(draw, message)}, ((WIRE, "node"),))

    return draw_input()


def _changed_message(draw: Draw[Any], message: Message) -> bytes:
    """Return a message with other values in its header or payload, other text, or after itself once more."""
    header, payload = message.header, message.payload
    match draw(st.sampled_from(("header", "payload", "payload", "payload", "text", "twice"))):
        case "header":
            header = _with_other_value(draw, header, is_lines=True)
        case "payload" if payload:
            payload = _with_other_value(draw, payload, is_lines=True)
            header = as_json(json.loads(header) | {"n": len(payload)}) + b"\n"
        case "twice":
            return message.whole + message.whole
        case _:
            return scrambled(draw, message.whole)
    return header + payload


def servers(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Answers of a model server, at times without an end."""

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        head, *pieces = draw(st.sampled_from(fixed.answers))
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(pieces) - 1))
            mark, _, value = pieces[at].rpartition(b"data: ")
            try:
                pieces[at] = mark + b"data: " + as_json(mutated(draw, json.loads(value))) + b"\n\n"
            except (ValueError, RecursionError):  # a change before made it deeper than Python reads
                pieces[at] = scrambled(draw, pieces[at])
        again = draw(st.sampled_from(pieces))
        framing = draw(st.sampled_from(("close", "length", "chunks")))
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) if framing == "chunks" else piece for piece in pieces)
        if framing == "length":
            head += b"Content-Length: %d\r\n" % draw(st.sampled_from((len(body), len(body), 10**12, len(body) // 2)))
        elif framing == "chunks":
            head += b"Transfer-Encoding: chunked\r\n"
            again, body = (
                b"%x\r\n%b\r\n" % (len(again), again),
                body + draw(st.sampled_from((b"0\r\n\r\n", b"ffffffffff\r\n"))),
            )
        files: dict[str, bytes | Special] = {"answer": head + b"\r\n" + body}
        if draw(st.integers(0, 4)) == 0:
            files["answer"] = scrambled(draw, head + b"\r\n" + body)
        if draw(st.integers(0, 5)) == 0:
            files["endless"] = draw(
                st.sampled_from((again, again, b"a: b\r\n", b"HTTP/1.1 100 Go\r\n\r\n", b"[", b"\n"))
            )
        elif draw(st.integers(0, 9)) == 0:
            files["stays"] = b""
        return Input("server", files, ((WIRE, "server"),))

    return draw_input()


def schedulers(fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """What Slurm's commands print."""

    @st.composite
    def draw_input(draw: Draw[Any]) -> Input:
        files: dict[str, bytes | Special] = dict(fixed.cluster)
        for _ in range(draw(st.integers(1, 2))):
            name = draw(st.sampled_from(("squeue", "squeue", "squeue", *sorted(files))))
            content = files[name]
            assert isinstance(content, bytes)
            files[name] = scrambled(draw, content)
        return Input("scheduler", files, ((WIRE, "scheduler"),))

    return draw_input()


@st.composite
def _drawn(draw: Draw[Any], strategy: st.SearchStrategy[Input]) -> Input:
    return _no_file(draw, draw(strategy))


def strategy(kind: str, fixed: valid.Fixed) -> st.SearchStrategy[Input]:
    """Return what draws inputs of a kind."""
    return _drawn(KINDS[kind](fixed))


KINDS = {
    "suite": suites,
    "system": systems,
    "override": overrides,
    "criteria": criteria,
    "tasks": task_files,
    "run": runs,
    "report": reports,
    "archive": archives,
    "capsule": capsules,
    "import": imports,
    "operators": operators,
    "trace": traces,
    "tender": tenders,
    "offer": offers,
    "node": nodes,
    "server": servers,
    "scheduler": schedulers,
}
"""What makes the strategy of each kind from valid input."""
# Runs have the most files, readers and formats; two of five inputs come over the wire.
SHARES = {"suite": 3, "system": 2, "run": 5, "report": 2, "node": 2, "server": 8, "scheduler": 5}
