"""Changes made to valid input: of its values, of its text, of the archive around it.

Each is a function of hypothesis's `draw`, so that a seed gives the same inputs everywhere.
"""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import yaml
from hypothesis import strategies as st

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[T]], T]

# Text that stands for itself once the value around it is written: what no value of Python would be written as.
RAW: Mapping[str, str] = {
    "@digits@": "9" * 5000,
    "@exponent@": "1e999",
    "@nan@": "NaN",
    "@minus@": "-0.0",
    "@nested@": "[" * 3000 + "]" * 3000,
    "@open@": "[" * 50_000,
    "@twice@": '{"a": 1, "a": 2}',
    "@surrogate@": '"\\ud800"',
    "@nul@": '"\\u0000"',
}
RAW_YAML: Mapping[str, str] = {
    "@tag@": "!!python/object/apply:os.system [id]",
    "@own@": "!delete",
    "@anchor@": "&x [*x]",
    "@alias@": "*nowhere",
    "@bomb@": "[&a [x, x, x, x, x, x, x, x, x], &b [*a, *a, *a, *a, *a, *a, *a, *a, *a], &c [*b, *b, *b, *b, *b, *b, *b, *b], "
    "&d [*c, *c, *c, *c, *c, *c, *c, *c], &e [*d, *d, *d, *d, *d, *d, *d], [*e, *e, *e, *e, *e, *e, *e]]",
    "@merge@": "{<<: [1, 2]}",
    "@date@": "2026-02-30",
    "@time@": "12:60:60",
    "@octal@": "0o9",
    "@hex@": "0xFFFFFFFFFFFFFFFFFFFFFFFF",
    "@binary@": "!!binary /w==",
    "@set@": "!!set {a, b}",
    "@complex@": "? [a, b]\n: c",
    "@block@": "|2\n x",
}
HOSTILE_TEXT = (
    "",
    " ",
    "\n",
    "a\nb",
    "\t=1+1",
    "=cmd|' /C calc'!A0",
    "\x1b]0;title\x07\x1b[2J",
    "\x9b31m",
    "\u202eevil\u2066",
    "\x00",
    "\ud800",
    "\ufeff",
    "é" * 3,
    "x" * 300,
    "x" * 200_000,
    "a|b`c*d_[e](f)",
    "<script>alert(1)</script>]]>",
    "'\"\\",
    "../../../etc/passwd",
    "/dev/zero",
    "/dev/stdin",
    "~nobody/x",
    "-rf",
    "--help",
    "*",
    ".",
    "..",
    "a/b",
    "NaN",
    "null",
    "1e400",
    "-1",
    "0",
    "true",
    "{",
    "}",
    "{arch",
    "{0}",
    "{a.b[c]}",
    "{nodes[9][ip]}",
    "{__class__.__mro__}",
    "${a}",
    "${..x}",
    "${oc.env:HOME}",
    "${oc.env:NOT_SET}",
    "${",
    "auto({n_worker}, 8)",
    "auto_batch(8)",
    "auto_batch(",
    "expr(9**9**9)",
    "expr(" + "(" * 500 + ")" * 500 + ")",
    "expr(1/0)",
    "expr('a' * 10**10)",
    "(",
    "[a",
    "(?P<a>x)(?P<a>y)",
    "(?i:a)(?#",
    "\\",
    "x{99999999}",
    "2026-13-45T99:99:99",
    "1 GiB",
    "1e999 GiB",
    "-5 MiB",
    "10 parsecs",
    "@port",
    "@sink",
    "HF_TOKEN=hf_secretsecret",
    *RAW,
)
HOSTILE_NUMBERS = (
    0,
    -1,
    1,
    2,
    0.5,
    -0.0,
    1e-320,
    1e308,
    -1e308,
    2**31,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    10**30,
    10**400,
)
HOSTILE_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [None],
    [[]],
    {"": ""},
    {"a": {"b": {"c": None}}},
    [1, "a", None, {}],
    [0] * 2000,
    {f"k{number}": number for number in range(500)},
)

texts = st.one_of(st.sampled_from(HOSTILE_TEXT), st.text(max_size=20))
numbers = st.one_of(
    st.sampled_from(HOSTILE_NUMBERS), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False)
)
values = st.one_of(
    st.sampled_from(HOSTILE_VALUES).map(copy.deepcopy),  # it is changed, too
    texts,
    numbers,
    st.recursive(
        st.one_of(st.none(), st.booleans(), texts, numbers),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
        max_leaves=6,
    ),
)


MOST = 2**53
"""Whole numbers beyond it have no float of their own, some none at all."""


def places(value: Any, limit: int = 5000) -> list[tuple[Any, Any]]:
    """Return where a value can be changed: (container, key or index), the outermost first."""
    found: list[tuple[Any, Any]] = []
    pending = [value]
    while pending and len(found) < limit:
        container = pending.pop(0)
        keys: Sequence[Any] = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list) and container[key]:
                pending.append(container[key])
    return found


def mutated(draw: Draw[Any], seed: Any, most: int = 3) -> Any:
    """Return the value with one to `most` changes."""
    # In a list, so that the whole value has a place too.
    holder = [copy.deepcopy(seed)]
    for _ in range(draw(st.integers(1, most))):
        found = places(holder)
        container, key = found[draw(st.integers(0, len(found) - 1))]
        change = draw(st.sampled_from(CHANGES))
        change(draw, found, container, key)
    return holder[0]


def _replace(draw: Draw[Any], found: list[tuple[Any, Any]], container: Any, key: Any) -> None:
    container[key] = draw(values)


def _exchange(draw: Draw[Any], found: list[tuple[Any, Any]], container: Any, key: Any) -> None:
    """Put a value from elsewhere there: right for another key."""
    other, place = found[draw(st.integers(0, len(found) - 1))]
    container[key] = copy.deepcopy(other[place])


def _delete(draw: Draw[Any], found: list[tuple[Any, Any]], container: Any, key: Any) -> None:
    if container is not found[0][0]:
        del container[key]


def _rename(draw: Draw[Any], found: list[tuple[Any, Any]], container: Any, key: Any) -> None:
    names = [name for _, name in found if isinstance(name, str)]
    if isinstance(container, dict):
        name = draw(st.one_of(st.sampled_from(names), texts) if names else texts)
        container[name] = container.pop(key)


def _insert(draw: Draw[Any], found: list[tuple[Any, Any]], container: Any, key: Any) -> None:
    if isinstance(container, dict):
        container[draw(texts)] = draw(values)
    elif container is not found[0][0]:
        container.insert(key, draw(values))


def _repeat(draw: Draw[Any], found: list[tuple[Any, Any]], container: Any, key: Any) -> None:
    if isinstance(container, list) and container is not found[0][0]:
        container[key:key] = [copy.deepcopy(container[key])] * draw(st.sampled_from((1, 2, 50)))
    else:
        container[key] = [container[key], copy.deepcopy(container[key])]


def _wrap(draw: Draw[Any], found: list[tuple[Any, Any]], container: Any, key: Any) -> None:
    value = container[key]
    text = (
        f"{value:x}" if isinstance(value, int) and abs(value) > MOST else str(value)
    )  # of so many digits Python writes no others
    container[key] = draw(st.sampled_from(([value], {"a": value}, text[:10_000])))


def _nudge(draw: Draw[Any], found: list[tuple[Any, Any]], container: Any, key: Any) -> None:
    """Change a value a little: it stays of its type."""
    match container[key]:
        case bool(value):
            container[key] = not value
        case int(value) if abs(value) > MOST:
            container[key] = draw(st.sampled_from((-value, value * 10**6, value + 1, value // 3, 0)))
        case int(value) | float(value):
            container[key] = draw(st.sampled_from((-value, value * 1e6, value + 1, value / 3, 0 * value)))
        case str(value):
            at = draw(st.integers(0, len(value)))
            container[key] = value[:at] + draw(texts) + value[at:]
        case list(value):
            value.reverse()
        case dict(value) if value:
            value.pop(next(iter(value)))


Change = Callable[[Draw[Any], list[tuple[Any, Any]], Any, Any], None]
CHANGES: tuple[Change, ...] = (
    _replace,
    _replace,
    _replace,
    _exchange,
    _delete,
    _rename,
    _insert,
    _repeat,
    _wrap,
    _nudge,
    _nudge,
)


def as_json(value: Any, indent: int | None = None) -> bytes:
    """Return the value as JSON, with what no value stands for put in as it is."""
    text = json.dumps(value, indent=indent)
    return _with_raw(text, RAW).encode()


def as_yaml(value: Any, flow: bool | None = None) -> bytes:
    """Return the value as YAML; in the flow style with the same, and with what only YAML has."""
    if flow:
        return _with_raw(json.dumps(value), {**RAW, **RAW_YAML}).encode()
    try:
        return yaml.safe_dump(value, allow_unicode=True, sort_keys=False, default_flow_style=flow).encode("utf-8")
    except (yaml.YAMLError, UnicodeEncodeError, RecursionError):  # of a value that YAML does not have
        return json.dumps(value).encode()


def _with_raw(text: str, raw: Mapping[str, str]) -> str:
    for name, instead in raw.items():
        if name in text:
            text = text.replace(f'"{name}"', instead)
    return text


HOSTILE_BYTES = (
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\n\n",
    b"\t",
    b" ",
    b"}",
    b"{",
    b"[",
    b'"',
    b"'",
    b",",
    b":",
    b"- ",
    b"? ",
    b"&a [*a",
    b"<<: *a",
    b"---\n",
    b"%YAML 9.9\n",
    b"\x1b[31m",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xf0\x9f\x98\x80",
    b"null",
    b"9" * 400,
    b"[" * 2000,
    b"x" * 100_000,
)


def scrambled(draw: Draw[Any], content: bytes, most: int = 3) -> bytes:
    """Return the text with one to `most` changes of its bytes and lines."""
    for _ in range(draw(st.integers(1, most))):
        content = draw(st.sampled_from(SCRAMBLES))(draw, content)
    return content


def _at(draw: Draw[Any], content: bytes) -> int:
    at: int = draw(st.integers(0, len(content)))
    return at


def _cut(draw: Draw[Any], content: bytes) -> bytes:
    return content[: _at(draw, content)]


def _put_in(draw: Draw[Any], content: bytes) -> bytes:
    at = _at(draw, content)
    return content[:at] + draw(st.one_of(st.sampled_from(HOSTILE_BYTES), st.binary(max_size=8))) + content[at:]


def _take_out(draw: Draw[Any], content: bytes) -> bytes:
    at = _at(draw, content)
    return content[:at] + content[at + draw(st.integers(1, 20)) :]


def _flip(draw: Draw[Any], content: bytes) -> bytes:
    at = _at(draw, content)
    return content[:at] + bytes(byte ^ draw(st.integers(1, 255)) for byte in content[at : at + 1]) + content[at + 1 :]


def _lines(draw: Draw[Any], content: bytes) -> bytes:
    """Repeat, move or leave out a line."""
    lines = content.splitlines(keepends=True) or [b""]
    at, to = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
    line = lines[at]
    match draw(st.sampled_from(("repeat", "many", "move", "out"))):
        case "repeat":
            lines.insert(to, line)
        case "many":
            lines[to:to] = [line] * min(3000, 1 + 300_000 // (len(line) + 1))
        case "move":
            lines.insert(to, lines.pop(at))
        case "out":
            del lines[at]
    return b"".join(lines)


SCRAMBLES = (_cut, _put_in, _put_in, _take_out, _flip, _lines, _lines)


def members(content: bytes) -> dict[str, bytes]:
    """Return what is in a zip file."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


HOSTILE_NAMES = (
    "../../evil",
    "/evil",
    "a/../../../evil",
    "records/quick/../../../../evil",
    "c:\\evil",
    "..\\evil",
    "records/",
    "records/quick",
    "a" * 300,
    "x\ny",
    "\x1b[31m",
    "\u202egnp.exe",
    "CON",
    ".",
    "records//a",
    "bundle.json",
)


def packed(draw: Draw[Any], entries: Mapping[str, bytes]) -> bytes:
    """Return a zip file of these entries, with drawn names and kinds of entries beside or instead of them."""
    target = io.BytesIO()
    oddity = draw(
        st.sampled_from((None, None, "name", "twice", "link", "device", "bomb", "folder", "encrypted", "method"))
    )
    names = list(entries)
    odd = names[draw(st.integers(0, len(names) - 1))] if names else ""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name, (2026, 3, 14, 12, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            if name == odd and oddity is not None:
                for changed, data in _odd_entries(draw, oddity, info, content):
                    _write(file, changed, data)
            else:
                _write(file, info, content)
    data = target.getvalue()
    if draw(st.integers(0, 3)) == 0:
        # Of the directory at the end mostly, where names, sizes and places are.
        at = max(0, len(data) - draw(st.integers(1, 600)))
        data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
    return scrambled(draw, data, 1) if draw(st.integers(0, 7)) == 0 else data


def _write(file: zipfile.ZipFile, info: zipfile.ZipInfo, data: bytes) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a name is there twice
        file.writestr(info, data)


def _odd_entries(
    draw: Draw[Any], oddity: str, info: zipfile.ZipInfo, content: bytes
) -> Iterator[tuple[zipfile.ZipInfo, bytes]]:
    if oddity == "name":
        info.filename = draw(st.sampled_from(HOSTILE_NAMES))
    if oddity == "link":
        info.external_attr, content = (
            0o120777 << 16,
            draw(st.sampled_from((b"/etc/passwd", b"../../evil", b"/dev/zero"))),
        )
    if oddity == "device":
        info.external_attr = draw(st.sampled_from((0o020666, 0o010666, 0o060666, 0o140666))) << 16
    if oddity == "bomb":
        content = bytes(draw(st.sampled_from((1 << 20, 40 << 20))))
    if oddity == "folder":
        info.filename += "/"
    if oddity == "encrypted":
        info.flag_bits |= 1
    if oddity == "method":
        info.compress_type = draw(st.sampled_from((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_STORED)))
    yield info, content
    if oddity == "twice":
        yield zipfile.ZipInfo(info.filename), content[::-1]
