"""OmegaConf's `${...}`, resolved in a benchmark after the merge, each distinct interpolation only once.

OmegaConf itself resolves each text, once: with marks instead of the values that it refers to. Each
benchmark then puts its own values where the marks came out, so that ten thousand benchmarks with `${name}` cost one
call. Values without `${` cost nothing, and OmegaConf is imported when the first one is met that is more than references to
keys, as `a ${.b}`, with text around them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from milabench.config.problems import UnplacedProblem, did_you_mean
from milabench.config.source_map import DYNAMIC, Located, located, plain
from milabench.errors import Problem
from milabench.redaction import learn, values_in

# Twenty keys that each hold the one before twice would come to a million values: all of this is bounded.
MAX_LENGTH: Final = 4_096
MAX_RESULT: Final = 65_536
MAX_NODES: Final = 100_000
MAX_DEPTH: Final = 40
RESOLVERS: Final = ("oc.env", "oc.decode", "oc.create")

Path = tuple[str, ...]

_SEGMENT: Final = r"[^\s.\[\]{}()$:,'\"\\]+"
_REFERENCE: Final = re.compile(rf"\$\{{\s*(\.*)((?:{_SEGMENT}|\[{_SEGMENT}\])(?:\.{_SEGMENT}|\[{_SEGMENT}\])*)\s*\}}")
_KEYS: Final = re.compile(_SEGMENT)
_RESOLVER: Final = re.compile(r"\$\{\s*([A-Za-z_][\w.]*)\s*:")
_OPENING: Final = re.compile(r"(?<!\\)(\\*)\$\{")
# Private-use characters, refused in texts with an interpolation: OmegaConf passes them on as they are.
_MARKS: Final = re.compile("\ue000([0-9]+)\ue001")
_NUMBERED: Final = re.compile(r"\$\{r([0-9]+)\}")
# A resolver that takes the value of a reference.
_OVER_VALUES: Final = re.compile(r"\$\{[^}]*\$\{r[0-9]+\}")
_ENV: Final = "milabench.env"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """A text after its meaning is known.

    `references`: the dots and keys of every value that it refers to. `pieces`: text, and the numbers of references,
    whose values are put in. None where OmegaConf has to be asked: without references, and where a resolver takes the values.
    `text`: with the references numbered, for that.
    """

    references: tuple[tuple[int, Path], ...]
    text: str
    pieces: tuple[str | int, ...] | None = None


class _Kept(NamedTuple):
    """The value of a key, its resolved value, and the values of all keys that this depends on. `holds` are containers."""

    node: Located
    resolved: Located
    used: tuple[tuple[str, Located], ...]
    holds: bool


def escaped(text: str) -> str:
    """Return text that OmegaConf reads back as this very text: no `${` in it is an interpolation."""
    return _OPENING.sub(lambda opening: opening[1] * 2 + "\\${", text)


class Interpolator:
    """Resolves the interpolations of a suite's benchmarks. Its findings about a text serve all benchmarks."""

    def __init__(self, system: Located, env: Mapping[str, str]) -> None:
        self.env = env
        self.compiled: dict[str, _Compiled] = {}
        self.asked: dict[tuple[str, tuple[Any, ...]], Any] = {}
        self.sizes: dict[int, tuple[Located, int]] = {}
        self.kept: dict[tuple[str, int], _Kept] = {}
        """The last resolved values of keys, by the key and the id of the value."""
        self.system = system
        resolution = _Resolution(self, "", {"system": system}, {})
        self.system = resolution.whole()["system"]
        self.system_problems = resolution.problems

    def benchmark(self, name: str, node: Located, implied: Mapping[str, Located]) -> tuple[Located, list[Problem]]:
        """Return the benchmark without interpolations, and the problems met.

        The root of absolute references is the benchmark itself, with its own keys, `system` and the `implied` values.
        """
        resolution = _Resolution(self, name, node.value, implied)
        whole = Located(resolution.whole(), node.mark, node.replaced, node.flags & ~DYNAMIC)
        if not resolution.problems and resolution.has_containers and self.size(whole) > MAX_NODES:
            what = f"its interpolations expand to more than {MAX_NODES} values"
            return Located({}, node.mark), [Problem(str(node.mark), name, what)]
        return whole, resolution.problems

    def compile(self, text: str) -> _Compiled:
        """Return the meaning of a text. Raises UnplacedProblem."""
        if text not in self.compiled:
            self.compiled[text] = self._compile(text)
        return self.compiled[text]

    def _compile(self, text: str) -> _Compiled:
        if len(text) > MAX_LENGTH:
            raise UnplacedProblem(f"an interpolated value is longer than {MAX_LENGTH} characters")
        if "\ue000" in text or "\ue001" in text:
            raise UnplacedProblem("the characters U+E000 and U+E001 are not allowed next to an interpolation")
        references: list[tuple[int, Path]] = []
        numbered = self._numbered(text, references)
        for call in _RESOLVER.finditer(numbered):
            if call[1] not in RESOLVERS and not _is_escaped(numbered, call.start()):
                raise UnplacedProblem(f"unknown resolver {call[1]!r}", f"known: {', '.join(RESOLVERS)}")
        meaning = _Compiled(references=tuple(references), text=numbered)
        if not references or _OVER_VALUES.search(numbered):
            return meaning
        # OmegaConf takes a tenth of a second to import, and leaves what is around a reference to a key as it is.
        pieces = _NUMBERED.split(numbered)
        if any("$" in literal or "\\" in literal for literal in pieces[::2]):
            answer = self._ask(numbered, [f"\ue000{number}\ue001" for number in range(len(references))])
            if not isinstance(answer, str):
                return meaning
            pieces = _MARKS.split(answer)
        parts = (int(piece) if index % 2 else piece for index, piece in enumerate(pieces))
        return replace(meaning, pieces=tuple(part for part in parts if part != ""))

    def _numbered(self, text: str, references: list[tuple[int, Path]]) -> str:
        """Return the text with `${r0}`, `${r1}`, ... instead of the references to keys."""

        def number(reference: re.Match[str]) -> str:
            if _is_escaped(text, reference.start()):
                return reference[0]
            references.append((len(reference[1]), tuple(_KEYS.findall(reference[2]))))
            return f"${{r{len(references) - 1}}}"

        return _REFERENCE.sub(number, text)

    def ask(self, text: str, values: list[Any]) -> Any:
        """Return OmegaConf's value of a numbered text with these values. Each is asked once. Raises UnplacedProblem."""
        key = (text, tuple(repr(value) for value in values))
        if key not in self.asked:
            self.asked[key] = self._ask(text, [escaped(v) if isinstance(v, str) and "${" in v else v for v in values])
        return self.asked[key]

    def _ask(self, text: str, values: list[Any]) -> object:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        nowhere = object()
        missing: list[object] = []

        def variable(name: object, default: object = nowhere) -> Any:
            if str(name) in self.env:
                return self.env[str(name)]
            if default is nowhere:
                missing.append(name)
                raise KeyError(name)
            return default if default is None else str(default)

        # OmegaConf 2.4 gave `register_resolver` the meaning that `register_new_resolver` has in 2.3.
        renamed = "replace" in inspect.signature(OmegaConf.register_resolver).parameters
        register = OmegaConf.register_resolver if renamed else OmegaConf.register_new_resolver
        # Resolvers are global: ours has a name of its own, so that the program that imports us keeps its `oc.env`.
        register(_ENV, variable, replace=True)
        ours = re.sub(r"(\$\{\s*)oc\.env(\s*:)", rf"\g<1>{_ENV}\g<2>", text)
        try:
            config = OmegaConf.create({**{f"r{number}": value for number, value in enumerate(values)}, "it": ours})
            answer = config["it"]
            return OmegaConf.to_container(answer, resolve=True) if OmegaConf.is_config(answer) else answer
        except OmegaConfBaseException as error:
            if missing:
                hint = f"set it, or give a default: ${{oc.env:{missing[0]},default}}"
                raise UnplacedProblem(f"the environment variable {missing[0]} is not set", hint) from None
            reason = str(error).split("\n", 1)[0].replace(_ENV, "oc.env")
            raise UnplacedProblem(f"cannot be resolved: {reason}") from None
        except (RecursionError, ValueError, TypeError, AttributeError) as error:
            raise UnplacedProblem(f"cannot be resolved: {str(error).split(chr(10), 1)[0]}") from None

    def size(self, node: Located) -> int:
        """Return the number of values in a tree, counting a shared part each time it occurs."""
        value = node.value
        if type(value) is not dict and type(value) is not list:
            return 1
        children: Iterable[Located] = value.values() if type(value) is dict else value
        known = self.sizes.get(id(node))
        if known is None:
            known = self.sizes[id(node)] = (node, 1 + sum(self.size(child) for child in children))
        return known[1]


class _Resolution:
    """The resolution of a benchmark, whose keys are `own`. References find the keys that are `implied`, then its own."""

    def __init__(
        self, interpolator: Interpolator, name: str, own: Mapping[str, Located], implied: Mapping[str, Located]
    ) -> None:
        self.interpolator = interpolator
        self.name = name
        self.own = own
        self.implied = implied
        self.problems: list[Problem] = []
        self.done: dict[Path, tuple[Located, dict[str, Located]]] = {}
        self.active: list[Path] = []
        self.has_containers = False
        self.used: dict[str, Located] = {}
        """The keys at the root on which the value in work depends."""

    def whole(self) -> dict[str, Located]:
        """Return the benchmark's keys without interpolations."""
        return {key: self._of_key(key, child) if child.flags & DYNAMIC else child for key, child in self.own.items()}

    def _at_root(self, key: str) -> Located | None:
        found = self.implied.get(key) or self.own.get(key)
        return self.interpolator.system if found is None and key == "system" else found

    def _of_key(self, key: str, node: Located) -> Located:
        """Return the value of a key. A value that another benchmark has, with all its dependencies, is not resolved again."""
        kept = self.interpolator.kept
        known = kept.get((key, id(node)))
        if known is not None and all(self._at_root(name) is value for name, value in known.used):
            self.has_containers = self.has_containers or known.holds
            return known.resolved
        others, self.used = len(self.problems), {}
        held, self.has_containers = self.has_containers, False
        resolved = self._node(node, (key,))
        if len(self.problems) == others:
            kept[key, id(node)] = _Kept(node, resolved, tuple(self.used.items()), self.has_containers)
        self.has_containers = self.has_containers or held
        return resolved

    def _node(self, node: Located, path: Path) -> Located:
        if not node.flags & DYNAMIC:
            return node
        value = node.value
        if type(value) is str:
            return self._leaf(node, path)
        if type(value) is dict:
            children = {key: self._node(child, (*path, key)) for key, child in value.items()}
            return node.holding(children, node.flags & ~DYNAMIC)
        items = [self._node(child, (*path, str(index))) for index, child in enumerate(value)]
        return node.holding(items, node.flags & ~DYNAMIC)

    def _leaf(self, node: Located, path: Path) -> Located:
        known = self.done.get(path)
        if known is not None:
            resolved, used = known
            self.used.update(used)
            return resolved
        try:
            resolved = self._resolved(node, path)
            learn(values_in(plain(resolved), path[-1]))
        except UnplacedProblem as error:
            if self.active:  # reported for the value whose reference led here
                raise
            dotted = ".".join(([self.name] if self.name else []) + list(path))
            what = f"{node.value!r}: {error}" if len(node.value) <= 80 else str(error)
            self.problems.append(Problem(str(node.mark), dotted, what, error.hint))
            resolved = Located(None, node.mark, node.replaced, raw=node.value, key=node.key)
        self.done[path] = (resolved, self.used)
        return resolved

    def _resolved(self, node: Located, path: Path) -> Located:
        # The path and not the node: one node may stand under several keys, by aliases and inheritance.
        if path in self.active:
            cycle = " -> ".join(".".join(step) for step in [*self.active[self.active.index(path) :], path])
            raise UnplacedProblem(f"it refers to itself: {cycle}")
        if len(self.active) >= MAX_DEPTH:
            raise UnplacedProblem(f"more than {MAX_DEPTH} interpolations refer to each other")
        self.active.append(path)
        try:
            return self._evaluated(node, path, node.value)
        finally:
            self.active.pop()

    def _evaluated(self, node: Located, path: Path, text: str) -> Located:
        compiled = self.interpolator.compile(text)
        targets = [self._target(dots, keys, path) for dots, keys in compiled.references]
        if compiled.pieces is None:
            inner = self._with_inner_keys(compiled, targets)
            if inner is not None:
                return self._evaluated(node, path, inner)
            answer = self.interpolator.ask(compiled.text, [plain(target) for target in targets])
            return self._made(located(answer, node.mark), node)
        if len(compiled.pieces) == 1 and isinstance(compiled.pieces[0], int):
            return self._made(targets[compiled.pieces[0]], node)
        texts = [piece if isinstance(piece, str) else str(plain(targets[piece])) for piece in compiled.pieces]
        if sum(len(part) for part in texts) > MAX_RESULT:
            raise UnplacedProblem(f"the value is longer than {MAX_RESULT} characters")
        return self._made(Located("".join(texts), node.mark), node)

    def _with_inner_keys(self, compiled: _Compiled, targets: list[Located]) -> str | None:
        """Return the text with the values of `${...}` put in where they make up a key, `${a.${b}}`. None where there is no
        such.
        """
        inner = re.compile(r"\$\{([^${}:]*)\$\{r(\d+)\}")
        if not inner.search(compiled.text):
            return None
        text = inner.sub(lambda match: f"${{{match[1]}{plain(targets[int(match[2])])}", compiled.text)
        for number, (dots, keys) in enumerate(compiled.references):
            text = text.replace(f"${{r{number}}}", f"${{{'.' * dots}{'.'.join(keys)}}}")
        return text

    def _made(self, value: Located, node: Located) -> Located:
        if isinstance(value.value, str) and len(value.value) > MAX_RESULT:
            raise UnplacedProblem(f"the value is longer than {MAX_RESULT} characters")
        self.has_containers = self.has_containers or type(value.value) in (dict, list)
        if self.interpolator.size(value) > MAX_NODES:
            raise UnplacedProblem(f"the value expands to more than {MAX_NODES} values")
        return Located(
            value.value, node.mark, node.replaced, value.flags & ~DYNAMIC, False, node.value, node.formatted, node.key
        )

    def _target(self, dots: int, keys: Path, path: Path) -> Located:
        if dots > len(path):
            raise UnplacedProblem("its dots lead above the benchmark")
        # One dot is the container that holds the value, as in OmegaConf.
        start = path[: len(path) - dots] if dots else ()
        written = "." * dots + ".".join(keys)
        first, *others = (*start, *keys)
        found = self._at_root(first)
        if found is None:
            raise UnplacedProblem(
                f"there is no key {written!r}", did_you_mean(first, {"system", *self.implied, *self.own})
            )
        here = self.used[first] = found
        walked: Path = (first,)
        for step in others:
            here = self._node(here, walked) if isinstance(here.value, str) else here
            value = here.value
            child: Located | None = None
            if type(value) is dict:
                child = value.get(step)
            elif type(value) is list and step.isdigit() and int(step[:9]) < len(value):
                child = value[int(step[:9])]
            if child is None:
                near = did_you_mean(step, value) if type(value) is dict else ""
                raise UnplacedProblem(f"there is no key {written!r}", near)
            here = child
            walked = (*walked, step)
        if any(walked == active[: len(walked)] and type(here.value) is not str for active in self.active):
            raise UnplacedProblem("it refers to a value that contains it")
        return self._node(here, walked)


def _is_escaped(text: str, position: int) -> bool:
    """Return whether an odd number of backslashes stands before this position."""
    before = text[:position]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1
